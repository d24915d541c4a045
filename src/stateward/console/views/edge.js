// Edge: cloudlets with their agents and versions, how far an upgrade is, and what runs on them.

import { fill, h } from "../dom.js";
import { counted, groupedBy, living, pick } from "../living.js";
import { card, code, empty, heading, legend, meter, objectAnchor, plainly, rollUp, table } from "../parts.js";
import { badge, shape } from "../states.js";
import { ago } from "../time.js";

/** @import {Context, Thing} from "../types.js" */

const KINDS = ["edge.cloudlet", "edge.clusterinst", "edge.appinst"];
const UPGRADING = /** @type {Record<string, number>} */ ({ UpdateRequested: 1, Updating: 2, Init: 2, InitOk: 3 });

/** @param {Context} context */
async function show(context) {
  const list = h("div", { class: "column" });
  fill(context.main, heading("Edge", "cloudlets, their agents, and what runs there"), list);
  await living(context, KINDS, (things) => {
    const cloudlets = things.filter((one) => one.kind === "edge.cloudlet");
    const below = groupedBy(
      things.filter((one) => one.kind !== "edge.cloudlet"),
      (one) => cloudletOf(one, things),
    );
    fill(
      list,
      cloudlets.length
        ? [
            card(
              "Cloudlets",
              versions(cloudlets),
              table(
                "Cloudlets",
                ["cloudlet", "state", "agent", "version", "upgrade", "runs there", "since"],
                cloudlets.map((one) => row(one, below.get(one.id) ?? [])),
              ),
            ),
            h(
              "div",
              { class: "grid" },
              cloudlets.map((one) => runs(one, below.get(one.id) ?? [])),
            ),
          ]
        : empty("There is no cloudlet yet.", "Make one: ", code("stateward create edge.cloudlet/oslo")),
    );
  });
}

/** @param {Thing} one @param {Thing[]} things @returns {string} the cloudlet that something runs on */
function cloudletOf(one, things) {
  const above = things.find((other) => other.ns === one.ns && other.id === one.parent);
  if (above && above.kind !== "edge.cloudlet") return cloudletOf(above, things);
  return above?.id ?? String(pick(one.spec, ["cloudlet", "region"]) ?? "");
}

/** @param {Thing} one */
function version(one) {
  return String(pick(one.seen, ["version", "agent.version"]) ?? "");
}

/** @param {Thing} one */
function wanted(one) {
  return String(pick(one.seen, ["target"]) ?? pick(one.spec, ["version", "target_version"]) ?? "");
}

/** @param {Thing[]} cloudlets */
function versions(cloudlets) {
  const known = groupedBy(
    cloudlets.filter((one) => version(one)),
    version,
  );
  return [...known].map(([name, some]) => `${name}: ${some.length}`).join(" · ") || "no agent has told its version";
}

/** @param {Thing} one @param {Thing[]} below */
function row(one, below) {
  const connected =
    one.state !== "Offline" && Number(pick(one.seen, ["serving"]) ?? (one.state === "Ready" ? 1 : 0)) > 0;
  const mine = version(one);
  const target = wanted(one);
  return [
    objectAnchor(one.ns, one.id),
    badge(one.state, one.state_class),
    h("span", { class: "fine" }, shape(connected ? "good" : "unknown"), agent(one, connected)),
    mine && target && mine !== target ? `${mine} → ${target}` : mine || target || "?",
    upgrade(one, mine, target),
    `${below.length}`,
    ago(one.since),
  ];
}

/** @param {Thing} one @param {boolean} connected */
function agent(one, connected) {
  const controller = String(pick(one.seen, ["controller"]) ?? "");
  return connected ? `connected${controller ? ` to ${plainly(controller)}` : ""}` : "not connected";
}

/** @param {Thing} one @param {string} mine @param {string} target */
function upgrade(one, mine, target) {
  const step = UPGRADING[one.state];
  if (step) return meter(step, 4, `Upgrade of ${one.id}`, "moving");
  if (one.state === "UpdateError") return h("span", { class: "error-text" }, one.error ?? "failed");
  if (!mine) return h("span", { class: "quiet" }, "no agent has called");
  return target && mine !== target ? "waits to be asked" : "up to date";
}

/** @param {Thing} one @param {Thing[]} below */
function runs(one, below) {
  const kinds = groupedBy(below, (thing) => thing.kind);
  const parts = [...kinds].map(([kind, some]) =>
    h(
      "div",
      { class: "column" },
      h("h3", null, kind),
      rollUp(kind, counted(some)),
      legend(kind, counted(some)),
      h(
        "ul",
        { class: "plain" },
        some
          .slice(0, 12)
          .map((thing) => h("li", null, objectAnchor(thing.ns, thing.id), badge(thing.state, thing.state_class))),
      ),
    ),
  );
  return card(
    one.id,
    [badge(one.state, one.state_class)],
    parts.length ? parts : h("p", { class: "quiet" }, "Nothing runs there."),
  );
}

export default { title: "Edge", show };
