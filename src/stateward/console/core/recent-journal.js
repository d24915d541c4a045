// The newest matching journal entries. The journal is read forwards, so the start moves back until there are enough.

import { get } from "./api.js";
import { listen, store } from "./store.js";

/** @import {Query} from "./api.js" */
/** @import {JournalEntry} from "./types.js" */

/**
 * @param {Query} filter
 * @param {number} enough
 * @param {AbortSignal} [signal]
 * @returns {Promise<JournalEntry[]>} oldest first
 */
export async function recentJournal(filter, enough, signal) {
  await streaming();
  for (let reach = 4 * enough; ; reach *= 16) {
    const from = Math.max(0, store.seq - reach);
    const found = await everything({ ...filter }, from, enough, signal);
    if (found.length >= enough || from === 0) return found.slice(-enough);
  }
}

/** @param {Query} filter @param {number} after @param {number} enough @param {AbortSignal} [signal] */
async function everything(filter, after, enough, signal) {
  /** @type {JournalEntry[]} */
  let found = [];
  for (let next = String(after); next !== null;) {
    const page = await get("/journal", { ...filter, after: next, limit: 1_000 }, signal);
    found = [...found, ...page.items].slice(-enough);
    next = page.next;
  }
  return found;
}

/** Wait until the stream has sent the end of the journal; without it, everything would have to be read. */
function streaming() {
  if (store.seq > 0) return undefined;
  return new Promise((resolve) => {
    const stop = listen("connection", () => (stop(), resolve(undefined)));
  });
}
