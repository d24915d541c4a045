// Protection against removal: a flag of an object, which holds for its parts too, or of a namespace. Nobody removes what
// is protected, not even with force, until the flag is lifted; whoever lifts it types the name.

import { get, objectPath, part, Problem, send } from "../core/api.js";
import { fill, h, svg } from "../core/dom.js";
import { may } from "../core/store.js";
import { note, objectAnchor, table } from "./components.js";
import { showForm } from "./form.js";
import { attempt } from "./problems.js";

/** @import {ObjectView, ProblemFields} from "../core/types.js" */

const SHIELD = "M5 .4 9.2 1.9V5C9.2 7.4 7.4 9 5 9.8 2.6 9 .8 7.4.8 5V1.9Z";

/** @typedef {{path: string, name: string, reason: string, right: string}} Flag the protection of an object or a namespace */

/** @param {ObjectView} thing @returns {Flag} */
const objectFlag = (thing) => ({ path: `${objectPath(thing)}/protection`, name: thing.id, reason: thing.protected ?? "", right: "act" });

/** @param {string} ns @param {string} reason @returns {Flag} */
const namespaceFlag = (ns, reason) => ({ path: `/ns/${part(ns)}/protection`, name: ns, reason, right: "govern" });

/** What protects an object: its own flag, or that of its namespace or of an ancestor. @typedef {NonNullable<ProblemFields["protection"]>} Protection */

/** @param {{ns: string, id: string}} thing @param {AbortSignal} signal @returns {Promise<Protection | null>} */
export async function readProtection(thing, signal) {
  return (await get(`${objectPath(thing)}/protection`, {}, signal)).protection;
}

/** @param {Protection | null} protection @param {string} id of the object that it protects @returns {string} where the flag is; empty if it is the object's own */
const holderOf = (protection, id) => (!protection || protection.object === id ? "" : (protection.object ?? `namespace ${protection.ns}`));

/** The shield of an object that something protects. @param {Protection | null} protection @param {string} id */
export const effectiveBadge = (protection, id) => protectedBadge(protection?.reason, holderOf(protection, id));

/** A shield, if an object or a namespace is protected. @param {string | undefined} reason `yes` without one @param {string} [holder] */
export function protectedBadge(reason, holder = "") {
  if (!reason) return null;
  const about = reason === "yes" ? "protected against deletion" : `protected against deletion: ${reason}`;
  const shield = svg("svg", { class: "shape", viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("path", { d: SHIELD }));
  return h("span", { class: "badge protected", title: about }, shield, holder ? `protected by ${holder}` : "protected");
}

/** The protection of an object, with a button that sets or lifts it. @param {ObjectView} thing @param {Protection | null} protection @param {() => void} then */
export function protectionPanel(thing, protection, then) {
  if (protection && holderOf(protection, thing.id)) return liftPanel({ protection }, then);
  const reason = thing.protected ?? "";
  const text = reason
    ? ["This object and its parts cannot be deleted", reason === "yes" ? "." : `: ${reason}`]
    : ["This object can be deleted, unless its parent or its namespace is protected."];
  return h("div", { class: "row" }, protectedBadge(reason), note(...text), flagButton(objectFlag(thing), then));
}

/** The protection of each namespace, for administrators. @param {HTMLElement} place @param {string[]} names @param {AbortSignal} signal */
export async function showNamespaceProtection(place, names, signal) {
  const again = () => attempt(() => showNamespaceProtection(place, names, signal));
  const found = await Promise.all(names.map((ns) => get(`/ns/${part(ns)}/protection`, {}, signal)));
  const rows = found.map(({ ns, protected: reason }) => [
    h("b", null, ns),
    protectedBadge(reason) ?? "allowed",
    reason === "yes" ? "" : reason,
    flagButton(namespaceFlag(ns, reason), again),
  ]);
  fill(place, table("Protection of namespaces", ["namespace", "deletion", "reason", ""], rows));
}

/** @param {Flag} flag @param {() => void} then */
function flagButton(flag, then) {
  if (!may(flag.right)) return null;
  return flag.reason ? liftFlag(flag, then) : h("button", { onclick: () => askToProtect(flag, then) }, "Protect…");
}

/** @param {Flag} flag @param {() => void} then */
function askToProtect(flag, then) {
  const fields = [{ name: "reason", label: "reason", optional: true, hint: "holds the customers' data" }];
  const about = "Deletion is refused, also of everything below, until the protection is lifted.";
  showForm(`Protect ${flag.name}`, about, fields, "Protect", async ({ reason }) => {
    await send("PUT", flag.path, { protected: true, reason: reason ?? "" });
    then();
  });
}

/** @param {Flag} flag @param {() => void} then */
function liftFlag(flag, then) {
  const fields = [{ name: "name", label: `to confirm, type ${flag.name}` }];
  const about = flag.reason === "yes" ? "" : `Reason: ${flag.reason}`;
  const lift = async (/** @type {Record<string, string>} */ { name }) => {
    if (name !== flag.name)
      throw new Problem({ title: "Wrong name", status: 0, code: "page", field: "name", detail: `Name must be ${flag.name}` });
    await send("PUT", flag.path, { protected: false });
    then();
  };
  const ask = () => showForm(`Lift the protection of ${flag.name}`, about, fields, "Lift the protection", lift);
  return h("button", { type: "button", onclick: ask }, "Lift the protection…");
}

/** Where the flag is that refuses an action, and a button that lifts it, for those who may. @param {Pick<ProblemFields, "protection">} problem @param {() => void} then */
export function liftPanel({ protection }, then) {
  if (!protection) return null;
  const { ns, object, reason } = protection;
  const flag = object === null ? namespaceFlag(ns, reason) : objectFlag(/** @type {any} */ ({ ns, id: object, protected: reason }));
  const where = object === null ? h("b", null, `the namespace ${ns}`) : objectAnchor(ns, object);
  return h(
    "div",
    { class: "row" },
    protectedBadge(reason),
    h("span", null, "Protection is set on ", where, "."),
    may(flag.right) ? liftFlag(flag, then) : note(`To lift the protection, a token needs the right to ${flag.right}.`),
  );
}
