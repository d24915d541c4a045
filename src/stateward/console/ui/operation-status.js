// The look of operations: their status with a shape, and how far their parts are.

import { h } from "../core/dom.js";
import { link } from "../core/links.js";
import { meter, quiet } from "./components.js";
import { shape } from "./states.js";
import { seconds, span } from "../core/time.js";
import { numberText } from "../core/numbers.js";

/** @import {Operation} from "../core/types.js" */
/** @import {Tone} from "./states.js" */

export const STATUSES = ["waiting", "running", "succeeded", "failed", "cancelled"];

/** @type {Record<string, Tone>} */
const TONES = { waiting: "arriving", running: "moving", succeeded: "good", failed: "failed", cancelled: "over" };

/** @param {Operation} one */
export const isOpen = (one) => one.status === "waiting" || one.status === "running";

/** @param {string} status */
export const statusTone = (status) => TONES[status] ?? "over";

/** The status of an entry: one with parts runs until all of them have ended, and has failed if one of them has. @param {Operation} one */
export function statusOf(one) {
  const parts = one.parts ?? {};
  if (parts.running || (parts.waiting && one.status !== "waiting")) return "running";
  return !isOpen(one) && parts.failed ? "failed" : one.status;
}

/** @param {string} status */
export function statusBadge(status) {
  return h("span", { class: `badge tone-${statusTone(status)}` }, shape(statusTone(status)), status);
}

/** @param {string} ns @param {string} id */
export const operationLink = (ns, id) => link("operation", [ns, id]);

/** How many parts an operation has. @param {Operation} one */
export const countParts = (one) => Object.values(one.parts ?? {}).reduce((sum, count) => sum + count, 0);

/** How far the parts are: a meter, and their numbers by status. @param {Operation} one */
export function partsProgress(one) {
  const total = countParts(one);
  if (!total) return null;
  const { waiting = 0, running = 0, failed = 0 } = one.parts ?? {};
  const ended = total - waiting - running;
  const words = [`${numberText(ended)} of ${numberText(total)}`, failed ? `${numberText(failed)} failed` : ""];
  return h("span", { class: "part-progress" }, meter(ended, total, "Parts that have ended", failed ? "failed" : "good"), quiet(words.filter(Boolean).join(", ")));
}

/** How long an operation has taken, from its acceptance. @param {Operation} one */
export function duration(one) {
  return exactSpan((one.ended ? seconds(one.ended) : Date.now() / 1000) - seconds(one.created));
}

/** A span that is exact below ten seconds. @param {number} size in seconds */
export function exactSpan(size) {
  if (size < 1) return `${Math.max(0, Math.round(size * 1000))} ms`;
  return size < 10 ? `${size.toFixed(1)} s` : span(size);
}
