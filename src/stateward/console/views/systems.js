// Systems: the tree of services with their states, and the tree of locks: who holds what, and who waits.

import { get, part } from "../api.js";
import { fill, h } from "../dom.js";
import { living, pick } from "../living.js";
import { card, code, empty, heading, objectAnchor, short } from "../parts.js";
import { badge } from "../states.js";
import { span, seconds } from "../time.js";

/** @import {Context, Lock, Operation, Thing} from "../types.js" */

const KINDS = ["systems.system", "systems.service", "systems.nodepool", "systems.deploy", "systems.teardown"];
const CHANGES = ["systems.deploy", "systems.teardown"];

/** @param {Context} context */
async function show(context) {
  const list = h("div", { class: "column" });
  /** @type {Map<string, HTMLElement>} */
  const locks = new Map();
  /** @type {Map<string, Promise<Operation>>} */
  const operations = new Map();
  /** @type {Thing[]} */
  let systems = [];
  fill(context.main, heading("Systems", "trees of services, changed under intention locks"), list);
  await living(context, KINDS, (things) => {
    systems = things.filter((one) => one.kind === "systems.system");
    fill(
      list,
      systems.length
        ? systems.map((one) => system(one, things, locks))
        : empty("There is no system yet.", "Make one: ", code("stateward create systems.system/billing")),
    );
  });
  context.every(2, () => Promise.all(systems.map((one) => showLocks(one, locks, operations, context.signal))));
}

/** @param {Thing} one @param {Thing[]} things @param {Map<string, HTMLElement>} locks */
function system(one, things, locks) {
  const key = `${one.ns}/${one.id}`;
  const place = locks.get(key) ?? h("div", { class: "locks-tree" }, h("p", { class: "quiet" }, "…"));
  locks.set(key, place);
  const changes = things.filter(
    (other) =>
      CHANGES.includes(other.kind) &&
      other.ns === one.ns &&
      (other.parent === one.id || pick(other.spec, ["system"]) === one.id),
  );
  return h(
    "div",
    { class: "columns", "data-system": one.id },
    card(
      one.id,
      [badge(one.state, one.state_class), one.ns],
      h("div", { class: "tree" }, branch([one], things)),
      one.error ? h("p", { class: "error-text" }, one.error) : null,
    ),
    h(
      "div",
      { class: "column" },
      card(`Locks of ${one.id}`, "who holds what, who waits", place),
      changes.length
        ? card(`Changes of ${one.id}`, "", h("ul", { class: "plain" }, changes.slice(-12).reverse().map(change)))
        : null,
    ),
  );
}

/** @param {Thing} one */
function change(one) {
  return h(
    "li",
    null,
    objectAnchor(one.ns, one.id),
    badge(one.state, one.state_class),
    h("span", { class: "quiet" }, String(pick(one.spec, ["path"]) ?? "")),
  );
}

/** @param {Thing[]} some @param {Thing[]} all @returns {HTMLElement} */
function branch(some, all) {
  return h(
    "ul",
    null,
    some.map((one) => {
      const below = all.filter(
        (other) => other.ns === one.ns && other.parent === one.id && !CHANGES.includes(other.kind),
      );
      const have = pick(one.seen, ["ready", "instances"]);
      const want = pick(one.spec, ["service.instances", "instances", "replicas"]);
      const size = want === undefined ? "" : `${typeof have === "number" ? have : "?"} of ${want} instances`;
      return h(
        "li",
        null,
        h(
          "div",
          null,
          objectAnchor(one.ns, one.id),
          badge(one.state, one.state_class),
          h("span", { class: "quiet" }, one.kind === "systems.service" ? size : one.kind),
        ),
        below.length ? branch(below, all) : null,
      );
    }),
  );
}

// --- locks -----------------------------------------------------------------------------------------------------------

/** @param {Thing} one @param {Map<string, HTMLElement>} places @param {Map<string, Promise<Operation>>} operations @param {AbortSignal} signal */
async function showLocks(one, places, operations, signal) {
  const place = places.get(`${one.ns}/${one.id}`);
  if (!place) return;
  /** @type {Lock[]} */
  const found = await get(`/ns/${part(one.ns)}/locks/${part(one.id)}`, {}, signal);
  if (!found.length) {
    fill(place, h("p", { class: "quiet" }, "Nothing is locked: any part can be changed."));
    return;
  }
  const known = await Promise.all(found.map((lock) => operation(one.ns, lock.op, operations, signal)));
  const paths = [...new Set(found.map((lock) => lock.path))].sort();
  fill(
    place,
    h(
      "ul",
      null,
      paths.map((path) =>
        h(
          "li",
          { style: { "padding-left": `${path.split("/").filter(Boolean).length * 18}px` } },
          h("span", { class: "path" }, path),
          found.map((lock, number) => (lock.path === path ? held(lock, known[number] ?? null, one.ns) : null)),
        ),
      ),
    ),
  );
}

/** @param {string} ns @param {string} op @param {Map<string, Promise<Operation>>} operations @param {AbortSignal} signal */
function operation(ns, op, operations, signal) {
  const asked = operations.get(op) ?? get(`/ns/${part(ns)}/operations/${part(op)}`, {}, signal);
  operations.set(op, asked);
  return asked.catch(() => (operations.delete(op), null));
}

/** @param {Lock} lock @param {Operation | null} by @param {string} ns */
function held(lock, by, ns) {
  return h(
    "span",
    { class: lock.waiting ? "lock waiting" : "lock" },
    h("span", { class: "mode", title: MODES[lock.mode] ?? "" }, lock.mode),
    lock.waiting ? "waits:" : "held:",
    by ? objectAnchor(ns, by.object) : h("code", null, short(lock.op)),
    h(
      "span",
      { class: "quiet" },
      by ? `${by.action} by ${by.who || by.actor}, ${span(Date.now() / 1000 - seconds(by.created))}` : "",
    ),
  );
}

/** @type {Record<string, string>} */
const MODES = {
  IS: "means to read below",
  IX: "means to change below",
  S: "reads",
  SIX: "reads, and changes below",
  X: "changes",
};

export default { title: "Systems", show };
