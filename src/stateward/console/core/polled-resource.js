// A resource of a domain's own API: read at once, soon after each change in the domain, and periodically.

import { throttle } from "./dom.js";
import { readableNamespaces } from "./pagination.js";
import { store } from "./store.js";

/** @import {Context, JournalEntry} from "./types.js" */

const DEBOUNCE_MS = 300;
const INTERVAL_S = 10;

/**
 * @template T
 * @param {Context} context
 * @param {string} domain
 * @param {(ns: string) => Promise<T>} read
 * @param {(resource: Map<string, T>) => void} draw gets the resource of each namespace
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
    draw(new Map(found.flatMap(([ns, resource]) => (resource === null ? [] : [[ns, resource]]))));
  };
  const soon = throttle(DEBOUNCE_MS, () => void ask());
  context.on("entries", (/** @type {JournalEntry[]} */ entries) => {
    if (entries.some((entry) => entry.kind.startsWith(begins))) soon();
  });
  context.every(INTERVAL_S, ask);
}
