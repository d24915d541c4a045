// What a domain tells in its own words: read at once, again soon after something of it has changed, and now and then.

import { throttle } from "./dom.js";
import { readableNamespaces } from "./pagination.js";
import { store } from "./store.js";

/** @import {Context, Line} from "./types.js" */

const SOON = 300;
const SECONDS = 10;

/**
 * @template T
 * @param {Context} context
 * @param {string} domain
 * @param {(ns: string) => Promise<T>} read
 * @param {(told: Map<string, T>) => void} draw gets what is told, by namespace
 */
export function pollResource(context, domain, read, draw) {
  if (!store.me?.domains?.includes(domain)) return;
  const begins = `${domain}.`;
  /** @param {string} ns */
  const has = (ns) => Object.keys(store.counts[ns] ?? {}).some((kind) => kind.startsWith(begins));
  const ask = async () => {
    const found = await Promise.all(
      readableNamespaces()
        .filter(has)
        .map(async (ns) => /** @type {[string, T | null]} */ ([ns, await read(ns).catch(() => null)])),
    );
    if (context.signal.aborted) return;
    draw(new Map(found.flatMap(([ns, told]) => (told === null ? [] : [[ns, told]]))));
  };
  const soon = throttle(SOON, () => void ask());
  context.on("lines", (/** @type {Line[]} */ lines) => {
    if (lines.some((line) => line.kind.startsWith(begins))) soon();
  });
  context.every(SECONDS, ask);
}
