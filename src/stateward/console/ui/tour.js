// The tour: a few steps along the views, offered once on a server with the demo.

import { fill, find, h } from "../core/dom.js";
import { domains } from "../core/domains.js";
import { go, link } from "../core/links.js";
import { store } from "../core/store.js";
import { quiet } from "./components.js";

/** @import {Domain} from "../core/types.js" */

const STORAGE_KEY = "stateward-tour";

/** @returns {[string, string, string][]} the steps: view, title, text */
function steps() {
  return [
    [
      "overview",
      "The fleet, live",
      "Each cell of the map is an object, its shape and colour are its state. Point at a cell, click it, or move with the arrow keys. Below, the lifecycle shows the number of objects in each state, and every step as it happens.",
    ],
    [
      "objects",
      "Find and select",
      "Press / anywhere to search. Select rows, then run one action on all of them; each refusal says why.",
    ],
    ...[...domains.values()].flatMap(domainSteps),
    ["journal", "The full history", "Who did what, when and why; rejected reports, too. Filter, follow, export."],
    [
      "overview",
      "That is all",
      "Press ? for the keys. Open an object and try a button: actions that are not allowed are grey, and say why.",
    ],
  ];
}

/** @param {Domain} domain @returns {[string, string, string][]} */
function domainSteps({ name, tour }) {
  return tour ? [[name, ...tour]] : [];
}

/** Offer the tour, if it was not taken yet and there is a demo to see. */
export function offerTour() {
  if (store.me?.demo && localStorage.getItem(STORAGE_KEY) === null) step(-1);
}

/** @param {number} number */
function step(number) {
  const [view, title, text] = steps()[number] ?? [
    "",
    "Welcome to Stateward",
    "This server runs a small demo fleet on simulated clouds. Take a tour of one minute?",
  ];
  if (view) go(link(view));
  const last = number === steps().length - 1;
  const tour = find("#tour");
  tour.hidden = false;
  fill(
    tour,
    h("h2", null, title),
    h("p", null, text),
    h(
      "footer",
      null,
      number >= 0 ? quiet(`${number + 1} of ${steps().length}`) : null,
      h("button", { onclick: end }, last ? "Close" : "Not now"),
      last ? null : h("button", { class: "primary", onclick: () => step(number + 1) }, number < 0 ? "Start the tour" : "Next"),
    ),
  );
}

function end() {
  localStorage.setItem(STORAGE_KEY, "seen");
  find("#tour").hidden = true;
}
