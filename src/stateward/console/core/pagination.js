// Pages of objects, over one namespace or all chosen ones.

import { get, part } from "./api.js";
import { chosenNamespaces, classOf, tally } from "./store.js";

/** @import {ObjectView, Timer} from "./types.js" */

/** @typedef {{kind?: string, state?: string, label?: string[], q?: string, parent?: string}} Filter */

/** Pages of the matching objects, one namespace after the other. */
export class Pager {
  /** @param {string[]} namespaces @param {Filter} filter @param {number} [size] */
  constructor(namespaces, filter, size = 200) {
    this.rest = [...namespaces];
    this.filter = filter;
    this.size = size;
    /** @type {string | null} */
    this.after = null;
  }

  get done() {
    return this.rest.length === 0;
  }

  /** @param {AbortSignal} [signal] @returns {Promise<ObjectView[]>} */
  async next(signal) {
    /** @type {ObjectView[]} */
    const found = [];
    while (!this.done && found.length < this.size) {
      const ns = this.rest[0] ?? "";
      const page = await get(
        `/ns/${part(ns)}/objects`,
        { ...this.filter, after: this.after, limit: this.size - found.length },
        signal,
      );
      found.push(...page.items);
      this.after = page.next;
      if (page.next === null) this.rest.shift();
    }
    return found;
  }
}

/** All objects of a kind, up to a limit. @param {Filter} filter @param {AbortSignal} [signal] @param {number} [most] */
export async function allObjects(filter, signal, most = 2_000) {
  const pager = new Pager(readableNamespaces(), filter, 1_000);
  /** @type {ObjectView[]} */
  const found = [];
  while (!pager.done && found.length < most) found.push(...(await pager.next(signal)));
  return found;
}

/** @returns {string[]} the chosen namespaces that can be part of an address */
export function readableNamespaces() {
  return chosenNamespaces().filter((ns) => !ns.startsWith("("));
}

/** The next timers of all chosen namespaces. @param {number} limit of each @param {AbortSignal} signal @returns {Promise<Timer[]>} */
export async function allTimers(limit, signal) {
  const pages = readableNamespaces().map((ns) => get(`/ns/${part(ns)}/timers`, { limit }, signal));
  return (await Promise.all(pages)).flat();
}

/** All objects in a transitional state. @param {AbortSignal} [signal] @returns {Promise<ObjectView[]>} */
export async function transitionalObjects(signal) {
  const found = [];
  for (const [kind, counts] of tally()) {
    const states = [...counts.keys()].filter((state) => classOf(kind, state) === "transitional");
    if (states.length) found.push(...(await allObjects({ kind, state: states.join(",") }, signal, 500)));
  }
  return found;
}
