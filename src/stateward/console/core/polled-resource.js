// A resource of a domain's own API: read at once, soon after each change in the domain, and periodically.

import { isOutage } from "./api.js";
import { keepRead } from "./live-reading.js";
import { readableNamespaces } from "./pagination.js";
import { store } from "./store.js";

/** @import {Context} from "./types.js" */

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
        .map(async (ns) => /** @type {[string, T | null]} */ ([ns, await read(ns).catch(nullUnlessOutage)])),
    );
    if (context.signal.aborted) return;
    draw(new Map(found.flatMap(([ns, resource]) => (resource === null ? [] : [[ns, resource]]))));
  };
  keepRead(context, (entry) => entry.kind.startsWith(begins), ask);
}

/** What is refused is left out; while the server is away, what is shown stays. @param {unknown} error */
function nullUnlessOutage(error) {
  if (isOutage(error)) throw error;
  return null;
}
