// The look of states: a tone and a shape each, so that colour is never the only difference.

import { h, svg } from "../core/dom.js";

/** @import {StateClass} from "../core/types.js" */

/** @typedef {"good" | "idle" | "arriving" | "moving" | "leaving" | "failed" | "unknown" | "over"} Tone */

/** @type {Tone[]} */
export const TONES = ["good", "arriving", "moving", "leaving", "idle", "unknown", "failed", "over"];

/** @type {Record<Tone, string>} */
export const MEANINGS = {
  good: "healthy",
  arriving: "starting",
  moving: "changing",
  leaving: "removing",
  idle: "idle",
  unknown: "unknown",
  failed: "failed",
  over: "ended",
};

/** What people look for, in the words of the overview, and the tones that are meant. @type {Record<string, Tone[]>} */
export const HEALTHS = {
  "not ended": TONES.filter((tone) => tone !== "over"),
  "under way": ["arriving", "moving", "leaving"],
  ...Object.fromEntries(TONES.map((tone) => [MEANINGS[tone], [tone]])),
};

/** Shapes in a square of 10 by 10. @type {Record<Tone, string>} */
export const SHAPES = {
  good: "M5 .8a4.2 4.2 0 1 0 0 8.4a4.2 4.2 0 1 0 0-8.4Z",
  arriving: "M5 .8 9.4 8.8H.6Z",
  moving: "M5 .3 9.7 5 5 9.7.3 5Z",
  leaving: "M5 9.2.6 1.2h8.8Z",
  idle: "M1.2 1.2h7.6v7.6H1.2Z",
  unknown: "M5 .8a4.2 4.2 0 1 0 0 8.4a4.2 4.2 0 1 0 0-8.4Zm0 2.4a1.8 1.8 0 1 1 0 3.6a1.8 1.8 0 1 1 0-3.6Z",
  failed: "M2.2.6 5 3.4 7.8.6 9.4 2.2 6.6 5l2.8 2.8-1.6 1.6L5 6.6 2.2 9.4.6 7.8 3.4 5 .6 2.2Z",
  over: "M1.2 3.9h7.6v2.2H1.2Z",
};

const FAILED = /fail|error|degraded|broken/;
const UNKNOWN = /undefined|unknown|offline/;
const OVER = /^done$/;
const GOOD =
  /^(up|succeeded)$|running|ready|active|stable|^deployed|available|assigned|confirmed|enabled|registered|created/;
const ARRIVING =
  /creat|deploy|start|prepar|init|assign|attach|adding|restor|enabl|resum|\bpending|accepted|configur|register/;
const LEAVING = /delet|terminat|destroy|remov|detach|decommission/;

/** @type {Map<string, Tone>} */
const known = new Map();

/**
 * @param {string} state
 * @param {StateClass | null | undefined} stateClass
 * @returns {Tone}
 */
export function toneOf(state, stateClass) {
  const key = `${stateClass}/${state}`;
  let tone = known.get(key);
  if (tone === undefined) {
    tone = computeTone(state.toLowerCase(), stateClass);
    known.set(key, tone);
  }
  return tone;
}

/**
 * The tone of an object among others: one that has ended, such as the record of a deploy, is neither healthy nor failed.
 * @param {string} state @param {StateClass | null | undefined} stateClass @returns {Tone}
 */
export function fleetTone(state, stateClass) {
  return stateClass === "final" ? "over" : toneOf(state, stateClass);
}

/** @param {string} word @param {StateClass | null | undefined} stateClass @returns {Tone} */
function computeTone(word, stateClass) {
  if (stateClass === "transitional") {
    if (LEAVING.test(word)) return "leaving";
    return ARRIVING.test(word) ? "arriving" : "moving";
  }
  if (FAILED.test(word)) return "failed";
  if (UNKNOWN.test(word)) return "unknown";
  if (OVER.test(word)) return "over";
  if (stateClass === "final") return word === "succeeded" ? "good" : "over";
  return GOOD.test(word) && !word.startsWith("disabled") && !/^not/.test(word) ? "good" : "idle";
}

/** @param {Tone} tone @returns {SVGElement} */
export function shape(tone) {
  const path = svg("path", { d: SHAPES[tone] });
  return svg("svg", { class: `shape tone-${tone}`, viewBox: "0 0 10 10", "aria-hidden": "true" }, path);
}

/** A state as it is shown everywhere: its shape and its name. @param {string} state @param {StateClass | null | undefined} stateClass */
export function badge(state, stateClass) {
  const tone = toneOf(state, stateClass);
  return h("span", { class: `badge tone-${tone}`, title: MEANINGS[tone] }, shape(tone), state);
}

/** The state of an object. @param {{state: string, state_class: StateClass | null}} thing */
export const stateBadge = (thing) => badge(thing.state, thing.state_class);
