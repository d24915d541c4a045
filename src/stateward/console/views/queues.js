// Queues: what is under way and what stands behind it, and why each piece of work does not run yet.

import { get, objectPath } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { card, empty, heading, meter, note, objectAnchor, quiet, shortenIds, table } from "../ui/components.js";
import { transitionalObjects } from "../core/pagination.js";
import { ago, seconds } from "../core/time.js";
import { stateBadge } from "../ui/states.js";

/** @import {Context, QueuedOperation, ObjectView} from "../core/types.js" */

const MAX_SHOWN = 24;

/** @param {Context} context */
async function show(context) {
  const list = h("div", { class: "grid" });
  const sum = h("p", { class: "quiet", role: "status" });
  fill(context.main, heading("Queues", "one action at a time for each object; the rest waits in line"), sum, list);
  context.every(2, async () => {
    const things = await transitionalObjects(context.signal);
    /** @type {Map<string, ObjectView[]>} */
    const queues = new Map();
    for (const one of things)
      queues.set(`${one.ns}/${one.queue}`, [...(queues.get(`${one.ns}/${one.queue}`) ?? []), one]);
    const shown = [...queues].slice(0, MAX_SHOWN);
    const cards = await Promise.all(shown.map(([, some]) => queue(some, context.signal)));
    fill(
      sum,
      things.length
        ? `${things.length} objects are under way in ${queues.size} queues${queues.size > MAX_SHOWN ? `; the first ${MAX_SHOWN} are shown` : ""}.`
        : "",
    );
    fill(
      list,
      cards.length
        ? cards
        : empty(
            "Nothing is under way, and nothing waits.",
            "Ask for something: open an ",
            h("a", { href: "#/objects" }, "object"),
            " and press a button.",
          ),
    );
  });
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
      ? table(
          `Queue of ${first.queue}`,
          ["", "object", "action", "why"],
          found.items.map((/** @type {QueuedOperation} */ one) => row(one, first.ns)),
        )
      : note("It has just ended."),
  );
}

/** @param {QueuedOperation} one @param {string} ns */
function row(one, ns) {
  return [
    `${one.position + 1}`,
    objectAnchor(ns, one.object),
    h("span", null, one.action, h("br"), quiet(one.who)),
    h(
      "span",
      null,
      shortenIds(one.text),
      one.deadline ? quiet(`, due ${ago(one.deadline)}`) : null,
      one.deadline ? left(one) : null,
    ),
  ];
}

/** @param {QueuedOperation} one */
function left(one) {
  const rest = Math.max(0, seconds(one.deadline ?? "") - Date.now() / 1000);
  return rest < 60 ? meter(60 - rest, 60, "Time used", "leaving") : null;
}

export default { title: "Queues", show };
