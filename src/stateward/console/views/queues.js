// Queues: what is under way and what stands behind it, and why each piece of work does not run yet.

import { get, objectPath } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { card, empty, heading, meter, note, objectAnchor, quiet, readable } from "../ui/components.js";
import { oldestQueues } from "../core/pagination.js";
import { ago, seconds } from "../core/time.js";
import { stateBadge } from "../ui/states.js";
import { classOf, tally } from "../core/store.js";
import { counted } from "../core/numbers.js";

/** @import {Context, QueuedOperation, ObjectView} from "../core/types.js" */

const MAX_SHOWN = 24;
const NEAR_S = 60;

/** @param {Context} context */
async function show(context) {
  const list = h("div", { class: "grid" });
  const sum = h("p", { class: "quiet", role: "status" });
  fill(context.main, heading("Queues", "one action at a time for each object; the rest waits in line"), sum, list);
  context.every(2, async () => {
    const queues = await oldestQueues(MAX_SHOWN, context.signal);
    const cards = await Promise.all(queues.slice(0, MAX_SHOWN).map((some) => queue(some, context.signal)));
    const total = countMoving();
    const rest = queues.length > MAX_SHOWN ? `; of their queues, the ${MAX_SHOWN} that have been changing longest are shown` : "";
    fill(sum, total ? `${counted(total, "object")} in transition${rest}.` : "");
    fill(
      list,
      cards.length
        ? cards
        : empty(
            "No operations are running or waiting.",
            "To start one, open an ",
            h("a", { href: "#/objects" }, "object"),
            " and choose an action.",
          ),
    );
  });
}

/** How many objects of the chosen namespaces are in a transitional state, by the counts of the stream. */
function countMoving() {
  let total = 0;
  for (const [kind, states] of tally())
    for (const [state, count] of states) if (classOf(kind, state) === "transitional") total += count;
  return total;
}

/** @param {ObjectView[]} some @param {AbortSignal} signal */
async function queue(some, signal) {
  const first = some[0];
  if (!first) return null;
  const found = await get(`${objectPath(first)}/queue`, {}, signal).catch(() => ({ items: [] }));
  const owner = some.find((one) => one.id === first.queue) ?? first;
  return card(
    first.queue,
    [stateBadge(owner), first.ns],
    found.items.length
      ? h(
          "ol",
          { class: "queue", "aria-label": `Queue of ${first.queue}` },
          found.items.map((/** @type {QueuedOperation} */ one) => queued(one, first.ns)),
        )
      : note("The operation has just ended."),
  );
}

/** @param {QueuedOperation} one @param {string} ns */
function queued(one, ns) {
  const due = one.deadline ? quiet(`due ${ago(one.deadline)}`) : null;
  return h(
    "li",
    null,
    h("div", { class: "row" }, h("b", null, one.action), objectAnchor(ns, one.object), quiet(one.who), due),
    h("p", null, sentence(one.text)),
    one.deadline ? left(one) : null,
  );
}

/** A reason of the server as a sentence of its own. @param {string} text */
function sentence(text) {
  const words = readable(text);
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}.`;
}

/** @param {QueuedOperation} one */
function left(one) {
  const rest = Math.max(0, seconds(one.deadline ?? "") - Date.now() / 1000);
  return rest < NEAR_S ? meter(NEAR_S - rest, NEAR_S, "Time used", "leaving") : null;
}

export default { title: "Queues", show };
