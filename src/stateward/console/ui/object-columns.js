// What a kind says about its objects: the columns of their lists, and their specs as readable tables.

import { h } from "../core/dom.js";
import { store } from "../core/store.js";
import { fact, quiet } from "./components.js";
import { labelOf, valueText, withoutNull } from "./schema-words.js";

/** @import {ObjectView} from "../core/types.js" */
/** @import {Schema} from "./schema-words.js" */

/** @typedef {{path: string, name: string, text: (thing: ObjectView) => string}} KindColumn */

/** @type {Record<string, Schema>} the fields of every object that are times */
const TIMES = { since: { format: "date-time" }, created: { format: "date-time" } };

/** The columns that a kind names, such as `spec.address` and `labels.team`. @param {string} kind @returns {KindColumn[]} */
export function columnsOf(kind) {
  const found = store.kinds.get(kind);
  const columns = (found?.columns ?? []).map((path) => {
    const keys = keysOf(path);
    const schema = keys[0] === "spec" ? schemaAt(found?.spec ?? {}, keys.slice(1)) : (TIMES[path] ?? {});
    const text = (/** @type {any} */ thing) => valueText(keys.reduce((value, key) => value?.[key], thing) ?? schema.default, schema);
    return { path, name: labelOf(keys.at(-1) ?? path, schema), text };
  });
  const isUnique = (/** @type {string} */ name) => columns.filter((one) => one.name === name).length === 1;
  return columns.map(({ path, name, text }) => ({ path, name: isUnique(name) ? name : path, text }));
}

/** The keys of a path; the name of a label may have dots. @param {string} path */
const keysOf = (path) => (path.startsWith("labels.") ? ["labels", path.slice(7)] : path.split("."));

/** @param {Schema} schema @param {string[]} keys @returns {Schema} */
function schemaAt(schema, keys) {
  return keys.reduce((/** @type {Schema} */ one, key) => {
    const inner = withoutNull(one).schema;
    return inner.properties?.[key] ?? (typeof inner.additionalProperties === "object" ? inner.additionalProperties : {});
  }, schema);
}

/** The values of a kind's columns, for one object. @param {ObjectView} thing @returns {[string, string][]} */
export function columnValues(thing) {
  const values = columnsOf(thing.kind).map(({ name, text }) => /** @type {[string, string]} */ ([name, text(thing)]));
  return values.filter(([, text]) => text !== "");
}

/** A record in the words of its schema. @param {any} value @param {Schema} schema @returns {HTMLElement} */
export function recordTable(value, schema) {
  const known = Object.entries(/** @type {Record<string, Schema>} */ (withoutNull(schema).schema.properties ?? {}));
  const others = Object.keys(value ?? {}).filter((name) => !known.some(([one]) => one === name));
  const fields = [...known, ...others.map((name) => /** @type {[string, Schema]} */ ([name, {}]))];
  if (!fields.length) return quiet("nothing");
  return h("dl", { class: "facts record" }, fields.flatMap(([name, one]) => field(name, one, value?.[name])));
}

/** @param {string} name @param {Schema} schema @param {any} value */
function field(name, schema, value) {
  const about = schema.description ? h("small", { class: "quiet" }, schema.description) : null;
  return fact(labelOf(name, schema), h("div", { class: "value", "data-field": name }, shown(value, schema), about));
}

/** @param {any} value @param {Schema} given @returns {HTMLElement} */
function shown(value, given) {
  const { schema } = withoutNull(given);
  const isRecord = (/** @type {any} */ one) => typeof one === "object" && one !== null && !Array.isArray(one);
  if (isRecord(value)) return recordTable(value, variantFor(value, schema));
  if (Array.isArray(value) && value.some(isRecord))
    return h("ol", { class: "records" }, value.map((one) => h("li", null, shown(one, schema.items ?? {}))));
  const text = valueText(value, schema);
  const standard = valueText(given.default, schema);
  if (text) return h("span", null, text);
  return standard ? h("span", null, standard, quiet(" by default")) : quiet("not set");
}

/** The schema of a record in a union: the variant that has its fields. @param {any} value @param {Schema} schema @returns {Schema} */
function variantFor(value, schema) {
  const variants = /** @type {Schema[]} */ (schema.anyOf ?? schema.oneOf ?? [schema]);
  const misses = (/** @type {Schema} */ one) =>
    Object.entries(one.properties ?? {}).filter(([name, its]) => its.enum && !its.enum.includes(value[name])).length +
    Object.keys(value).filter((name) => !one.properties?.[name]).length;
  return [...variants].sort((one, other) => misses(one) - misses(other))[0] ?? {};
}
