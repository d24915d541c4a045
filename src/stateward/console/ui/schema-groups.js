// Inputs for any value that a JSON schema describes: single ones, and groups of them (records, lists, maps, and the
// variants of a union).

import { fill, h } from "../core/dom.js";
import { complainBeside, complaintLine } from "./complaints.js";
import { choice, flag, hintOf, json, newId, scalar } from "./schema-inputs.js";
import { constantOf, labelOf, mustBe, variantName, variantsOf, withoutNull, withSecretsBelow } from "./schema-words.js";

/** @import {Child} from "../core/dom.js" */
/** @import {Complaint} from "./complaints.js" */
/** @import {Part, Place} from "./schema-inputs.js" */
/** @import {Schema} from "./schema-words.js" */

/** @param {Schema} given @param {Place} place @returns {Part} */
export function partOf(given, place) {
  const { schema: outer, nullable } = withoutNull(given);
  const schema = withSecretsBelow(outer);
  const value = place.value === undefined ? schema.default : place.value;
  const mine = { ...place, value: value ?? undefined, required: place.required && !nullable };
  // What is left empty is left out, unless the server would take something else than nothing for it.
  const empty = nullable && (place.required || (schema.default ?? null) !== null) ? null : undefined;
  if (schema.enum || schema.const !== undefined) return choice(schema, mine, empty);
  if (variantsOf(schema)) return union(schema, mine, empty);
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
      if (schema.properties) return record(schema, mine, empty);
      return isSchema(schema.additionalProperties) ? map(schema, mine) : json(schema, mine);
    default:
      return json(schema, mine);
  }
}

/** Whether a schema says something. @param {any} given */
const isSchema = (given) => typeof given === "object" && given !== null && Object.keys(given).length > 0;

/**
 * A group of parts with a legend.
 * @param {Schema} schema @param {Place} place @param {Child[]} content
 * @param {HTMLElement} [toggle] switches the group on and off
 */
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

/** @param {Schema} schema @param {Place} place @param {null | undefined} empty @returns {Part} */
export function record(schema, place, empty) {
  const properties = Object.entries(/** @type {Record<string, Schema>} */ (schema.properties));
  const isFixed = (/** @type {Schema} */ one) => constantOf(one) !== undefined; // such as the tag of a variant
  const fixed = properties.filter(([, one]) => isFixed(one)).map(([name, one]) => [name, constantOf(one)]);
  const parts = new Map(
    properties
      .filter(([, one]) => !isFixed(one))
      .map(([name, one]) => {
        const required = schema.required?.includes(name) ?? false;
        const path = [...place.path, name];
        return [name, partOf(one, { path, label: labelOf(name, one), required, value: place.value?.[name] })];
      }),
  );
  const fields = h("div", { class: "parts" }, [...parts.values()].map((one) => one.element));
  const checkbox = h("input", { type: "checkbox", checked: place.value !== undefined });
  const toggle = place.required ? null : /** @type {HTMLInputElement} */ (checkbox);
  const isGiven = () => toggle?.checked ?? true;
  const show = () => (fields.hidden = !isGiven());
  toggle?.addEventListener("change", show);
  show();
  const isBare = toggle === null && !place.label;
  const { element, wrong } = group(schema, place, [fields], toggle ?? undefined);
  return {
    element: isBare ? h("div", { class: "parts bare" }, fields, wrong) : element,
    read: (complaints) => {
      if (!isGiven()) return empty;
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
 * @param {Schema} schema @param {Place} place
 * @param {number} most rows that there may be
 * @param {number} least rows that cannot be removed, from the first
 * @param {(value?: any) => {element: HTMLElement, part: Part, key?: HTMLInputElement}} newRow
 */
function rowsOf(schema, place, most, least, newRow) {
  /** @type {ReturnType<typeof newRow>[]} */
  const rows = [];
  const holder = h("ol", { class: "rows" });
  const name = place.label || place.spoken || "the list";
  const add = h("button", { type: "button", "aria-label": `Add to ${name}` }, "Add");
  const limit = () => add.toggleAttribute("disabled", rows.length >= most);
  const append = (/** @type {any} */ value) => {
    const row = newRow(value);
    const how = { type: "button", class: "remove", "aria-label": `Remove from ${name}`, title: "Remove" };
    const remove = h("button", how, "✕");
    const line = h("li", null, row.element, rows.length < least ? null : remove);
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
  const { element, wrong } = group(schema, place, [holder, most === least ? null : add]);
  return { rows, append, element, wrong };
}

/** @param {Schema} schema @param {Place} place @returns {Part} */
export function list(schema, place) {
  /** @type {Schema[]} */
  const fixed = schema.prefixItems ?? [];
  const items = isSchema(schema.items) ? schema.items : {};
  const most = fixed.length && !isSchema(schema.items) ? fixed.length : (schema.maxItems ?? Infinity);
  const spoken = place.label || place.spoken || "list";
  const newRow = (/** @type {any} */ value) => {
    const number = made.rows.length;
    const path = [...place.path, String(number)];
    const where = { path, label: "", spoken: `${spoken} ${number + 1}`, required: true, value };
    const part = partOf(fixed[number] ?? items, where);
    return { element: part.element, part };
  };
  const made = rowsOf(schema, place, most, fixed.length, newRow);
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

/** Read a part of a row: its place may have changed since it was made.
 * @param {Part} part @param {Complaint[]} complaints @param {string[]} path */
function readAt(part, complaints, path) {
  /** @type {Complaint[]} */
  const mine = [];
  const value = part.read(mine);
  complaints.push(...mine.map(([its, text]) => /** @type {Complaint} */ ([[...path, ...its.slice(path.length)], text])));
  return value;
}

/** @param {Schema} schema @param {Place} place @returns {Part} */
export function map(schema, place) {
  const spoken = place.label || place.spoken || "map";
  const newRow = (/** @type {[string, any] | undefined} */ entry) => {
    const [name, value] = entry ?? ["", undefined];
    const how = { "aria-label": `name in ${spoken}`, placeholder: "name", autocomplete: "off", spellcheck: "false" };
    const key = /** @type {HTMLInputElement} */ (h("input", { ...how, value: name }));
    const where = { path: [...place.path, "value"], label: "", spoken: `value in ${spoken}` };
    const part = partOf(schema.additionalProperties, { ...where, required: true, mayBeEmpty: true, value });
    return { element: h("div", { class: "pair" }, key, part.element), part, key };
  };
  const made = rowsOf(schema, place, schema.maxProperties ?? Infinity, 0, newRow);
  for (const entry of Object.entries(place.value ?? {})) made.append(entry);
  return {
    element: made.element,
    read: (complaints) => {
      if (!made.rows.length && !place.required) return undefined;
      const names = made.rows.map(({ key }) => key?.value ?? "");
      if (names.includes("")) complaints.push([place.path, "each entry must have a name"]);
      if (new Set(names).size < names.length) complaints.push([place.path, "each name must be there once"]);
      const valueOf = (/** @type {string} */ name, /** @type {number} */ at) => {
        const part = made.rows[at]?.part;
        return [name, part && readAt(part, complaints, [...place.path, name])];
      };
      return Object.fromEntries(names.map(valueOf));
    },
    complain: ([name, ...rest], text) => {
      const row = made.rows.find(({ key }) => key?.value === name);
      return row ? row.part.complain(rest, text) : complainBeside(made.wrong, text);
    },
  };
}

/** One of several variants, which the user chooses first.
 * @param {Schema} schema @param {Place} place @param {null | undefined} empty @returns {Part} */
export function union(schema, place, empty) {
  const variants = variantsOf(schema) ?? [];
  const slot = h("div", { class: "parts" });
  const first = variants.findIndex((one) => suits(one, place.value));
  const options = variants.map((one, number) => h("option", { value: number, selected: number === first }, variantName(one)));
  const none = h("option", { value: "" }, place.required ? "choose one" : "not set");
  const name = `which ${place.label || place.spoken || "variant"}`;
  const select = /** @type {HTMLSelectElement} */ (
    h("select", { "aria-label": name }, first < 0 || !place.required ? none : null, options)
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
      return empty;
    },
    complain: (path, text) => part?.complain(path, text) || complainBeside(wrong, text),
  };
}

/** Whether a variant is that of a value. @param {Schema} schema @param {any} value */
function suits(schema, value) {
  if (value === undefined || value === null) return false;
  const plain = Array.isArray(value) ? "array" : typeof value;
  const type = Number.isInteger(value) && schema.type === "integer" ? "integer" : plain;
  if (schema.enum) return schema.enum.includes(value);
  if (type !== schema.type) return false;
  const tags = Object.entries(schema.properties ?? {}).filter(([, one]) => constantOf(one) !== undefined);
  return tags.every(([name, one]) => constantOf(one) === value[name]);
}
