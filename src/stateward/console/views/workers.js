// Workers, and what is stuck: an administrator can have it healed at once.

import { get, send } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { card, code, empty, heading, objectAnchor, relativeTime, table } from "../ui/components.js";
import { attempt, toast } from "../ui/problems.js";
import { badge, shape } from "../ui/states.js";
import { governs } from "../core/store.js";

/** @import {Context, Stuck, Worker} from "../core/types.js" */

/** @param {Context} context */
function show(context) {
  const workers = h("div", null);
  const stuck = h("div", null);
  const read = async () => {
    if (governs()) fill(workers, workersTable(await get("/workers", {}, context.signal)));
    else fill(workers, empty("Only administrators see workers.", "Sign in with an administrator's token."));
    fill(stuck, stuckTable(await get("/stuck", { limit: 200 }, context.signal)));
  };
  const heal = async () => {
    await attempt(async () => {
      const done = await send("POST", "/heal");
      toast(`${done.freed} requeued from dead workers, ${done.settled} overdue resolved or expedited`, "good");
    });
    read();
  };
  fill(
    context.main,
    heading(
      "Workers",
      "processes that run operations; a worker is alive while its lease is valid",
      governs() ? h("button", { onclick: heal }, "Heal now") : null,
    ),
    card("Workers", "", workers),
    card("Stuck", "past the deadline, or of a dead worker; the healer resolves both automatically", stuck),
  );
  context.every(3, read);
}

/** @param {Worker[]} found */
function workersTable(found) {
  if (!found.length)
    return empty(
      "No workers yet.",
      "Start one: ",
      code("stateward worker"),
      ", or run one in the server: ",
      code("stateward serve --worker"),
    );
  return table(
    "Workers",
    ["worker", "", "host", "process", "seen", "lease"],
    found.map((one) => [
      code(one.id.slice(0, 8)),
      h("span", { class: "fine" }, shape(one.alive ? "good" : "failed"), one.alive ? "alive" : "dead"),
      one.host,
      String(one.pid),
      relativeTime(one.seen),
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
      one.deadline ? relativeTime(one.deadline) : "",
      String(one.attempts),
    ]),
  );
}

export default { title: "Workers", show };
