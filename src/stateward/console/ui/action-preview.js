// The server's preview of an action in words: how many of what, where, which are left out and why, and whether it can be
// undone. Nothing has happened yet when it is shown.

import { h } from "../core/dom.js";
import { code, fact, note, objectAnchor, plainList, quiet } from "./components.js";
import { countWords, phraseOf } from "./kind-words.js";
import { badge } from "./states.js";
import { classOf } from "../core/store.js";
import { span } from "../core/time.js";
import { numberText } from "../core/numbers.js";

/** @import {Child} from "../core/dom.js" */
/** @import {Preview} from "../core/types.js" */
/** @import {ActionTarget} from "./action-target.js" */

/** So many objects that would be removed are confirmed by a typed text. */
export const MAX_REMOVED_UNTYPED = 20;
/** So many objects that would be touched in any way are confirmed by a typed text. */
export const MAX_TOUCHED_UNTYPED = 100;
const MAX_PLACES_SHOWN = 6;

/** @param {Preview} preview @returns {boolean} whether the action is done without a question: it touches one object, and can be undone */
export function isHarmless(preview) {
  const stays = preview.targets.every((one) => one.desired === one.state);
  return preview.accepted && preview.total <= 1 && !leftOut(preview) && !preview.removes && (preview.undo !== null || stays);
}

/** @param {Preview} preview @returns {boolean} whether a text must be typed before the action */
export function needsTyping({ total, removes }) {
  return total > (removes ? MAX_REMOVED_UNTYPED : MAX_TOUCHED_UNTYPED);
}

/** @param {Preview} one @param {Preview} other @returns {boolean} whether a person who agreed to one has agreed to the other */
export function isSameEffect(one, other) {
  const told = (/** @type {Preview} */ it) =>
    JSON.stringify([it.accepted, it.total, it.removes, it.undo, it.protected, it.refused.map((why) => [why.code, why.count])]);
  return told(one) === told(other);
}

/** @param {Preview[]} previews of the parts of one action, such as its namespaces @returns {Preview} */
export function mergePreviews(previews) {
  const [first, ...others] = previews;
  if (!first || !others.length) return /** @type {Preview} */ (first);
  const sum = (/** @type {(one: Preview) => number} */ number) => previews.reduce((all, one) => all + number(one), 0);
  const willing = previews.filter((one) => one.accepted);
  const undos = new Set(willing.map((one) => one.undo));
  return {
    ...first,
    accepted: willing.length > 0,
    problem: willing.length ? null : first.problem,
    total: sum((one) => one.total),
    targets: joined(previews.flatMap((one) => one.targets), ({ kind, state, desired }) => `${kind} ${state} ${desired}`),
    places: joined(previews.flatMap((one) => one.places), ({ place }) => place),
    refused: joined(previews.flatMap((one) => one.refused), (one) => `${one.code} ${one.detail}`),
    protected: sum((one) => one.protected),
    protected_examples: previews.flatMap((one) => one.protected_examples),
    removes: previews.some((one) => one.removes),
    undo: undos.size === 1 ? ([...undos][0] ?? null) : null,
    within: Math.max(...previews.map((one) => one.within ?? 0)) || null,
    effects: previews.flatMap((one) => one.effects),
  };
}

/** Add up equal rows. @template {{count: number}} T @param {T[]} rows @param {(row: T) => string} keyOf @returns {T[]} largest first */
function joined(rows, keyOf) {
  /** @type {Map<string, T>} */
  const sums = new Map();
  for (const row of rows) {
    const before = sums.get(keyOf(row));
    sums.set(keyOf(row), before ? { ...before, count: before.count + row.count } : row);
  }
  return [...sums.values()].sort((one, other) => other.count - one.count);
}

/** @param {Preview} preview */
const leftOut = (preview) => preview.protected + preview.refused.reduce((sum, one) => sum + one.count, 0);

/** @param {Preview} preview @returns {string | null} the kind of all that is touched; null if there are several */
function kindOf({ targets }) {
  const kinds = new Set(targets.map((one) => one.kind));
  return kinds.size === 1 ? (targets[0]?.kind ?? null) : null;
}

/** @param {string} action @param {Preview} preview @param {ActionTarget} target @returns {string} what the button does: some of many may be left out */
export function confirmText(action, preview, target) {
  const isCounted = preview.total > (target.thing ? 1 : 0);
  return phraseOf(action, isCounted ? countWords(kindOf(preview), preview.total) : target.name);
}

/** @param {Preview} preview @param {string} ns of examples; empty if there are several @returns {HTMLElement} */
export function previewPanel(preview, ns) {
  return h(
    "div",
    { class: "preview column" },
    preview.targets.length ? plainList(preview.targets.map(targetLine)) : null,
    preview.accepted ? h("dl", { class: "facts" }, effectsOf(preview)) : null,
    leftOutPanel(preview, ns),
  );
}

/** @param {Preview["targets"][number]} one */
function targetLine({ kind, state, desired, count }) {
  const ends = desired === "(gone)" ? "gone" : desired;
  return h(
    "li",
    null,
    h("b", null, countWords(kind, count)),
    " ",
    badge(state, classOf(kind, state)),
    ends === state ? quiet(" stays") : [" → ", badge(ends, classOf(kind, desired))],
  );
}

/** @param {Preview} preview @returns {Child[]} */
function effectsOf({ places, within, effects, removes, undo, targets }) {
  const shown = places.slice(0, MAX_PLACES_SHOWN).map(({ place, count }) => `${place} ${numberText(count)}`);
  const rest = places.slice(MAX_PLACES_SHOWN).reduce((sum, one) => sum + one.count, 0);
  const stays = targets.every((one) => one.desired === one.state);
  return [
    places.length ? fact("where", [...shown, ...(rest ? [`other ${numberText(rest)}`] : [])].join(" · ")) : [],
    effects.map((text, number) => fact(number ? "" : "effect", text)).flat(),
    within ? fact("takes", `at most ${span(within)}${targets.length > 1 || (targets[0]?.count ?? 0) > 1 ? " each" : ""}`) : [],
    removes ? fact("undo", h("b", { class: "error-text" }, "This cannot be undone.")) : [],
    !removes && undo ? fact("undo", h("span", null, "with ", code(undo))) : [],
    !removes && !undo && !stays ? fact("undo", "no single action undoes this") : [],
  ].flat();
}

/** @param {Preview} preview @param {string} ns */
function leftOutPanel(preview, ns) {
  const count = leftOut(preview);
  if (!count || (!preview.accepted && count === 1)) return null; // the problem of one object says it already
  const examples = (/** @type {string[]} */ ids, /** @type {number} */ all) => [
    ...ids.flatMap((id, number) => [number ? ", " : "", ns ? objectAnchor(ns, id) : id]),
    all > ids.length ? ` and ${numberText(all - ids.length)} more` : "",
  ];
  const lines = preview.refused.map((one) =>
    h("li", null, h("b", null, numberText(one.count)), ` ${one.detail} `, quiet(...examples(one.examples, one.count))),
  );
  if (preview.protected)
    lines.unshift(
      h(
        "li",
        null,
        h("b", null, numberText(preview.protected)),
        " protected against deletion ",
        quiet(...examples(preview.protected_examples, preview.protected)),
      ),
    );
  const whole = count + preview.total;
  const text = preview.accepted
    ? `${numberText(count)} of ${countWords(null, whole)} ${count === 1 ? "is" : "are"} skipped:`
    : "All objects refuse the action:";
  return h("div", { class: "left-out" }, note(text), plainList(lines));
}
