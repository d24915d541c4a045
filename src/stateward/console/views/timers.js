// Timers: what will be done to which object, and when.

import { fill, h } from "../core/dom.js";
import { card, empty, heading, objectAnchor, quiet, relativeTime, table } from "../ui/components.js";
import { allTimers } from "../core/pagination.js";
import { moment, seconds } from "../core/time.js";

/** @import {Context, Timer} from "../core/types.js" */

/** @param {Context} context */
function show(context) {
  const list = h("div", null);
  fill(
    context.main,
    heading("Timers", "fired once, in order, and at once after downtime"),
    card("Pending", "soonest first", list),
  );
  context.every(3, async () => {
    const found = await allTimers(200, context.signal);
    found.sort((one, other) => seconds(one.due) - seconds(other.due));
    fill(
      list,
      found.length
        ? table("Timers", ["due", "", "object", "event", "namespace", "timer"], found.map(row))
        : empty("No pending timers.", "Leases, deadlines and the recycle bin set them."),
    );
  });
}

/** @param {Timer} one */
function row(one) {
  return [
    moment(one.due),
    h("b", null, relativeTime(one.due)),
    objectAnchor(one.ns, one.object),
    one.facts.length ? `${one.event} (${one.facts.join(", ")})` : one.event,
    one.ns,
    quiet(one.id),
  ];
}

export default { title: "Timers", show };
