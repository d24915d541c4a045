// Spans of time as bars on one axis, above each other: time in which somebody worked is filled, waiting is hatched.

import { h } from "../core/dom.js";
import { objectAnchor, quiet } from "./components.js";
import { exactSpan, operationLink } from "./operation-status.js";
import { shape } from "./states.js";
import { clock, seconds } from "../core/time.js";
import { counted } from "../core/numbers.js";

/** @import {Child} from "../core/dom.js" */
/** @import {Span} from "../core/types.js" */
/** @import {Tone} from "./states.js" */

const TICKS = 4;

/** @type {Record<string, Tone>} */
const TONES = { running: "moving", waiting: "arriving", done: "good", failed: "failed", cancelled: "over", unknown: "unknown" };

/** @type {Record<string, string>} */
const WORDS = { wait: "waiting", attempt: "working", step: "step", call: "provider call", undo: "undo", part: "part" };

/**
 * @param {string} ns
 * @param {Span[]} spans
 * @param {number} first when the axis begins, in seconds
 * @param {number} last when it ends
 */
export function timeBars(ns, spans, first, last) {
  const whole = Math.max(last - first, 0.001);
  const ticks = Array.from({ length: TICKS + 1 }, (_, tick) =>
    h("span", { style: { left: `${(tick * 100) / TICKS}%` } }, tick ? `+${exactSpan((whole * tick) / TICKS)}` : clock(first)),
  );
  const axis = h("li", { class: "axis", "aria-hidden": "true" }, h("span", null), h("div", { class: "track" }, ticks), h("span", null));
  return h("ol", { class: "bars", "aria-label": "Time" }, axis, spans.map((one) => bar(ns, one, first, last, whole)));
}

/** @param {string} ns @param {Span} one @param {number} first @param {number} last @param {number} whole */
function bar(ns, one, first, last, whole) {
  const tone = one.kind === "wait" ? (one.status === "failed" ? "failed" : "idle") : (TONES[one.status] ?? "over");
  const name = h("span", { class: "name" }, shape(tone), nameOf(ns, one));
  if (one.began === null) {
    return h("li", null, name, h("div", { class: "track" }), h("span", { class: "took" }, quiet("no times")), text(one));
  }
  const from = Math.min(Math.max(seconds(one.began) - first, 0), whole);
  const to = Math.min(Math.max((one.ended ? seconds(one.ended) : last) - first, from), whole);
  const took = exactSpan(to - from);
  const about = `${WORDS[one.kind] ?? one.kind}, ${one.status}, ${took}`;
  const drawn = h("span", {
    class: `bar ${one.kind === "wait" ? "hatched" : ""} ${one.ended ? "" : "open"} tone-${tone}`,
    style: { left: `${(from / whole) * 100}%`, width: `max(3px, ${((to - from) / whole) * 100}%)` },
    title: about,
    role: "img",
    "aria-label": about,
  });
  return h("li", { class: `span-${one.kind}`, "data-status": one.status }, name, h("div", { class: "track" }, drawn), h("span", { class: "took" }, took), text(one));
}

/** @param {string} ns @param {Span} one @returns {Child | Child[]} */
function nameOf(ns, one) {
  if (one.op) return [h("a", { href: operationLink(ns, one.op) }, one.name.split(" ")[0] ?? ""), " ", objectAnchor(ns, one.object ?? "")];
  if (one.kind !== "call") return one.name;
  const slowest = one.slowest_s === null ? "" : `, the slowest ${exactSpan(one.slowest_s)}`;
  const often = one.count > 1 ? `${counted(one.count, "time")}${slowest}` : "";
  return [one.name, " ", quiet([one.target, one.provider ? `at ${one.provider}` : "", often].filter(Boolean).join(" · "))];
}

/** @param {Span} one @returns {Child} */
const text = (one) => (one.text ? h("p", { class: one.status === "failed" ? "error-text" : "quiet" }, one.text) : null);
