// OpenvCloud objects in their tree, and the recycle bin: what is in it, for how long still, and back out of it.

import { get, part } from "../api.js";
import { act } from "../actions.js";
import { fill, h } from "../dom.js";
import { counted, groupedBy, living } from "../living.js";
import { card, code, confirm, empty, heading, legend, meter, objectAnchor, rollUp, table } from "../parts.js";
import { readable } from "../reading.js";
import { badge } from "../states.js";
import { may } from "../store.js";
import { ago, seconds, span } from "../time.js";

/** @import {Context, Thing, Timer} from "../types.js" */

const KINDS = ["ovc.account", "ovc.cloudspace", "ovc.vm", "ovc.disk", "ovc.image", "ovc.node"];
const BINNED = ["DELETED", "TOBEDELETED"];
const KEPT = 7 * 86_400;

/** @param {Context} context */
async function show(context) {
  const bin = h("div", null);
  const tree = h("div", { class: "tree" });
  const sums = h("div", { class: "grid" });
  /** @type {Timer[]} */
  let timers = [];
  /** @type {Thing[]} */
  let shown = [];
  const drawBin = () => fill(bin, recycled(shown, timers, again));
  let again = () => {};
  fill(
    context.main,
    heading("OpenvCloud", "accounts, cloudspaces, machines, disks"),
    card("Recycle bin", "what was deleted can be restored until its time is over", bin),
    sums,
    card("Objects", "by where they belong", tree),
  );
  again = await living(context, KINDS, (things) => {
    shown = things;
    drawBin();
    const kinds = groupedBy(things, (one) => one.kind);
    fill(
      sums,
      [...kinds].map(([kind, some]) =>
        card(kind, `${some.length}`, rollUp(kind, counted(some)), legend(kind, counted(some))),
      ),
    );
    const tops = things.filter((one) => !things.some((other) => other.id === one.parent && other.ns === one.ns));
    fill(
      tree,
      things.length
        ? branch(tops, things)
        : empty(
            "There is nothing yet.",
            "Make a first machine: ",
            code("stateward create ovc.vm/web-1 --action define"),
          ),
    );
  });
  context.every(10, async () => {
    const pages = await Promise.all(
      readable().map((ns) => get(`/ns/${part(ns)}/timers`, { limit: 1_000 }, context.signal)),
    );
    timers = pages.flat();
    drawBin();
  });
}

/** @param {Thing[]} things @param {Timer[]} timers @param {() => void} again */
function recycled(things, timers, again) {
  const found = things.filter((one) => BINNED.includes(one.state));
  if (!found.length) return empty("The bin is empty.", "What is deleted without force goes here first.");
  return table(
    "Recycle bin",
    ["object", "state", "kind", "deleted", "time left", "", ""],
    found.map((one) => {
      const timer = timers.find((other) => other.ns === one.ns && other.object === one.id);
      const left = timer ? seconds(timer.due) - Date.now() / 1000 : null;
      return [
        objectAnchor(one.ns, one.id),
        badge(one.state, one.state_class),
        one.kind,
        ago(one.since),
        left === null ? "any time" : left > 0 ? `${span(left)}, then ${timer?.event}` : "over",
        left === null
          ? ""
          : meter(
              Math.max(0, left),
              Math.max(KEPT, left),
              `Time left for ${one.id}`,
              left < 86_400 ? "leaving" : "good",
            ),
        may("act")
          ? h(
              "span",
              { class: "row" },
              h("button", { onclick: () => act(one, "restore", [], [], again) }, "Restore"),
              h("button", { class: "danger", onclick: () => destroy(one, again) }, "Destroy"),
            )
          : "",
      ];
    }),
  );
}

/** @param {Thing} one @param {() => void} again */
async function destroy(one, again) {
  if (await confirm(`Destroy ${one.id} for good?`, "Destroy")) await act(one, "destroy", [], [], again);
}

/** @param {Thing[]} some @param {Thing[]} all @returns {HTMLElement} */
function branch(some, all) {
  return h(
    "ul",
    null,
    some.map((one) => {
      const below = all.filter((other) => other.ns === one.ns && other.parent === one.id && other !== one);
      return h(
        "li",
        null,
        h(
          "div",
          null,
          objectAnchor(one.ns, one.id),
          badge(one.state, one.state_class),
          h("span", { class: "quiet" }, one.kind),
          one.error ? h("span", { class: "error-text" }, one.error) : null,
        ),
        below.length ? branch(below, all) : null,
      );
    }),
  );
}

export default { title: "OVC", show };
