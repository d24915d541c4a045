// Live lists of objects: read once, updated by journal entries, and read again when objects appear.

import { reportBug } from "./api.js";
import { oncePerFrame } from "./dom.js";
import { allObjects } from "./pagination.js";
import { classOf, isNowhere } from "./store.js";

/** @import {Context, JournalEntry, ObjectView} from "./types.js" */

const REREAD_MS = 1_000;

/**
 * @param {Context} context
 * @param {string[]} kinds
 * @param {(things: ObjectView[]) => unknown} draw
 * @param {(signal: AbortSignal) => Promise<ObjectView[]>} [fetchObjects] reads the objects, if not all of these kinds
 * @returns {Promise<() => void>} reads everything again
 */
export async function liveObjects(context, kinds, draw, fetchObjects = (signal) => allOf(kinds, signal)) {
  /** @type {Map<string, ObjectView>} */
  let things = new Map();
  let asked = 0;
  const show = oncePerFrame(() => draw([...things.values()]));
  /** @param {JournalEntry} entry about an object that existed before and is not in the list */
  const others = (entry) => entry.source !== null && !isNowhere(entry.kind, entry.source);
  /** @type {Set<JournalEntry[]>} entries that arrive during a read, whose answer may be older or newer */
  const meanwhile = new Set();
  const read = async () => {
    /** @type {JournalEntry[]} */
    const came = [];
    meanwhile.add(came);
    try {
      const found = await fetchObjects(context.signal);
      things = new Map(found.map((one) => [`${one.ns}/${one.id}`, one]));
    } finally {
      meanwhile.delete(came);
    }
    apply(came);
    draw([...things.values()]);
  };
  const readSoon = () => {
    clearTimeout(asked);
    asked = window.setTimeout(() => read().catch((error) => reportBug(error, context.signal)), REREAD_MS);
  };
  /** @param {JournalEntry[]} entries */
  const apply = (entries) => {
    for (const entry of entries) {
      if (!kinds.includes(entry.kind) || entry.target === null) continue;
      const found = things.get(`${entry.ns}/${entry.object}`);
      if (isNowhere(entry.kind, entry.target)) things.delete(`${entry.ns}/${entry.object}`);
      else if (found ? entry.spec !== null || classOf(entry.kind, entry.target) !== "transitional" : !others(entry))
        readSoon();
      if (!found) continue;
      Object.assign(found, {
        state: entry.target,
        state_class: classOf(entry.kind, entry.target),
        since: entry.at,
        error: entry.reason,
      });
      show();
    }
  };
  context.on("entries", (/** @type {JournalEntry[]} */ entries) => {
    for (const came of meanwhile) came.push(...entries);
    apply(entries);
  });
  context.signal.addEventListener("abort", () => clearTimeout(asked));
  await read();
  return readSoon;
}

/** @param {string[]} kinds @param {AbortSignal} signal */
async function allOf(kinds, signal) {
  return (await Promise.all(kinds.map((kind) => allObjects({ kind }, signal)))).flat();
}

/** @param {ObjectView[]} things @returns {Map<string, number>} how many are in which state */
export function countStates(things) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const one of things) counts.set(one.state, (counts.get(one.state) ?? 0) + 1);
  return counts;
}

/**
 * @template K
 * @param {ObjectView[]} things
 * @param {(thing: ObjectView) => K} by
 * @returns {Map<K, ObjectView[]>}
 */
export function groupBy(things, by) {
  /** @type {Map<K, ObjectView[]>} */
  const groups = new Map();
  for (const one of things) {
    const group = groups.get(by(one));
    if (group) group.push(one);
    else groups.set(by(one), [one]);
  }
  return groups;
}

/** @param {Pick<ObjectView, "id" | "spec">} one @returns {string} its display name, often not its id */
export function nameOf(one) {
  return String(pick(one.spec, ["name"]) ?? one.id);
}

/** The first field that a spec or an observation has; a name may be a path with dots. @param {any} record @param {string[]} names */
export function pick(record, names) {
  for (const name of names) {
    const value = name.split(".").reduce((found, key) => found?.[key], record);
    if (value !== undefined && value !== null && value !== "") return value;
  }
  return undefined;
}
