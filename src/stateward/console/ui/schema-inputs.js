// Inputs for single values that a JSON schema describes: one part for each value.
//
// A part reads the entered value, and shows a complaint beside its input, whether the page or the server found it.
// A value that was not entered is left out, so that the server's default holds.

import { h } from "../core/dom.js";
import { complainBeside, complaintLine } from "./complaints.js";
import { fits, mustBe, valueText } from "./schema-words.js";

/** @import {Child} from "../core/dom.js" */
/** @import {Complaint} from "./complaints.js" */
/** @import {Schema} from "./schema-words.js" */

/**
 * @typedef {object} Part
 * @property {HTMLElement} element
 * @property {(complaints: Complaint[]) => any} read the entered value, undefined if there is none; adds what is wrong
 * @property {(path: string[], text: string) => boolean} complain shows what is wrong with a value of this part; false if
 *   the part has no such value
 */

/**
 * @typedef {object} Place
 * @property {string[]} path
 * @property {string} label empty if the part needs none, because its surroundings say what it is
 * @property {string} [spoken] the label for screen readers, where none is shown
 * @property {boolean} required
 * @property {boolean} [mayBeEmpty] an empty text is a value
 * @property {any} [value] the initial value, if not the default of the schema
 */

let ids = 0;

// --- the frame of an input -------------------------------------------------------------------------------------------

/** What stands below an input: its description, its limits, its default. @param {Schema} schema @param {Place} place */
export function hintOf(schema, place) {
  const limits = schema.enum ? "" : mustBe(schema);
  const plain = ["a number", "a whole number"].includes(limits) ? "" : limits;
  const standard = typeof schema.default === "object" || schema.writeOnly ? "" : valueText(schema.default, schema);
  const texts = [plain, standard && place.path.length ? `default: ${standard}` : ""];
  return [schema.description, texts.filter(Boolean).join(" · ")].filter(Boolean);
}

/** @param {Schema} schema @param {Place} place @param {HTMLElement} input @param {string} id @param {Child[]} [more] */
function framed(schema, place, input, id, more = []) {
  const hints = hintOf(schema, place);
  const wrong = complaintLine(id);
  const optional = place.required ? null : h("span", null, " (optional)");
  const label = place.label ? h("label", { for: id }, place.label, optional) : null;
  input.id = id;
  input.setAttribute("name", place.path.join("."));
  input.setAttribute("aria-describedby", hints.length ? `${id}-hint ${id}-wrong` : `${id}-wrong`);
  if (!label) input.setAttribute("aria-label", place.spoken ?? place.path.at(-1) ?? "value");
  if (place.required && !input.matches("[type=checkbox]")) input.setAttribute("aria-required", "true");
  const isFlag = input.matches("[type=checkbox]");
  const element = h(
    "div",
    { class: isFlag ? "part flag" : "part" },
    isFlag ? [input, label] : [label, input],
    more,
    hints.length ? h("div", { class: "hint", id: `${id}-hint` }, hints.map((one) => h("p", null, one))) : null,
    wrong,
  );
  /** @param {string[]} _path @param {string} text */
  const complain = (_path, text) => complainBeside(wrong, text, input);
  return { element, complain };
}

/** A name for elements of the page that refer to each other. */
export const newId = () => `part-${(ids += 1)}`;

// --- single values ----------------------------------------------------------------------------------------------------

/** @type {Record<string, Record<string, any>>} how a text of a format is entered */
const INPUTS = {
  "date-time": { type: "datetime-local", step: 1 },
  date: { type: "date" },
  time: { type: "time", step: 1 },
  duration: { placeholder: "PT1H30M" },
  email: { type: "email" },
};

/** @param {Schema} schema @param {Place} place @param {null | undefined} empty */
export function scalar(schema, place, empty) {
  const id = newId();
  const [isNumber, isMoment] = [schema.type !== "string", schema.format === "date-time"];
  const shown = isMoment ? localTime(place.value) : String(place.value ?? "");
  const isLong = !isNumber && (shown.includes("\n") || schema.contentMediaType || schema.maxLength > 500);
  const proposals = schema.examples?.length
    ? h("datalist", { id: `${id}-list` }, schema.examples.map((/** @type {any} */ one) => h("option", { value: one })))
    : null;
  const attributes = {
    class: schema.writeOnly ? "secret" : null, // a textarea cannot be a password field
    autocomplete: schema.writeOnly ? "new-password" : "off",
    spellcheck: "false",
    list: proposals ? `${id}-list` : null,
    ...(isNumber ? { type: "number", step: schema.multipleOf ?? (schema.type === "integer" ? 1 : "any") } : null),
    ...INPUTS[schema.format],
    ...(schema.writeOnly ? { type: "password" } : {}),
    min: schema.minimum,
    max: schema.maximum,
    value: shown,
  };
  const made = isLong ? h("textarea", { rows: 5, ...attributes }) : h("input", attributes);
  const input = /** @type {HTMLInputElement} */ (made);
  const frame = framed(schema, place, input, id, [proposals]);
  /** @param {Complaint[]} complaints */
  const read = (complaints) => {
    const text = input.value;
    if (text === "" && !input.validity.badInput) {
      const isCleared = !isNumber && empty === undefined && schema.default; // on purpose, then
      if (place.mayBeEmpty || isCleared || place.value === "") return "";
      if (place.required) complaints.push([place.path, "must be given"]);
      return empty;
    }
    const number = text === "" ? NaN : Number(text);
    const value = isNumber ? number : isMoment ? new Date(text).toISOString() : text;
    if (!fits(schema, value)) complaints.push([place.path, `must be ${mustBe(schema) || schema.type}`]);
    return value;
  };
  return { ...frame, read };
}

/** @param {string | undefined} moment @returns {string} as an input takes it, which knows no time zones */
function localTime(moment) {
  const date = new Date(moment ?? NaN);
  if (Number.isNaN(date.valueOf())) return "";
  return new Date(date.valueOf() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** @param {Schema} schema @param {Place} place */
export function flag(schema, place) {
  const input = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", checked: place.value === true }));
  return { ...framed(schema, { ...place, required: true }, input, newId()), read: () => input.checked };
}

/** @param {Schema} schema @param {Place} place @param {null | undefined} empty */
export function choice(schema, place, empty) {
  const values = schema.enum ?? [schema.const];
  const free = !place.required || place.value === undefined;
  const options = values.map((/** @type {any} */ one, /** @type {number} */ number) =>
    h("option", { value: number, selected: one === place.value }, valueText(one)),
  );
  const none = h("option", { value: "" }, place.required ? "choose one" : "not set");
  const input = /** @type {HTMLSelectElement} */ (h("select", null, free ? none : null, options));
  /** @param {Complaint[]} complaints */
  const read = (complaints) => {
    if (input.value !== "") return values[Number(input.value)];
    if (place.required) complaints.push([place.path, `must be ${mustBe(schema)}`]);
    return empty;
  };
  return { ...framed(schema, place, input, newId()), read };
}

/** Anything that has no input of its own. @param {Schema} schema @param {Place} place */
export function json(schema, place) {
  const text = place.value === undefined ? "" : JSON.stringify(place.value, null, 2);
  const secret = schema.writeOnly ? "secret" : null;
  const how = { class: secret, rows: 5, autocomplete: "off", spellcheck: "false", placeholder: "JSON", value: text };
  const input = /** @type {HTMLTextAreaElement} */ (h("textarea", how));
  /** @param {Complaint[]} complaints */
  const read = (complaints) => {
    if (input.value.trim() === "") {
      if (place.required) complaints.push([place.path, "must be given"]);
      return undefined;
    }
    try {
      return JSON.parse(input.value);
    } catch (error) {
      complaints.push([place.path, `must be JSON: ${/** @type {Error} */ (error).message}`]);
    }
  };
  const label = place.label && `${place.label} (JSON)`;
  return { ...framed(schema, { ...place, label }, input, newId()), read };
}
