// Signing in with a token. The browser gets a cookie for it, which no script can read; the page keeps nothing.

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
      "You stay signed in, in all tabs, for twelve hours or until you sign out. The server wrote the first token to ",
      code("admin-token"),
      " in its data folder, and printed the path when it started.",
    ),
    h("button", { class: "primary", type: "submit" }, "Sign in"),
    typeof problem === "string" ? h("p", { role: "alert" }, problem) : problem ? problemPanel(problem) : null,
  );
  fill(main, h("div", { class: "centre" }, form));
  input.focus();
}
