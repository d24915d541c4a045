// A reading that is kept up to date: made at once, soon after changes, and periodically.
//
// Changes may come by the hundred in a second. The next reading waits until the last one has ended, and then ten times as
// long as it took: a page never costs the server more than a tenth of its time.

import { reportBug } from "./api.js";

/** @import {Context, JournalEntry} from "./types.js" */

const MIN_PAUSE_MS = 300;
const SHARE = 10;
const INTERVAL_S = 10;

/**
 * @param {Context} context
 * @param {(entry: JournalEntry) => boolean} concerns whether a journal entry makes a new reading necessary
 * @param {() => Promise<unknown>} read
 */
export function keepRead(context, concerns, read) {
  let asked = false;
  let pause = MIN_PAUSE_MS;
  const run = async () => {
    const begun = performance.now();
    try {
      await read();
    } catch (error) {
      reportBug(error, context.signal);
    }
    pause = Math.max(MIN_PAUSE_MS, SHARE * (performance.now() - begun));
  };
  context.on("entries", (/** @type {JournalEntry[]} */ entries) => {
    if (asked || !entries.some(concerns)) return;
    asked = true;
    setTimeout(async () => {
      if (!context.signal.aborted) await run();
      asked = false;
    }, pause);
  });
  context.every(INTERVAL_S, run);
}
