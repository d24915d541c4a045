// Components of views.

import { fill, find, h } from "../core/dom.js";
import { link, objectLink } from "../core/links.js";
import { badge, shape, stateBadge, toneOf } from "./states.js";
import { classOf } from "../core/store.js";
import { ago, clock, moment } from "../core/time.js";
import { numberText } from "../core/numbers.js";

/** @import {Child} from "../core/dom.js" */
/** @import {JournalEntry, ObjectView} from "../core/types.js" */

let cards = 0;

/**
 * @param {string} title
 * @param {string | Child[]} about
 * @param {...(Child | Child[])} children
 */
export function card(title, about, ...children) {
  const name = `card-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  const id = `card-${(cards += 1)}`; // two cards may have the same title
  return h(
    "section",
    { class: `card ${name}`, "aria-labelledby": id },
    h("header", null, h("h2", { id }, title), h("span", { class: "about" }, about)),
    h("div", { class: "body" }, ...children),
  );
}

/** A placeholder for an empty list: what it would show, and what to do next. @param {string} what @param {...(Child | Child[])} next */
export function empty(what, ...next) {
  return h("div", { class: "empty" }, h("p", null, what), next.length ? h("p", { class: "next" }, ...next) : null);
}

/** @param {string} text */
export const code = (text) => h("code", null, text);

/** Text of less importance. @param {...Child} children */
export const quiet = (...children) => h("span", { class: "quiet" }, ...children);

/** A paragraph of less importance. @param {...Child} children */
export const note = (...children) => h("p", { class: "quiet" }, ...children);

/** @param {string | null | undefined} text */
export const errorText = (text) => (text ? h("span", { class: "error-text" }, text) : null);

/** What a list leaves out. @param {number} shown @param {number} total @param {Record<string, string>} query of the list of all */
export function restNote(shown, total, query) {
  if (total <= shown) return null;
  const words = `The first ${numberText(shown)} of ${numberText(total)} are listed; all are among the `;
  return note(words, h("a", { href: link("objects", [], query) }, "objects"), ".");
}

/** A list without marks. @param {Child[]} items */
export const plainList = (items) => h("ul", { class: "plain" }, items);

/** A term and its description, in a list of facts. @param {string} name @param {Child} value */
export const fact = (name, value) => [h("dt", null, name), h("dd", null, value)];

/** An object in one line: its name, its state, a text about it, its error. @param {ObjectView} thing @param {string} about @param {string} [name] */
export const objectLine = (thing, about, name) => [
  objectAnchor(thing.ns, thing.id, name),
  stateBadge(thing),
  quiet(about),
  errorText(thing.error),
];

/** @param {string} title @param {string | Child[]} about @param {...(Child | Child[])} tools */
export function heading(title, about, ...tools) {
  return h(
    "header",
    { class: "heading" },
    h("div", null, h("h1", null, title), h("p", { class: "about" }, about)),
    h("div", { class: "tools" }, ...tools),
  );
}

/**
 * @param {string} name what is listed, for screen readers
 * @param {string[]} columns
 * @param {(Child | Child[])[][]} rows
 */
export function table(name, columns, rows) {
  const head = h(
    "tr",
    null,
    columns.map((one) => h("th", { scope: "col" }, one || h("span", { class: "unseen" }, "actions"))),
  );
  const body = rows.map((row) =>
    h("tr", null, row.map((cell, number) => h("td", { "data-column": columns[number] }, cell))),
  );
  const made = h("table", { "aria-label": name }, h("thead", null, head), h("tbody", null, body));
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": name }, made);
}

/** @param {number} part @param {number} whole @param {string} name @param {string} [tone] */
export function meter(part, whole, name, tone = "good") {
  const share = whole > 0 ? Math.min(1, part / whole) : 0;
  const bar = h("span", { style: { width: `${share * 100}%` } });
  return h(
    "span",
    {
      class: `meter tone-${tone}`,
      role: "meter",
      "aria-valuenow": part,
      "aria-valuemin": 0,
      "aria-valuemax": whole,
      "aria-label": name,
    },
    bar,
  );
}

/** The states of objects of a kind: their numbers as one bar, and what it means. @param {string} kind @param {Map<string, number>} counts */
export const stateSummary = (kind, counts) => [rollUp(kind, counts), legend(kind, counts)];

/** @param {string} kind @param {Map<string, number>} counts */
function rollUp(kind, counts) {
  const total = [...counts.values()].reduce((sum, one) => sum + one, 0);
  const words = [...counts].map(([state, count]) => `${state} ${count}`).join(", ");
  const parts = [...counts].map(([state, count]) =>
    h("span", {
      class: `tone-${toneOf(state, classOf(kind, state))}`,
      style: { "flex-grow": count },
      title: `${state}: ${count}`,
    }),
  );
  return h("span", { class: "rollup", role: "img", "aria-label": words || "nothing" }, total ? parts : null);
}

/** @param {string} kind @param {Map<string, number>} counts */
function legend(kind, counts) {
  return h(
    "ul",
    { class: "legend" },
    [...counts].map(([state, count]) =>
      h("li", null, shape(toneOf(state, classOf(kind, state))), `${state} `, h("b", null, numberText(count))),
    ),
  );
}

/** @param {string} ns @param {string} id @param {string} [name] its display name, if not its id */
export function objectAnchor(ns, id, name = id) {
  return h("a", { href: objectLink(ns, id), class: "object", title: id }, shortenIds(name));
}

/** A time as people read it, such as `3 min ago`; day and time are its title. @param {string} when */
export const relativeTime = (when) => h("time", { datetime: when, title: moment(when) }, ago(when));

/** @param {JournalEntry} entry */
export function entryRow(entry) {
  const rejected = entry.event.startsWith("rejected");
  return h(
    "li",
    { class: rejected ? "line rejected" : "line", title: entry.reason ?? "" },
    h("time", { datetime: entry.at }, clock(entry.at)),
    objectAnchor(entry.ns, entry.object),
    h("span", { class: "event" }, entry.event),
    entry.target
      ? badge(entry.target, classOf(entry.kind, entry.target))
      : quiet(entry.reason),
    h("span", { class: "quiet who" }, entry.who || entry.actor),
  );
}

/**
 * Ask before an action that cannot be undone.
 * @param {string} question
 * @param {string} yes
 * @param {Child[]} [more]
 * @returns {Promise<boolean>}
 */
export function confirm(question, yes, more = []) {
  const dialog = /** @type {HTMLDialogElement} */ (find("#question"));
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue === "yes");
    dialog.returnValue = "";
    fill(
      dialog,
      h("h2", null, question),
      ...more,
      h(
        "footer",
        null,
        h("button", { onclick: () => dialog.close("no") }, "No"),
        h("button", { class: "primary", onclick: () => dialog.close("yes") }, yes),
      ),
    );
    dialog.showModal();
  });
}

/** @param {string} name @param {HTMLElement} input */
export function labeled(name, input) {
  return h("label", { class: "field" }, h("span", null, name), input);
}

/** @param {...string} words @returns {[string, string][]} options whose texts are their values */
export const wordOptions = (...words) => words.map((word) => [word, word]);

/** @param {[string, string][]} options value and text @param {string} chosen @param {(value: string) => void} onchange @param {string} name */
export function select(options, chosen, onchange, name) {
  const choices = options.map(([value, text]) => h("option", { value, selected: value === chosen }, text));
  return h(
    "select",
    { "aria-label": name, onchange: (/** @type {any} */ event) => onchange(event.target.value) },
    choices,
  );
}

/** Formatted JSON. @param {any} value @param {string} name */
export function json(value, name) {
  return h("pre", { class: "json", tabindex: "0", role: "group", "aria-label": name }, JSON.stringify(value, null, 2));
}

/** @param {string} kind */
export function kindLink(kind) {
  return h("a", { href: link("objects", [], { kind }) }, kind);
}

/** The end of a generated id; the beginning is the same for ids of the same time. @param {string} id */
export function shortId(id) {
  return id.slice(-6);
}

/** A sentence of the server with shortened ids, and times of today as times of the day. @param {string} text */
export function readable(text) {
  const today = moment(Date.now() / 1000).slice(0, 10);
  return shortenIds(text).replace(/(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)Z/g, (_, day, time) => {
    const local = moment(`${day}T${time}Z`);
    return local.startsWith(today) ? local.slice(11) : local;
  });
}

/** A text of the server with shortened ids. @param {string} text */
export function shortenIds(text) {
  return text.replace(/[0-9a-f]{32}/g, shortId);
}
