// Outages: the server does not answer, or cannot reach its database. One mechanism for all views.
//
// The API client reports each call that failed for this reason. From then on the server is asked again, with growing
// pauses, until it answers; meanwhile nothing is polled. A view that has missed something is shown again then (routes.js),
// any other one stays as it is: the stream continues without a gap. A pause shrinks only after a calm time, so that a
// view whose reads always fail is not shown again and again.
//   outage   an outage has begun or ended     back   the server answers again

import { address, isOutage, isUnavailable, session, whyAway } from "./api.js";
import { notify, store } from "./store.js";

const PAUSE_MIN_MS = 250;
const PAUSE_MAX_MS = 15_000;
const CALM_MS = 30_000;
const PATIENCE_MS = 10_000;

/** Since when the server does not answer (0: it answers), and what is known about the reason. */
export const outage = { since: 0, why: "" };

let pause = 0;
let failedLast = 0;
let timer = 0;
let hasMissed = false;

/** Forget what the last view has missed. */
export const beginView = () => void (hasMissed = false);

/** @param {string} why @param {boolean} isLoad whether the current view lacks something now */
session.onSilence = (why, isLoad) => {
  hasMissed ||= isLoad;
  fail(why);
};

/** @param {string} why */
function fail(why) {
  const now = Date.now();
  if (now - failedLast > CALM_MS) pause = 0;
  failedLast = now;
  outage.why = why;
  if (!timer) {
    timer = window.setTimeout(askAgain, pause * (0.75 + Math.random() / 2));
    pause = Math.min(Math.max(2 * pause, PAUSE_MIN_MS), PAUSE_MAX_MS);
  }
  if (!outage.since) {
    outage.since = now;
    notify("outage");
  }
}

/** Ask the server now whether it answers. */
export async function askAgain() {
  clearTimeout(timer);
  timer = 0;
  try {
    // The journal comes from the database; a refusal is an answer, too.
    const { status } = await fetch(address("/journal", { after: store.seq, limit: 1 }), { signal: AbortSignal.timeout(PATIENCE_MS) });
    if (isUnavailable(status)) fail(whyAway(status));
    else end();
  } catch {
    fail(whyAway(0));
  }
}

function end() {
  if (!outage.since && !hasMissed) return;
  outage.since = 0;
  outage.why = "";
  notify("outage");
  notify("back", hasMissed);
}

window.addEventListener("online", askAgain);
// A call that nobody waits for fails, too; the banner tells why.
window.addEventListener("unhandledrejection", (event) => isOutage(event.reason) && event.preventDefault());
window.addEventListener("offline", askAgain);
document.addEventListener("visibilitychange", () => {
  if (outage.since && !document.hidden) askAgain();
});
