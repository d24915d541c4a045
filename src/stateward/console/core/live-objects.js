// Objects of some kinds, kept as they are now: read once, changed by the journal's lines, read again when others come.

import { oncePerFrame } from "./dom.js";
import { allObjects } from "./pagination.js";
import { classOf, isNowhere } from "./store.js";

/** @import {Context, Line, Thing} from "./types.js" */

const AGAIN = 1_000;

/**
 * @param {Context} context
 * @param {string[]} kinds
 * @param {(things: Thing[]) => unknown} draw
 * @param {(signal: AbortSignal) => Promise<Thing[]>} [reading] how they are read, if not all of these kinds
 * @returns {Promise<() => void>} reads everything again
 */
export async function liveObjects(context, kinds, draw, reading = (signal) => allOf(kinds, signal)) {
  /** @type {Map<string, Thing>} */
  let things = new Map();
  let asked = 0;
  const show = oncePerFrame(() => draw([...things.values()]));
  /** @param {Line} line about what was there before, and was not read */
  const others = (line) => line.source !== null && !isNowhere(line.kind, line.source);
  /** @type {Set<Line[]>} what has come while something is being read: the answer may be older, or newer */
  const meanwhile = new Set();
  const read = async () => {
    /** @type {Line[]} */
    const came = [];
    meanwhile.add(came);
    try {
      const found = await reading(context.signal);
      things = new Map(found.map((one) => [`${one.ns}/${one.id}`, one]));
    } finally {
      meanwhile.delete(came);
    }
    apply(came);
    draw([...things.values()]);
  };
  const readSoon = () => {
    clearTimeout(asked);
    asked = window.setTimeout(() => read().catch(() => {}), AGAIN);
  };
  /** @param {Line[]} lines */
  const apply = (lines) => {
    for (const line of lines) {
      if (!kinds.includes(line.kind) || line.target === null) continue;
      const found = things.get(`${line.ns}/${line.object}`);
      if (isNowhere(line.kind, line.target)) things.delete(`${line.ns}/${line.object}`);
      else if (found ? line.spec !== null || classOf(line.kind, line.target) !== "transitional" : !others(line))
        readSoon();
      if (!found) continue;
      Object.assign(found, {
        state: line.target,
        state_class: classOf(line.kind, line.target),
        since: line.at,
        error: line.reason,
      });
      show();
    }
  };
  context.on("lines", (/** @type {Line[]} */ lines) => {
    for (const came of meanwhile) came.push(...lines);
    apply(lines);
  });
  context.signal.addEventListener("abort", () => clearTimeout(asked));
  await read();
  return readSoon;
}

/** @param {string[]} kinds @param {AbortSignal} signal */
async function allOf(kinds, signal) {
  return (await Promise.all(kinds.map((kind) => allObjects({ kind }, signal)))).flat();
}

/** @param {Thing[]} things @returns {Map<string, number>} how many are in which state */
export function countStates(things) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const one of things) counts.set(one.state, (counts.get(one.state) ?? 0) + 1);
  return counts;
}

/**
 * @template K
 * @param {Thing[]} things
 * @param {(thing: Thing) => K} by
 * @returns {Map<K, Thing[]>}
 */
export function groupBy(things, by) {
  /** @type {Map<K, Thing[]>} */
  const groups = new Map();
  for (const one of things) {
    const group = groups.get(by(one));
    if (group) group.push(one);
    else groups.set(by(one), [one]);
  }
  return groups;
}

/** @param {Thing} one @returns {string} what people call it: often not its id */
export function nameOf(one) {
  return String(pick(one.spec, ["name"]) ?? one.id);
}

/** The first of some fields that a spec or a sighting has, however deep its name says. @param {any} record @param {string[]} names */
export function pick(record, names) {
  for (const name of names) {
    const value = name.split(".").reduce((found, key) => found?.[key], record);
    if (value !== undefined && value !== null && value !== "") return value;
  }
  return undefined;
}
