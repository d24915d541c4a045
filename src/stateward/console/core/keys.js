// Keyboard shortcuts: `/` searches, `?` helps, `g` and a letter go to a view, arrows walk in lists.

import { domains } from "./domains.js";
import { fill, find, h } from "./dom.js";
import { go, link } from "./links.js";
import { MEANINGS, shape, TONES } from "../ui/states.js";
import { code } from "../ui/components.js";

/** @returns {Record<string, string>} the view of each letter after `g`, in the order of the navigation */
function viewsByLetter() {
  /** @type {Record<string, string>} */
  const letters = {};
  for (const { hotkey, name } of domains.values()) if (hotkey) letters[hotkey] ??= name;
  return {
    o: "overview",
    b: "objects",
    ...letters,
    x: "operations",
    q: "queues",
    n: "lanes",
    w: "workers",
    t: "timers",
    j: "journal",
    a: "access",
  };
}

/** @returns {[string, string][]} */
function keyTable() {
  const isOffered = (/** @type {string} */ view) => document.querySelector(`nav a[data-view="${view}"]:not([hidden])`);
  const letters = Object.entries(viewsByLetter()).filter(([, view]) => isOffered(view)).map(([key, view]) => `${key} ${view}`);
  return [
    ["/", "search for objects, operations, kinds, states, labels and errors"],
    ["?", "this help"],
    ["↑ ↓ ← →", "move in a table, in the fleet map and along buttons"],
    ["Enter", "open the marked row or cell"],
    ["Space", "select a row of the object list"],
    ["Esc", "close, or leave a field"],
    ["g, then a letter", letters.join(", ")],
  ];
}

/** Listen to keys. */
export function keys() {
  let waiting = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || find("#top").hidden) return;
    const field = /** @type {HTMLElement} */ (event.target);
    if (field.matches("input, select, textarea")) {
      if (event.key === "Escape") field.blur();
      return;
    }
    if (event.key === "/") {
      event.preventDefault();
      find("#search input").focus();
    } else if (event.key === "?") showHelp();
    else if (event.key === "g") waiting = Date.now();
    else if (Date.now() - waiting < 1_500 && event.key in viewsByLetter()) {
      waiting = 0;
      go(link(viewsByLetter()[event.key] ?? "overview"));
    }
  });
  find("#help-button").addEventListener("click", showHelp);
}

/** Show what the keys and shapes mean. */
export function showHelp() {
  const dialog = /** @type {HTMLDialogElement} */ (find("#help"));
  if (dialog.open) return;
  fill(
    dialog,
    h("h2", null, "Keys"),
    h(
      "dl",
      { class: "keys" },
      keyTable().flatMap(([key, what]) => [h("dt", null, h("kbd", null, key)), h("dd", null, what)]),
    ),
    h("h2", null, "Shapes"),
    h("ul", { class: "legend" }, TONES.map((tone) => h("li", null, shape(tone), MEANINGS[tone]))),
    h("h2", null, "More"),
    h(
      "p",
      null,
      "Everything in the console is also in the ",
      h("a", { href: "/docs" }, "API"),
      " (",
      h("a", { href: "/docs/guide" }, "guide"),
      ")",
      " and on the command line: ",
      code("stateward --help"),
    ),
    h("footer", null, h("button", { class: "primary", onclick: () => dialog.close(), autofocus: true }, "Close")),
  );
  dialog.showModal();
}
