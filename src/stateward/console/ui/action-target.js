// What an action is asked of: one object, chosen objects, or all that match a filter; each as requests of the API.

import { objectPath, part } from "../core/api.js";
import { nameOf } from "../core/live-objects.js";
import { store } from "../core/store.js";
import { countWords } from "./kind-words.js";

/** @import {ObjectView} from "../core/types.js" */
/** @import {Filter} from "../core/pagination.js" */

/** @typedef {{ns: string, name: string, path: string, body: any}} ActionPart one request: on one object, or on many of a namespace */

/**
 * @typedef {object} ActionTarget
 * @property {string} name for titles
 * @property {string} ns empty if there are several
 * @property {string[]} kinds
 * @property {ObjectView | null} thing if it is one object
 * @property {(action: string) => ActionPart[]} parts
 */

/** @param {ObjectView} thing @returns {ActionTarget} */
export function objectTarget(thing) {
  return { name: nameOf(thing), ns: thing.ns, kinds: [thing.kind], thing, parts: (action) => [objectPart(thing, action)] };
}

/** @param {{ns: string, id: string}} one @param {string} action @returns {ActionPart} */
const objectPart = (one, action) => ({ ns: one.ns, name: one.id, path: `${objectPath(one)}/actions/${part(action)}`, body: {} });

/** @param {string} ns @param {any} body which objects, as a group action names them @param {string} action @returns {ActionPart} */
const groupPart = (ns, body, action) => ({ ns, name: ns, path: `/ns/${part(ns)}/actions/${part(action)}`, body });

/** @param {string} kind @param {string} action @returns {boolean} whether the action on a composite is one on all of its parts */
export const isOnParts = (kind, action) => store.kinds.get(kind)?.composite_actions?.includes(action) ?? false;

/** @param {Iterable<string>} names @returns {string} the only one; empty if there are several */
function onlyOne(names) {
  const [first = "", ...others] = new Set(names);
  return others.length ? "" : first;
}

/** Composites are asked one by one, all others together. @param {{ns: string, id: string, kind: string}[]} things @returns {ActionTarget} */
export function listTarget(things) {
  const parts = (/** @type {string} */ action) => {
    const bodies = new Map();
    for (const { ns, id, kind } of things)
      if (!isOnParts(kind, action)) bodies.set(ns, { objects: [...(bodies.get(ns)?.objects ?? []), id] });
    return [
      ...things.filter((one) => isOnParts(one.kind, action)).map((one) => objectPart(one, action)),
      ...[...bodies].map(([ns, body]) => groupPart(ns, body, action)),
    ];
  };
  const kinds = [...new Set(things.map((one) => one.kind))];
  const name = countWords(onlyOne(kinds) || null, things.length);
  return { name, ns: onlyOne(things.map((one) => one.ns)), kinds, thing: null, parts };
}

/** @param {Filter} filter @returns {any} as the body of a group action names it */
const selectorOf = (filter) => ({
  ...(filter.kind ? { kind: filter.kind } : {}),
  ...(filter.parent ? { parent: filter.parent } : {}),
  ...(filter.state ? { states: filter.state.split(",") } : {}),
  ...(filter.q ? { q: filter.q } : {}),
  ...(filter.label?.length ? { labels: Object.fromEntries(filter.label.map((one) => one.split("=", 2))) } : {}),
});

/** @param {string[]} namespaces @param {Filter[]} filters no object matches two @param {string[]} kinds @param {number} total @returns {ActionTarget} */
export function filterTarget(namespaces, filters, kinds, total) {
  const selectors = filters.map(selectorOf).flatMap((one) => (Object.keys(one).length ? [one] : kinds.map((kind) => ({ kind })))); // the API refuses an empty one
  return {
    name: `all ${countWords(onlyOne(kinds) || null, total)} that match`,
    ns: onlyOne(namespaces),
    kinds,
    thing: null,
    parts: (action) => namespaces.flatMap((ns) => selectors.map((one) => groupPart(ns, { selector: one }, action))),
  };
}
