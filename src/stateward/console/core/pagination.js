// Pages of objects, over one namespace or all chosen ones.

import { get, part } from "./api.js";
import { ALL, chosenNamespaces, classOf, store, tally } from "./store.js";

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

/** Pages of the matching objects of the chosen namespaces, in an order that the server makes over all of them. */
export class SortedPager {
  /** @param {Filter} filter @param {string} sort such as `-since`; ids without one @param {number} [size] */
  constructor(filter, sort, size = 200) {
    this.path = store.ns === ALL ? "/objects" : `/ns/${part(store.ns)}/objects`;
    this.query = { ...filter, sort, limit: size };
    /** @type {string | null | undefined} */
    this.after = undefined;
  }

  get done() {
    return this.after === null;
  }

  /** @param {AbortSignal} [signal] @returns {Promise<ObjectView[]>} */
  async next(signal) {
    const page = await get(this.path, { ...this.query, after: this.after }, signal);
    this.after = page.next;
    return page.items;
  }
}

/** All rows of a list of a domain's own API. @param {string} path @param {"id" | "name"} [key] the field that pages continue behind @returns {Promise<any[]>} */
export async function allRows(path, key = "id") {
  const rows = [];
  const limit = 1_000;
  for (let page = await get(path, { limit }); ; page = await get(path, { limit, after: rows.at(-1)[key] })) {
    rows.push(...page);
    if (page.length < limit) return rows;
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

/**
 * The objects in a transitional state that entered it first, by their queues.
 *
 * Thousands may be under way: pages are read until there are enough queues, and a queue may have more objects.
 * @param {number} most how many queues @param {AbortSignal} [signal] @returns {Promise<ObjectView[][]>}
 */
export async function oldestQueues(most, signal) {
  /** @type {ObjectView[]} */
  const found = [];
  for (const [kind, counts] of tally()) {
    const states = [...counts.keys()].filter((state) => classOf(kind, state) === "transitional");
    const pager = new SortedPager({ kind, state: states.join(",") }, "since", 4 * most);
    const names = new Set();
    while (states.length && !pager.done && names.size <= most) {
      const page = await pager.next(signal);
      found.push(...page);
      for (const one of page) names.add(`${one.ns}/${one.queue}`);
    }
  }
  found.sort((a, b) => a.since.localeCompare(b.since));
  /** @type {Map<string, ObjectView[]>} */
  const queues = new Map();
  for (const one of found) {
    const name = `${one.ns}/${one.queue}`;
    queues.set(name, [...(queues.get(name) ?? []), one]);
  }
  return [...queues.values()].slice(0, most + 1);
}
