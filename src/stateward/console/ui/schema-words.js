// JSON schemas in words: the label of a field, what its value must be, and a value as people read it.

import { moment } from "../core/time.js";

/** @typedef {Record<string, any>} Schema a JSON schema without references */

/** The server's mask of a secret. */
export const MASK = "***";

/** @param {Schema} schema @returns {Schema[] | undefined} the variants of a union */
export const variantsOf = (schema) => schema.anyOf ?? schema.oneOf;

/** @param {Schema} schema @returns {{schema: Schema, nullable: boolean}} the schema without null, and whether null is allowed */
export function withoutNull(schema) {
  if (schema.enum?.includes(null)) {
    return { schema: { ...schema, enum: schema.enum.filter((/** @type {any} */ one) => one !== null) }, nullable: true };
  }
  const variants = variantsOf(schema);
  const rest = variants?.filter((one) => one.type !== "null") ?? [];
  if (!variants || rest.length === variants.length) return { schema, nullable: false };
  const { anyOf: _any, oneOf: _one, ...about } = schema;
  return { schema: rest.length === 1 ? { ...rest[0], ...about } : { ...about, anyOf: rest }, nullable: true };
}

/** A schema whose secrecy holds for all that is below it. @param {Schema} schema @returns {Schema} */
export function withSecretsBelow(schema) {
  if (!schema.writeOnly) return schema;
  const hidden = (/** @type {any} */ one) => (typeof one === "object" && one !== null ? { ...one, writeOnly: true } : one);
  const below = Object.entries(schema).map(([key, value]) => {
    if (["items", "additionalProperties"].includes(key)) return [key, hidden(value)];
    if (["prefixItems", "anyOf", "oneOf"].includes(key)) return [key, value.map(hidden)];
    if (key !== "properties") return [key, value];
    return [key, Object.fromEntries(Object.entries(value).map(([name, one]) => [name, hidden(one)]))];
  });
  return Object.fromEntries(below);
}

/** A value with its secrets masked: what is entered hidden is not shown elsewhere either. @param {any} value @param {Schema} given @returns {any} */
export function withoutSecrets(value, given) {
  const { schema } = withoutNull(withSecretsBelow(given));
  if (typeof value !== "object" || value === null) return schema.writeOnly && value !== undefined && value !== null ? MASK : value;
  const forms = [schema, ...(variantsOf(schema) ?? [])].map(withSecretsBelow);
  const inside = (/** @type {string} */ name) =>
    forms.map((one) => one.properties?.[name] ?? one.items ?? one.additionalProperties).filter((one) => typeof one === "object");
  const shown = (/** @type {string} */ name, /** @type {any} */ one) =>
    inside(name).reduce((/** @type {any} */ found, /** @type {Schema} */ its) => withoutSecrets(found, its), one);
  if (Array.isArray(value)) return value.map((one, number) => shown(String(number), one));
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, shown(name, one)]));
}

/** @param {Schema} schema @returns {boolean} whether it has secrets */
export const hasSecrets = (schema) => JSON.stringify(schema).includes('"writeOnly":true');

/** The values of a record that a form may begin with: fields of the schema, of its types, without secrets. @param {any} value @param {Schema} schema @returns {any} */
export function presentValues(value, schema) {
  const withoutMasks = (/** @type {string} */ _, /** @type {any} */ one) =>
    Array.isArray(one) ? one.filter((each) => each !== MASK) : one === MASK ? undefined : one;
  const shown = JSON.parse(JSON.stringify(withoutSecrets(value ?? {}, schema), withoutMasks));
  const known = Object.entries(/** @type {Record<string, Schema>} */ (schema.properties ?? {}));
  const fitting = known.filter(([name, one]) => shown[name] !== undefined && isOfType(one, shown[name]));
  return Object.fromEntries(fitting.map(([name]) => [name, shown[name]]));
}

/** Whether a value has the type of a schema; an argument may have the name of another thing. @param {Schema} given @param {any} value @returns {boolean} */
function isOfType(given, value) {
  const { schema, nullable } = withoutNull(given);
  if (value === null) return nullable;
  if (schema.enum) return schema.enum.includes(value);
  const variants = variantsOf(schema);
  if (variants) return variants.some((one) => isOfType(one, value));
  const type = Array.isArray(value) ? "array" : typeof value;
  return schema.type === undefined || (schema.type === "integer" ? Number.isInteger(value) : schema.type === type);
}

/** The words of a name such as `max_size`. @param {string} name */
const words = (name) => name.replaceAll("_", " ");

/** The label of a field. The title of a record or an enum is the name of its class, which nobody but its author knows.
 * @param {string} name @param {Schema} schema */
export function labelOf(name, schema) {
  const { title = "", ...inner } = withoutNull(schema).schema;
  const isClass = (inner.type === "object" || inner.enum || inner.anyOf) && /^[A-Z]\w*$/.test(title);
  return title && !isClass ? title : words(name);
}

/** @type {Record<string, string>} what a variant of a union is called that has no title */
const TYPES = {
  string: "text",
  integer: "whole number",
  number: "number",
  boolean: "yes or no",
  array: "list",
  object: "record",
};

/** The name of a variant of a union: its tag, its title, or its type. @param {Schema} schema */
export function variantName(schema) {
  const tag = Object.values(schema.properties ?? {}).find((one) => constantOf(one) !== undefined);
  if (tag) return String(constantOf(tag));
  return schema.title ?? (schema.enum ? schema.enum.join(", ") : (TYPES[schema.type] ?? "JSON"));
}

/** @param {Schema} schema @returns {any} its only value, if it has only one */
export const constantOf = (schema) => schema.const ?? (schema.enum?.length === 1 ? schema.enum[0] : undefined);

/** @type {Record<string, string>} */
const FORMATS = {
  "date-time": "a day and a time",
  date: "a day",
  time: "a time",
  duration: "a duration such as PT1H30M",
  uuid: "a UUID",
  decimal: "a decimal number",
  email: "an e-mail address",
  uri: "an address",
  ipv4: "an IPv4 address",
  ipv6: "an IPv6 address",
};

/** What a value must be, in words; empty if anything of its type will do. @param {Schema} schema @returns {string} */
export function mustBe(schema) {
  if (schema.enum) return `one of ${schema.enum.join(", ")}`;
  if (schema.type === "integer" || schema.type === "number") {
    const limits = [range(...lowest(schema), ...highest(schema)), step(schema)].filter(Boolean).join(", ");
    return `${schema.type === "integer" ? "a whole number" : "a number"}${limits ? ` ${limits}` : ""}`;
  }
  if (schema.type === "array") return counted(schema.minItems, schema.maxItems, "entries");
  if (schema.type !== "string") return "";
  const length = counted(schema.minLength, schema.maxLength, "characters");
  const pattern = schema.pattern ? patternWords(schema.pattern) : "";
  return [FORMATS[schema.format] ?? pattern, length].filter(Boolean).join(", ");
}

/** What a text of a pattern is, as the server says it: people do not read regular expressions. @param {string} pattern */
function patternWords(pattern) {
  const found = /^\^\[([^\]\\^]+)\](?:[+*]|\{\d+,\d*\})(?:\$|\\[Zz])$/.exec(pattern)?.[1];
  const signs = found?.match(/[A-Za-z0-9]-[A-Za-z0-9]|./g) ?? [];
  return signs.length ? `text of ${signs.join(" ")}` : "of the documented form";
}

/** @param {Schema} schema @returns {[number | undefined, string]} */
const lowest = (schema) => [schema.exclusiveMinimum ?? schema.minimum, schema.exclusiveMinimum === undefined ? "from" : "above"];

/** @param {Schema} schema @returns {[number | undefined, string]} */
const highest = (schema) => [schema.exclusiveMaximum ?? schema.maximum, schema.exclusiveMaximum === undefined ? "to" : "below"];

/** @param {number | undefined} least @param {string} from @param {number | undefined} most @param {string} to */
function range(least, from, most, to) {
  if (least === undefined && most === undefined) return "";
  if (most === undefined) return from === "from" ? `of at least ${least}` : `${from} ${least}`;
  if (least === undefined) return to === "to" ? `of at most ${most}` : `${to} ${most}`;
  return from === "from" && to === "to" ? `from ${least} to ${most}` : `${from} ${least} and ${to === "to" ? "at most" : to} ${most}`;
}

/** @param {Schema} schema */
const step = (schema) => (schema.multipleOf ? `a multiple of ${schema.multipleOf}` : "");

/** @param {number | undefined} least @param {number | undefined} most @param {string} unit */
function counted(least, most, unit) {
  if (least && most) return least === most ? `${least} ${unit}` : `${least} to ${most} ${unit}`;
  if (least) return least === 1 ? "not empty" : `at least ${least} ${unit}`;
  return most ? `at most ${most} ${unit}` : "";
}

/** Whether a scalar fits its schema, as far as the page can tell; the server decides. @param {Schema} schema @param {any} value */
export function fits(schema, value) {
  if (typeof value === "number") {
    if (Number.isNaN(value) || (schema.type === "integer" && !Number.isSafeInteger(value))) return false;
    return (
      value >= (schema.minimum ?? -Infinity) &&
      value <= (schema.maximum ?? Infinity) &&
      value > (schema.exclusiveMinimum ?? -Infinity) &&
      value < (schema.exclusiveMaximum ?? Infinity)
    );
  }
  if (typeof value !== "string") return true;
  const length = [...value].length;
  return length >= (schema.minLength ?? 0) && length <= (schema.maxLength ?? Infinity) && matches(schema.pattern, value);
}

/** @param {string | undefined} pattern @param {string} value */
function matches(pattern, value) {
  if (pattern === undefined) return true;
  try {
    return new RegExp(pattern, "u").test(value);
  } catch {
    return true; // a pattern of the server's language that browsers do not know
  }
}

/** A scalar, or a list of scalars, as people read it. @param {any} value @param {Schema} [schema] @returns {string} */
export function valueText(value, schema = {}) {
  if (value === undefined || value === null || value === "") return "";
  if (value === MASK && (schema.writeOnly ?? true)) return "secret, not shown";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.map((one) => valueText(one, schema.items ?? {})).join(", ");
  if (typeof value === "object") return JSON.stringify(value);
  return schema.format === "date-time" ? moment(String(value)) : String(value);
}
