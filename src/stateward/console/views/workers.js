// Workers, and what is stuck: an administrator can have it healed at once.

import { get, send } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { card, code, empty, heading, objectAnchor, table } from "../ui/components.js";
import { attempt, toast } from "../ui/problems.js";
import { badge, shape } from "../ui/states.js";
import { may } from "../core/store.js";
import { ago } from "../core/time.js";

/** @import {Context, Stuck, Worker} from "../core/types.js" */

/** @param {Context} context */
function show(context) {
  const workers = h("div", null);
  const stuck = h("div", null);
  const read = async () => {
    if (may("govern")) fill(workers, workersTable(await get("/workers", {}, context.signal)));
    else fill(workers, empty("Workers are shown to administrators.", "Your role may look at objects."));
    fill(stuck, stuckTable(await get("/stuck", { limit: 200 }, context.signal)));
  };
  const heal = async () => {
    await attempt(async () => {
      const done = await send("POST", "/heal");
      toast(`${done.freed} freed, ${done.settled} settled`, "good");
    });
    read();
  };
  fill(
    context.main,
    heading(
      "Workers",
      "processes that claim work; one is alive as long as it was seen within its lease",
      may("govern") ? h("button", { onclick: heal }, "Heal now") : null,
    ),
    card("Workers", "", workers),
    card("Stuck", "past its deadline, or its worker is dead; the healer sees to both by itself", stuck),
  );
  context.every(3, read);
}

/** @param {Worker[]} found */
function workersTable(found) {
  if (!found.length)
    return empty(
      "No worker is known.",
      "Start one: ",
      code("stateward worker"),
      " or let the server work itself: ",
      code("stateward serve --worker"),
    );
  return table(
    "Workers",
    ["worker", "", "host", "process", "seen", "lease"],
    found.map((one) => [
      code(one.id.slice(0, 8)),
      h("span", { class: "fine" }, shape(one.alive ? "good" : "failed"), one.alive ? "alive" : "lost"),
      one.host,
      String(one.pid),
      ago(one.seen),
      `${one.lease} s`,
    ]),
  );
}

/** @param {Stuck[]} found */
function stuckTable(found) {
  if (!found.length) return h("p", { class: "fine" }, shape("good"), "Nothing is stuck.");
  return table(
    "Stuck",
    ["object", "state", "action", "why", "due", "attempts"],
    found.map((one) => [
      objectAnchor(one.ns, one.object),
      badge(one.state, "transitional"),
      one.action,
      one.why,
      one.deadline ? ago(one.deadline) : "",
      String(one.attempts),
    ]),
  );
}

export default { title: "Workers", show };
