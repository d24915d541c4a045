// Keys: `/` searches, `?` helps, `g` and a letter go to a view, arrows walk in lists.

import { fill, find, h } from "./dom.js";
import { go, link } from "./router.js";
import { MEANINGS, shape, TONES } from "./states.js";

/** @type {Record<string, string>} */
const PLACES = {
  o: "overview",
  b: "objects",
  m: "mci",
  e: "edge",
  v: "ovc",
  l: "leases",
  s: "systems",
  q: "queues",
  n: "lanes",
  w: "workers",
  t: "timers",
  j: "journal",
  a: "access",
};

const KEYS = [
  ["/", "search for objects"],
  ["?", "this help"],
  ["↑ ↓ ← →", "walk in a table, in the fleet map and along buttons"],
  ["Enter", "open what is marked"],
  ["Space", "select a row of the objects"],
  ["Esc", "close, or leave a field"],
  [
    "g, then a letter",
    Object.entries(PLACES)
      .map(([key, view]) => `${key} ${view}`)
      .join(", "),
  ],
];

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
    else if (Date.now() - waiting < 1_500 && event.key in PLACES) {
      waiting = 0;
      go(link(PLACES[event.key] ?? "overview"));
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
      KEYS.flatMap(([key, what]) => [h("dt", null, h("kbd", null, key)), h("dd", null, what)]),
    ),
    h("h2", null, "Shapes"),
    h(
      "ul",
      { class: "legend" },
      TONES.map((tone) => h("li", null, shape(tone), MEANINGS[tone])),
    ),
    h("h2", null, "More"),
    h(
      "p",
      null,
      "Everything here is also in the ",
      h("a", { href: "/docs" }, "API"),
      " and on the command line: ",
      h("code", null, "stateward --help"),
    ),
    h("footer", null, h("button", { class: "primary", onclick: () => dialog.close(), autofocus: true }, "Close")),
  );
  dialog.showModal();
}
