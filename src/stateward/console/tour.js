// The first run: a few steps along the views, offered once where a demo fleet lives.

import { fill, find, h } from "./dom.js";
import { go, link } from "./router.js";
import { store } from "./store.js";

const KEPT = "stateward-tour";

/** @type {[string, string, string][]} view, title, text */
const STEPS = [
  [
    "overview",
    "A fleet that lives",
    "Each cell of the map is an object, its shape and colour are its state. Move over a cell, click it, or walk with the arrows. Below, the lifecycle shows how many objects are where, and every step as it happens.",
  ],
  [
    "objects",
    "Find and choose",
    "Press / anywhere to search. Choose some rows, then do something to all of them: each answers for itself, and refusals say why.",
  ],
  [
    "mci",
    "Machines on many clouds",
    "One page for each group of machines: subgroups and regions, and the status string that clients read.",
  ],
  ["leases", "Who has which host when", "The calendar of leases: hosts are rows. Click a bar to see the lease."],
  ["systems", "Trees and locks", "Services in their tree, and who holds which lock, and who waits for it."],
  ["journal", "Nothing is forgotten", "Who did what, when and why, rejected words too. Filter, follow, export."],
  [
    "overview",
    "That is all",
    "Press ? for the keys. Open an object and try a button: what is not allowed is grey, and says why.",
  ],
];

/** Offer the tour, if it was not taken yet and there is a demo to see. */
export function offerTour() {
  if (store.me?.demo && localStorage.getItem(KEPT) === null) step(-1);
}

/** @param {number} number */
function step(number) {
  const [view, title, text] = STEPS[number] ?? [
    "",
    "Welcome to Stateward",
    "This server keeps a small demo fleet alive on simulated clouds. Shall we walk around for a minute?",
  ];
  if (view) go(link(view));
  const last = number === STEPS.length - 1;
  const tour = find("#tour");
  tour.hidden = false;
  fill(
    tour,
    h("h2", null, title),
    h("p", null, text),
    h(
      "footer",
      null,
      number >= 0 ? h("span", { class: "quiet" }, `${number + 1} of ${STEPS.length}`) : null,
      h("button", { onclick: end }, last ? "Close" : "Not now"),
      last ? null : h("button", { class: "primary", onclick: () => step(number + 1) }, number < 0 ? "Show me" : "Next"),
    ),
  );
}

function end() {
  localStorage.setItem(KEPT, "seen");
  find("#tour").hidden = true;
}
