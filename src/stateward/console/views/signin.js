// Signing in with a token, which this tab keeps until it is closed.

import { fill, h } from "../core/dom.js";
import { problemPanel } from "../ui/problems.js";
import { code } from "../ui/components.js";

/**
 * @param {HTMLElement} main
 * @param {unknown} problem why the last token was refused
 * @param {(token: string) => void} onToken
 */
export function showSignIn(main, problem, onToken) {
  const input = /** @type {HTMLInputElement} */ (
    h("input", {
      type: "password",
      name: "token",
      required: true,
      autocomplete: "off",
      placeholder: "sw_…",
      "aria-describedby": "token-about",
    })
  );
  const form = h(
    "form",
    {
      class: "card signin",
      onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        if (input.value.trim()) onToken(input.value.trim());
      },
    },
    h("div", { class: "mark", "aria-hidden": "true" }, "◆"),
    h("h1", null, "stateward"),
    h("p", { class: "about" }, "Objects in known states: nothing stuck, nothing lost."),
    h("label", { class: "field" }, h("span", null, "Token"), input),
    h(
      "p",
      { id: "token-about", class: "quiet" },
      "It is kept for this tab only. The server wrote the first one into ",
      code("admin-token"),
      " in its data folder, and said where when it started.",
    ),
    h("button", { class: "primary", type: "submit" }, "Sign in"),
    typeof problem === "string" ? h("p", { role: "alert" }, problem) : problem ? problemPanel(problem) : null,
  );
  fill(main, h("div", { class: "centre" }, form));
  input.focus();
}
