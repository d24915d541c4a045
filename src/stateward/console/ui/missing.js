// Pages for what is not there: what was asked for, what happened to it, the nearest names, and where to go.

import { get, part } from "../core/api.js";
import { h } from "../core/dom.js";
import { link } from "../core/links.js";
import { code, empty, objectAnchor, plainList, quiet, relativeTime } from "./components.js";
import { store } from "../core/store.js";
import { stateBadge } from "./states.js";
import { operationLink } from "./operation-status.js";

/** @import {JournalEntry, ObjectView} from "../core/types.js" */

/** What fills an empty server; one that shows the demo has it already. */
export const demoAdvice = () => (store.me?.demo ? "." : [", or start the server with ", code("--demo"), "."]);

const MAX_NAMES = 5;
const MAX_CANDIDATES = 200;

/**
 * @param {string} ns
 * @param {string} id
 * @param {JournalEntry | undefined} last its last journal entry
 * @param {AbortSignal} signal
 */
export async function missingObject(ns, id, last, signal) {
  const near = await nearestObjects(ns, id, signal);
  const when = last ? ["It was removed ", relativeTime(last.at), " by ", h("b", null, last.who || last.actor), ", with ", last.op ? h("a", { href: operationLink(ns, last.op) }, last.event) : last.event, ". "] : [];
  return h(
    "div",
    { class: "column" },
    empty(
      last ? `${id} no longer exists.` : `There is no object ${id} in ${ns}, and the journal has none of this name.`,
      ...when,
      last ? h("a", { href: link("journal", [], { object: id }) }, "Journal of the object") : null,
      last ? " · " : null,
      h("a", { href: link("objects") }, "All objects"),
    ),
    near.length ? h("section", null, h("h2", null, "Did you mean"), plainList(near.map((one) => h("li", null, objectAnchor(one.ns, one.id), stateBadge(one), quiet(`${one.kind} in ${one.ns}`))))) : null,
  );
}

/** Objects with names like this one. @param {string} ns @param {string} id @param {AbortSignal} signal @returns {Promise<ObjectView[]>} */
async function nearestObjects(ns, id, signal) {
  try {
    const halves = [id.slice(0, Math.ceil(id.length / 2)), id.slice(Math.floor(id.length / 2))];
    const pages = await Promise.all(halves.map((q) => get(`/ns/${part(ns)}/objects`, { q, limit: MAX_CANDIDATES }, signal)));
    const found = new Map(pages.flatMap((page) => page.items).map((/** @type {ObjectView} */ one) => [one.id, one]));
    return nearest(id, [...found.keys()]).flatMap((name) => found.get(name) ?? []);
  } catch {
    return []; // the namespace is unknown, or the server is away
  }
}

/** A page for an address that no view has. @param {string} name @param {string[]} views */
export function missingView(name, views) {
  const near = nearest(name, views)[0];
  return [
    h("div", { class: "who-is" }, h("h1", null, "Page not found")),
    empty(
      "The console has no view of this name.",
      code(location.hash),
      " ",
      near ? h("span", null, "Did you mean ", h("a", { href: link(near) }, near), "? ") : null,
      h("a", { href: link("overview") }, "Overview"),
      " · ",
      h("a", { href: link("objects") }, "All objects"),
    ),
  ];
}

/** The known names that are most like a name, best first. @param {string} name @param {string[]} known */
export function nearest(name, known) {
  const mine = pairs(name);
  /** @param {string} other */
  const likeness = (other) => {
    const theirs = pairs(other);
    return (2 * [...mine].filter((one) => theirs.has(one)).length) / (mine.size + theirs.size || 1);
  };
  return known
    .map((other) => ({ other, like: likeness(other) }))
    .filter(({ like }) => like > 0.4)
    .sort((one, other) => other.like - one.like)
    .slice(0, MAX_NAMES)
    .map(({ other }) => other);
}

/** @param {string} name */
function pairs(name) {
  const text = ` ${name.toLowerCase()} `;
  return new Set(Array.from({ length: text.length - 1 }, (_, at) => text.slice(at, at + 2)));
}
