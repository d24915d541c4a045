// Counts of objects by the values of some fields. The server's database counts; no page of objects is read for it.

import { get, part } from "./api.js";

/** @import {Filter} from "./pagination.js" */

/** @typedef {{by: string[], rows: {values: (string | null)[], count: number}[], total: number}} ObjectCounts */

/**
 * Count the matching objects of a namespace.
 * @param {string} ns
 * @param {string[]} by `kind`, `state`, `parent`, `label.NAME`
 * @param {Filter} [filter]
 * @param {AbortSignal} [signal]
 * @returns {Promise<ObjectCounts>}
 */
export async function countObjects(ns, by, filter = {}, signal) {
  return get(`/ns/${part(ns)}/counts`, { by: by.join(","), ...filter }, signal);
}

/** @typedef {ObjectCounts["rows"]} CountRows */

/** @param {CountRows} rows @returns {number} */
export function totalOf(rows) {
  return rows.reduce((sum, row) => sum + row.count, 0);
}

/** Rows by the value of a field, in the order of the values. @param {CountRows} rows @param {number} place @returns {Map<string | null, CountRows>} */
export function rowsBy(rows, place) {
  /** @type {Map<string | null, CountRows>} */
  const groups = new Map();
  for (const row of rows) {
    const value = row.values[place] ?? null;
    const group = groups.get(value);
    if (group) group.push(row);
    else groups.set(value, [row]);
  }
  return groups;
}

/** The numbers of a field's values. @param {CountRows} rows @param {number} place @returns {Map<string, number>} */
export function countsBy(rows, place) {
  return new Map([...rowsBy(rows, place)].map(([value, some]) => [value ?? "", totalOf(some)]));
}
