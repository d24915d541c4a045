// Inputs for values that a JSON schema describes: one part for each value, groups of parts for records, lists and maps.
//
// A part reads the entered value, and shows a complaint beside its input, whether the page or the server found it.
// A value that was not entered is left out, so that the server's default holds.

import { fill, h } from "../core/dom.js";
import { constantOf, fits, labelOf, mustBe, variantName, variantsOf, withoutNull } from "./schema-words.js";

/** @import {Child} from "../core/dom.js" */
/** @import {Schema} from "./schema-words.js" */

/** @typedef {[string[], string]} Complaint the path of a value, and what is wrong with it */

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

/** @param {Schema} given @param {Place} place @returns {Part} */
export function partOf(given, place) {
  const { schema, nullable } = withoutNull(given);
  const value = place.value === undefined ? schema.default : place.value;
  const mine = { ...place, value: value ?? undefined, required: place.required && !nullable };
  const empty = nullable ? null : undefined;
  if (schema.enum || schema.const !== undefined) return choice(schema, mine, empty);
  if (variantsOf(schema)) return union(schema, mine);
  switch (schema.type) {
    case "boolean":
      return nullable || (!mine.required && mine.value === undefined)
        ? choice({ ...schema, enum: [true, false] }, mine, empty)
        : flag(schema, mine);
    case "integer":
    case "number":
    case "string":
      return scalar(schema, mine, empty);
    case "array":
      return list(schema, mine);
    case "object":
      if (schema.properties) return record(schema, mine);
      return isSchema(schema.additionalProperties) ? map(schema, mine) : json(schema, mine);
    default:
      return json(schema, mine);
  }
}

/** @param {any} given */
const isSchema = (given) => typeof given === "object" && given !== null && Object.keys(given).length > 0;

// --- the frame of an input and of a group -----------------------------------------------------------------------------

/** The line below an input or a group that says what is wrong. @param {string} id */
function complaintLine(id) {
  return h("p", { class: "complaint error-text", id: `${id}-wrong`, hidden: true });
}

/** @param {HTMLElement} line the place for the text @param {string} text @param {HTMLElement} [input] */
export function complainBeside(line, text, input) {
  line.hidden = false;
  fill(line, text);
  line.parentElement?.setAttribute("data-wrong", "");
  input?.setAttribute("aria-invalid", "true");
  return true;
}

/** Take all complaints away. @param {HTMLElement} form */
export function clearComplaints(form) {
  for (const one of form.querySelectorAll(".complaint")) fill(one), ((/** @type {HTMLElement} */ (one)).hidden = true);
  for (const one of form.querySelectorAll("[data-wrong]")) one.removeAttribute("data-wrong");
  for (const one of form.querySelectorAll("[aria-invalid]")) one.removeAttribute("aria-invalid");
}

/** Focus the first input with a complaint. @param {HTMLElement} form */
export function focusComplaint(form) {
  const first = form.querySelector("[data-wrong]");
  const input = first?.querySelector("input, select, textarea, button");
  /** @type {HTMLElement | null} */ (input ?? null)?.focus();
}

/** What stands below an input: its description, its limits, its default. @param {Schema} schema @param {Place} place */
function hintOf(schema, place) {
  const limits = schema.enum ? "" : mustBe(schema);
  const plain = ["a number", "a whole number"].includes(limits) ? "" : limits;
  const given = schema.default;
  const known = place.path.length && given !== undefined && given !== null && given !== "" && !schema.writeOnly;
  const standard = known && typeof given !== "object" ? `default: ${given === true ? "yes" : given === false ? "no" : given}` : "";
  return [schema.description, [plain, standard].filter(Boolean).join(" · ")].filter(Boolean);
}

/** @param {Schema} schema @param {Place} place @param {HTMLElement} input @param {string} id @param {Child[]} [more] */
function framed(schema, place, input, id, more = []) {
  const hints = hintOf(schema, place);
  const wrong = complaintLine(id);
  const label = place.label ? h("label", { for: id }, place.label, place.required ? null : h("span", null, " (optional)")) : null;
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
  return { element, complain: (/** @type {string[]} */ _path, /** @type {string} */ text) => complainBeside(wrong, text, input) };
}

const newId = () => `part-${(ids += 1)}`;

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
function scalar(schema, place, empty) {
  const id = newId();
  const isNumber = schema.type !== "string";
  const shown = place.value === undefined ? "" : schema.format === "date-time" ? localTime(place.value) : String(place.value);
  const isLong = !isNumber && (shown.includes("\n") || schema.contentMediaType || schema.maxLength > 500);
  const proposals = schema.examples?.length
    ? h("datalist", { id: `${id}-list` }, schema.examples.map((/** @type {any} */ one) => h("option", { value: one })))
    : null;
  const attributes = {
    autocomplete: schema.writeOnly ? "new-password" : "off",
    spellcheck: "false",
    list: proposals ? `${id}-list` : null,
    ...(isNumber ? { type: "number", step: schema.multipleOf ?? (schema.type === "integer" ? 1 : "any") } : INPUTS[schema.format]),
    ...(schema.writeOnly ? { type: "password" } : {}),
    min: schema.minimum,
    max: schema.maximum,
    value: shown,
  };
  const input = /** @type {HTMLInputElement} */ (isLong ? h("textarea", { rows: 5, ...attributes }) : h("input", attributes));
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
    const value = isNumber ? (text === "" ? NaN : Number(text)) : schema.format === "date-time" ? new Date(text).toISOString() : text;
    if (!fits(schema, value)) complaints.push([place.path, `must be ${mustBe(schema) || schema.type}`]);
    return value;
  };
  return { ...frame, read };
}

/** @param {string} moment @returns {string} as an input takes it */
function localTime(moment) {
  const date = new Date(moment);
  return Number.isNaN(date.valueOf()) ? "" : new Date(date.valueOf() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** @param {Schema} schema @param {Place} place */
function flag(schema, place) {
  const input = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", checked: place.value === true }));
  return { ...framed(schema, { ...place, required: true }, input, newId()), read: () => input.checked };
}

/** @param {Schema} schema @param {Place} place @param {null | undefined} empty */
function choice(schema, place, empty) {
  const values = schema.enum ?? [schema.const];
  const free = !place.required || place.value === undefined;
  const options = values.map((/** @type {any} */ one, /** @type {number} */ number) =>
    h("option", { value: number, selected: one === place.value }, one === true ? "yes" : one === false ? "no" : String(one)),
  );
  const none = place.required ? "choose one" : "not set";
  const input = /** @type {HTMLSelectElement} */ (h("select", null, free ? h("option", { value: "" }, none) : null, options));
  /** @param {Complaint[]} complaints */
  const read = (complaints) => {
    if (input.value !== "") return values[Number(input.value)];
    if (place.required) complaints.push([place.path, `must be ${mustBe(schema)}`]);
    return empty;
  };
  return { ...framed(schema, place, input, newId()), read };
}

/** Anything that has no input of its own. @param {Schema} schema @param {Place} place */
function json(schema, place) {
  const text = place.value === undefined ? "" : JSON.stringify(place.value, null, 2);
  const input = /** @type {HTMLTextAreaElement} */ (h("textarea", { rows: 5, spellcheck: "false", placeholder: "JSON", value: text }));
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

// --- groups -----------------------------------------------------------------------------------------------------------

/** A group of parts with a legend. @param {Schema} schema @param {Place} place @param {Child[]} content @param {HTMLElement} [toggle] */
function group(schema, place, content, toggle) {
  const id = newId();
  const wrong = complaintLine(id);
  const hints = hintOf({ ...schema, default: undefined }, place);
  const optional = place.required || toggle ? null : h("span", null, " (optional)");
  const legend = toggle ? h("label", null, toggle, place.label) : h("span", null, place.label, optional);
  const element = h(
    "fieldset",
    { "data-path": place.path.join("."), "aria-describedby": `${id}-wrong` },
    place.label ? h("legend", null, legend) : h("legend", { class: "unseen" }, place.spoken ?? place.path.at(-1) ?? ""),
    hints.length ? h("div", { class: "hint" }, hints.map((one) => h("p", null, one))) : null,
    content,
    wrong,
  );
  return { element, wrong };
}

/** @param {Schema} schema @param {Place} place @returns {Part} */
function record(schema, place) {
  const fixed = new Map(
    Object.entries(/** @type {Record<string, Schema>} */ (schema.properties)).flatMap(([name, one]) => {
      const only = constantOf(one);
      return only === undefined ? [] : [[name, only]]; // such as the tag of a variant
    }),
  );
  const parts = new Map(
    Object.entries(/** @type {Record<string, Schema>} */ (schema.properties))
      .filter(([name]) => !fixed.has(name))
      .map(([name, one]) => {
        const required = schema.required?.includes(name) ?? false;
        const path = [...place.path, name];
        return [name, partOf(one, { path, label: labelOf(name, one), required, value: place.value?.[name] })];
      }),
  );
  const fields = h("div", { class: "parts" }, [...parts.values()].map((one) => one.element));
  const toggle = place.required ? null : /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", checked: place.value !== undefined }));
  const isGiven = () => toggle?.checked ?? true;
  const show = () => (fields.hidden = !isGiven());
  toggle?.addEventListener("change", show);
  show();
  const isBare = toggle === null && !place.label;
  const { element, wrong } = group(schema, place, [fields], toggle ?? undefined);
  return {
    element: isBare ? h("div", { class: "parts bare" }, fields, wrong) : element,
    read: (complaints) => {
      if (!isGiven()) return undefined;
      const entered = [...parts].map(([name, one]) => [name, one.read(complaints)]);
      return Object.fromEntries([...fixed, ...entered].filter(([, value]) => value !== undefined));
    },
    complain: ([name, ...rest], text) => {
      if (name === undefined || !isGiven()) return complainBeside(wrong, text);
      return parts.get(name)?.complain(rest, text) ?? false;
    },
  };
}

/**
 * Rows that can be added and removed.
 * @param {Schema} schema @param {Place} place @param {number} most
 * @param {(value?: any) => {element: HTMLElement, part: Part, key?: HTMLInputElement}} newRow
 * @param {(HTMLElement | null)} head
 */
function rowsOf(schema, place, most, newRow, head) {
  /** @type {ReturnType<typeof newRow>[]} */
  const rows = [];
  const holder = h("ol", { class: "rows" });
  const add = h("button", { type: "button", "aria-label": `Add to ${place.label || place.spoken || "the list"}` }, "Add");
  const limit = () => add.toggleAttribute("disabled", rows.length >= most);
  const append = (/** @type {any} */ value) => {
    const row = newRow(value);
    const remove = h("button", { type: "button", class: "remove", "aria-label": `Remove from ${place.label || place.spoken || "the list"}`, title: "Remove" }, "✕");
    const line = h("li", null, row.element, remove);
    remove.addEventListener("click", () => {
      rows.splice(rows.indexOf(row), 1);
      line.remove();
      limit();
      add.focus();
    });
    rows.push(row);
    holder.append(line);
    limit();
    return line;
  };
  add.addEventListener("click", () => {
    /** @type {HTMLElement | null} */ (append(undefined).querySelector("input, select, textarea, button"))?.focus();
  });
  const { element, wrong } = group(schema, place, [head, holder, add]);
  return { rows, append, element, wrong };
}

/** @param {Schema} schema @param {Place} place @returns {Part} */
function list(schema, place) {
  /** @type {Schema[]} */
  const fixed = schema.prefixItems ?? [];
  const items = isSchema(schema.items) ? schema.items : {};
  const most = fixed.length && !isSchema(schema.items) ? fixed.length : (schema.maxItems ?? Infinity);
  const spoken = place.label || place.spoken || "list";
  const newRow = (/** @type {any} */ value) => {
    const number = made.rows.length;
    const path = [...place.path, String(number)];
    const part = partOf(fixed[number] ?? items, { path, label: "", spoken: `${spoken} ${number + 1}`, required: true, value });
    return { element: part.element, part };
  };
  const made = rowsOf(schema, place, most, newRow, null);
  /** @type {any[]} */
  const first = place.value ?? [];
  const least = Math.max(fixed.length, first.length, place.required ? (schema.minItems ?? 0) : 0);
  for (let number = 0; number < least; number += 1) made.append(first[number]);
  return {
    element: made.element,
    read: (complaints) => {
      if (!made.rows.length && !place.required && !first.length) return undefined;
      if (made.rows.length < (schema.minItems ?? 0)) complaints.push([place.path, `must have ${mustBe(schema)}`]);
      return made.rows.map(({ part }, number) => readAt(part, complaints, [...place.path, String(number)]));
    },
    complain: ([number, ...rest], text) => {
      const row = number === undefined ? undefined : made.rows[Number(number)];
      return row ? row.part.complain(rest, text) : complainBeside(made.wrong, text);
    },
  };
}

/** Read a part of a row: its place may have changed since it was made. @param {Part} part @param {Complaint[]} complaints @param {string[]} path */
function readAt(part, complaints, path) {
  /** @type {Complaint[]} */
  const mine = [];
  const value = part.read(mine);
  complaints.push(...mine.map(([its, text]) => /** @type {Complaint} */ ([[...path, ...its.slice(path.length)], text])));
  return value;
}

/** @param {Schema} schema @param {Place} place @returns {Part} */
function map(schema, place) {
  const spoken = place.label || place.spoken || "map";
  const newRow = (/** @type {[string, any] | undefined} */ entry) => {
    const key = /** @type {HTMLInputElement} */ (
      h("input", { "aria-label": `name in ${spoken}`, placeholder: "name", autocomplete: "off", spellcheck: "false", value: entry?.[0] ?? "" })
    );
    const where = { path: [...place.path, "value"], label: "", spoken: `value in ${spoken}`, required: true, mayBeEmpty: true, value: entry?.[1] };
    const part = partOf(schema.additionalProperties, where);
    return { element: h("div", { class: "pair" }, key, part.element), part, key };
  };
  const made = rowsOf(schema, place, schema.maxProperties ?? Infinity, newRow, null);
  for (const entry of Object.entries(place.value ?? {})) made.append(entry);
  return {
    element: made.element,
    read: (complaints) => {
      if (!made.rows.length && !place.required) return undefined;
      const names = made.rows.map(({ key }) => key?.value ?? "");
      if (names.includes("")) complaints.push([place.path, "each entry must have a name"]);
      if (new Set(names).size < names.length) complaints.push([place.path, "each name must be there once"]);
      return Object.fromEntries(made.rows.map(({ part }, at) => [names[at], readAt(part, complaints, [...place.path, names[at] ?? ""])]));
    },
    complain: ([name, ...rest], text) => {
      const row = made.rows.find(({ key }) => key?.value === name);
      return row ? row.part.complain(rest, text) : complainBeside(made.wrong, text);
    },
  };
}

/** One of several variants, which the user chooses first. @param {Schema} schema @param {Place} place @returns {Part} */
function union(schema, place) {
  const variants = variantsOf(schema) ?? [];
  const slot = h("div", { class: "parts" });
  const first = variants.findIndex((one) => suits(one, place.value));
  const options = variants.map((one, number) => h("option", { value: number, selected: number === first }, variantName(one)));
  const none = place.required ? "choose one" : "not set";
  const select = /** @type {HTMLSelectElement} */ (
    h("select", { "aria-label": `which ${place.label || place.spoken || "variant"}` }, first < 0 || !place.required ? h("option", { value: "" }, none) : null, options)
  );
  /** @type {Part | null} */
  let part = null;
  const choose = (/** @type {any} */ value) => {
    const chosen = select.value === "" ? undefined : variants[Number(select.value)];
    const where = { path: place.path, label: "", spoken: place.label || place.spoken, required: true, value };
    part = chosen ? partOf({ ...chosen, title: undefined }, where) : null;
    fill(slot, part?.element);
  };
  select.addEventListener("change", () => choose(undefined));
  if (first >= 0) choose(place.value);
  const { element, wrong } = group(schema, place, [select, slot]);
  return {
    element,
    read: (complaints) => {
      if (part) return part.read(complaints);
      if (place.required) complaints.push([place.path, "must be chosen"]);
      return undefined;
    },
    complain: (path, text) => part?.complain(path, text) || complainBeside(wrong, text),
  };
}

/** Whether a variant is that of a value. @param {Schema} schema @param {any} value */
function suits(schema, value) {
  if (value === undefined || value === null) return false;
  const type = Array.isArray(value) ? "array" : Number.isInteger(value) && schema.type === "integer" ? "integer" : typeof value;
  if (schema.enum) return schema.enum.includes(value);
  if (type !== schema.type) return false;
  return Object.entries(schema.properties ?? {}).every(([name, one]) => [undefined, value[name]].includes(constantOf(one)));
}
