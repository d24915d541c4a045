// The card of a lifecycle: its diagram with the number of objects in each state, and steps as they happen.

import { h, throttle } from "../core/dom.js";
import { store, tally } from "../core/store.js";
import { card, select, wordOptions } from "./components.js";
import { showDiagram } from "./diagram.js";

/** @import {Context, JournalEntry} from "../core/types.js" */
/** @import {Diagram} from "./diagram.js" */

const REDRAW_MS = 200;

/**
 * @param {Context} context
 * @param {string[]} kinds the kinds to choose from
 * @param {{kind: string}} chosen is kept by the view
 */
export function lifecycleCard(context, kinds, chosen) {
  const place = h("div", { class: "diagram", tabindex: "0", role: "group", "aria-label": "Lifecycle" });
  /** @type {Diagram | null} */
  let shown = null;
  const count = () => shown?.count(tally().get(chosen.kind) ?? new Map());
  const draw = async () => {
    if (!chosen.kind) return;
    shown = await showDiagram(place, chosen.kind);
    count();
  };
  if (!kinds.includes(chosen.kind)) chosen.kind = kinds[0] ?? "";
  const choice = select(wordOptions(...kinds), chosen.kind, (value) => ((chosen.kind = value), draw()), "Lifecycle of");
  draw();
  context.on("counts", throttle(REDRAW_MS, count));
  context.on("entries", (/** @type {JournalEntry[]} */ entries) =>
    shown?.step(entries.filter((entry) => entry.kind === chosen.kind && (store.ns === "*" || entry.ns === store.ns))),
  );
  return card(
    "Lifecycle",
    ["objects in each state, steps as they happen ", h("span", { class: "tools" }, choice)],
    place,
  );
}
