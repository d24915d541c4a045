// The columns of the list of objects: those that there are, those that are shown at first, and their choice.
//
// A column has the name that the address and the server's `sort` use: `state`, `label.tier`, `spec.address`.

import { h } from "../core/dom.js";
import { classOf, store } from "../core/store.js";
import { moment } from "../core/time.js";
import { objectAnchor, relativeTime } from "./components.js";
import { columnsOf } from "./object-columns.js";
import { popupButton } from "./popup.js";
import { labelOf, valueText, withoutNull } from "./schema-words.js";
import { badge } from "./states.js";

/** @import {ObjectView} from "../core/types.js" */
/** @import {Column} from "./virtual-table.js" */
/** @import {Schema} from "./schema-words.js" */

/** @typedef {Column<ObjectView> & {id: string}} ObjectColumn */

/** @param {ObjectView} row */
const labels = (row) => Object.entries(row.labels).map(([name, value]) => `${name}=${value}`).join("  ");

/** @param {string} text */
const titled = (text) => h("span", { title: text }, text);

/** @type {ObjectColumn[]} */
const GENERAL = [
  { id: "id", name: "id", sort: "id", width: "minmax(140px, 2fr)", cell: (row) => objectAnchor(row.ns, row.id) },
  { id: "state", name: "state", sort: "state", width: "minmax(120px, 1fr)", cell: (row) => badge(row.state, classOf(row.kind, row.state)) },
  { id: "kind", name: "kind", sort: "kind", width: "minmax(100px, 1fr)", cell: (row) => row.kind },
  { id: "ns", name: "namespace", sort: "ns", width: "minmax(80px, .7fr)", cell: (row) => row.ns },
  { id: "parent", name: "parent", sort: "parent", width: "minmax(80px, 1fr)", cell: (row) => row.parent ?? "" },
  { id: "since", name: "since", sort: "since", width: "90px", cell: (row) => relativeTime(row.since) },
  { id: "created", name: "created", sort: "created", width: "150px", cell: (row) => moment(row.created) },
  { id: "labels", name: "labels", width: "minmax(120px, 2fr)", cell: (row) => titled(labels(row)) },
  {
    id: "error",
    name: "error",
    width: "minmax(120px, 2fr)",
    cell: (row) => h("span", { class: "error-text", title: row.error ?? "" }, row.error),
  },
];

/** The fields of a kind's spec that fit into a cell, with those of records inside. @param {Schema} given @param {string[]} path @returns {[string[], Schema][]} */
function specFields(given, path = []) {
  const { schema } = withoutNull(given);
  if (schema.writeOnly) return [];
  const inner = Object.entries(/** @type {Record<string, Schema>} */ (schema.properties ?? {}));
  if (inner.length) return path.length > 2 ? [] : inner.flatMap(([name, one]) => specFields(one, [...path, name]));
  return path.length && schema.type !== "object" && schema.type !== "array" ? [[path, given]] : [];
}

/** @param {string[]} path @param {Schema} schema @returns {ObjectColumn} */
function specColumn(path, schema) {
  const id = `spec.${path.join(".")}`;
  const valueOf = (/** @type {ObjectView} */ row) => path.reduce((value, key) => value?.[key], row.spec) ?? schema.default;
  const cell = (/** @type {ObjectView} */ row) => titled(valueText(valueOf(row), schema));
  const name = [...path.slice(0, -1), labelOf(path.at(-1) ?? "", schema)].join(" › ");
  return { id, name, sort: id, width: "minmax(90px, 1fr)", cell };
}

/** @param {string} name @returns {ObjectColumn} */
const labelColumn = (name) => ({
  id: `label.${name}`,
  name,
  sort: `label.${name}`,
  width: "minmax(90px, 1fr)",
  cell: (row) => titled(row.labels[name] ?? ""),
});

/**
 * All columns that objects of a kind, or of all kinds, can have.
 * @param {string} kind @param {Iterable<string>} labelNames
 */
export function allColumns(kind, labelNames) {
  const spec = specFields(store.kinds.get(kind)?.spec ?? {}).map(([path, schema]) => specColumn(path, schema));
  const known = new Set(spec.map((one) => one.id));
  const named = columnsOf(kind)
    .map(({ path, name, text }) => ({ id: path.replace(/^labels\./, "label."), name, text }))
    .filter(({ id }) => !id.startsWith("label.") && !known.has(id) && !GENERAL.some((one) => one.id === id))
    .map(({ id, name, text }) => ({ id, name, width: "minmax(90px, 1fr)", cell: (/** @type {ObjectView} */ row) => titled(text(row)) }));
  return [...GENERAL, ...spec, ...named, ...[...labelNames].sort().map(labelColumn)];
}

/** The columns that are shown at first: those that the kind names, or its name. @param {string} kind */
export function firstColumns(kind) {
  const named = columnsOf(kind).map(({ path }) => path.replace(/^labels\./, "label."));
  const own = named.length ? named.filter((id) => id !== "id" && id !== "state") : ["kind"];
  return [...new Set(["id", "state", ...own, "ns", "parent", "since", "labels", "error"])];
}

/** The columns of some names; a label is one, whether any object has it or not. @param {string[]} ids @param {ObjectColumn[]} all */
export function columnsNamed(ids, all) {
  const found = ids.map((id) => all.find((one) => one.id === id) ?? (id.startsWith("label.") ? labelColumn(id.slice(6)) : null));
  return /** @type {ObjectColumn[]} */ (found.filter(Boolean));
}

/**
 * The button and its list of columns.
 * @param {() => {all: ObjectColumn[], shown: string[]}} read
 * @param {(ids: string[]) => void} change an empty list is that of the kind
 */
export function columnButton(read, change) {
  return popupButton("columns", "Columns", (draw) => {
    const { all, shown } = read();
    const isOn = (/** @type {string} */ id) => shown.includes(id);
    const others = columnsNamed(shown, all).filter((one) => !all.some(({ id }) => id === one.id));
    const toggle = (/** @type {string} */ id) => {
      const order = [...all, ...others].map((one) => one.id);
      const ids = isOn(id) ? shown.filter((one) => one !== id) : [...shown, id].sort((a, b) => order.indexOf(a) - order.indexOf(b));
      change(ids);
      draw();
    };
    const box = (/** @type {ObjectColumn} */ one) =>
      h(
        "label",
        { class: "popup-choice" },
        h("input", { type: "checkbox", checked: isOn(one.id), disabled: one.id === "id", onchange: () => toggle(one.id) }),
        one.name,
      );
    const group = (/** @type {string} */ title, /** @type {ObjectColumn[]} */ some) =>
      some.length ? h("fieldset", null, h("legend", null, title), some.map(box)) : null;
    const isLabel = (/** @type {ObjectColumn} */ one) => one.id.startsWith("label.");
    const isGeneral = (/** @type {ObjectColumn} */ one) => GENERAL.some(({ id }) => id === one.id);
    return [
      group("Object", all.filter(isGeneral)),
      group("Spec", all.filter((one) => !isGeneral(one) && !isLabel(one))),
      group("Labels", [...all.filter(isLabel), ...others]),
      h("footer", null, h("button", { type: "button", onclick: () => (change([]), draw()) }, "Reset")),
    ];
  });
}
