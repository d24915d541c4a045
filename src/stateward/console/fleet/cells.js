// The cells of the fleet map: one for each object, loaded in one stream and updated by journal entries.

import { get, lines, objectPath, part } from "../core/api.js";
import { isNowhere } from "../core/store.js";

/** @import {JournalEntry, ObjectView} from "../core/types.js" */

const MAX_PARENTS_READ = 20;
const MAX_REMOVED_CELLS = 500;

/** @typedef {{ns: string, id: string, kind: string, state: string, place: string, parent: string, gone: boolean}} Cell */

/** All cells, in the order in which they were learned. */
export class Cells {
  constructor() {
    /** @type {Cell[]} */
    this.all = [];
    /** @type {Map<string, Map<string, number>>} where a cell is, by namespace and id */
    this.index = new Map();
    this.gone = 0;
  }

  /** @param {string} ns @param {string} id @returns {number | undefined} */
  find(ns, id) {
    return this.index.get(ns)?.get(id);
  }

  /** @param {string[]} namespaces @param {AbortSignal} signal @param {() => void} onChunk */
  async load(namespaces, signal, onChunk) {
    for (const ns of namespaces) {
      for await (const text of lines(`/ns/${part(ns)}/map`, {}, "application/x-ndjson", signal)) {
        if (text) this.take(ns, JSON.parse(text));
        onChunk();
      }
    }
  }

  /** @param {string} ns @param {{words: string[], cells: (string | number)[]}} chunk */
  take(ns, { words, cells }) {
    for (let at = 0; at < cells.length; at += 5) {
      const [kind = "", state = "", place = "", parent = ""] = [1, 2, 3, 4].map(
        (step) => words[Number(cells[at + step])],
      );
      this.put({ ns, id: String(cells[at]), kind, state, place, parent, gone: false });
    }
  }

  /** @param {Cell} cell @returns {number} where it is */
  put(cell) {
    const known = this.find(cell.ns, cell.id);
    if (known !== undefined) {
      this.all[known] = cell;
      return known;
    }
    const names = this.index.get(cell.ns) ?? new Map();
    this.index.set(cell.ns, names.set(cell.id, this.all.length));
    return this.all.push(cell) - 1;
  }

  /**
   * Apply journal entries; returns the cells that changed, and the entries of new objects.
   * @param {JournalEntry[]} fresh
   * @param {(ns: string) => boolean} wanted
   */
  apply(fresh, wanted) {
    const changed = [];
    /** @type {JournalEntry[]} */
    const created = [];
    for (const entry of fresh) {
      if (entry.target === null || !wanted(entry.ns)) continue;
      const known = this.find(entry.ns, entry.object);
      const cell = known === undefined ? undefined : this.all[known];
      if (known === undefined || cell === undefined) {
        if (!isNowhere(entry.kind, entry.target)) {
          this.put(cellOf(entry));
          created.push(entry);
        }
        continue;
      }
      cell.state = entry.target;
      const gone = isNowhere(entry.kind, entry.target);
      if (gone !== cell.gone) this.gone += gone ? 1 : -1;
      cell.gone = gone;
      changed.push(known);
    }
    return { changed, created };
  }

  /** Read where new objects are, of the first few. @param {JournalEntry[]} created @param {AbortSignal} signal */
  async readPlaces(created, signal) {
    await Promise.all(created.slice(0, MAX_PARENTS_READ).map((entry) => this.readPlace(entry, signal)));
  }

  /** @param {JournalEntry} entry @param {AbortSignal} signal */
  async readPlace(entry, signal) {
    /** @type {ObjectView} */
    let found;
    try {
      found = await get(objectPath({ ns: entry.ns, id: entry.object }), {}, signal);
    } catch {
      return; // the object is gone already
    }
    const known = this.find(entry.ns, entry.object);
    const cell = known === undefined ? undefined : this.all[known];
    if (cell) Object.assign(cell, { place: placeOf(found.spec), parent: found.parent ?? "" });
  }

  /** Remove the cells of removed objects, once they are many; returns whether it did. */
  compact() {
    if (this.gone < MAX_REMOVED_CELLS) return false;
    const kept = this.all.filter((cell) => !cell.gone);
    this.all = [];
    this.index = new Map();
    this.gone = 0;
    for (const cell of kept) this.put(cell);
    return true;
  }
}

/** @param {JournalEntry} entry @returns {Cell} */
function cellOf(entry) {
  return {
    ns: entry.ns,
    id: entry.object,
    kind: entry.kind,
    state: entry.target ?? "",
    place: placeOf(entry.spec),
    parent: "",
    gone: false,
  };
}

/** @param {any} spec @returns {string} */
export function placeOf(spec) {
  return spec?.provider ? [spec.provider, spec.region].filter(Boolean).join("/") : "";
}
