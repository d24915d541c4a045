// A table with any number of rows: only visible rows are in the page, and further pages are read on scrolling.

import { fill, h, oncePerFrame } from "../core/dom.js";
import { showProblem } from "./problems.js";

/** @import {Child} from "../core/dom.js" */

const ROW_PX = 34;
const ROWS_AHEAD = 12;
const GAP_PX = 14;

/**
 * @template T
 * @typedef {{name: string, width: string, sort?: string, cell: (row: T) => Child | Child[]}} Column `sort` is how the server calls its order
 */

/** @template T */
export class VirtualTable {
  /**
   * @param {object} how
   * @param {string} how.name
   * @param {Column<T>[]} how.columns
   * @param {(row: T) => string} how.keyOf
   * @param {(row: T) => void} how.onOpen
   * @param {() => void} [how.onSelect] makes rows selectable
   * @param {() => Promise<T[] | null>} [how.more] the next page, or null if there is none
   * @param {() => void} [how.loaded] is called when a page has arrived
   * @param {() => string} how.foot
   * @param {{current: () => string, change: (sort: string) => void}} [how.sorting] the order, descending with a `-`
   */
  constructor(how) {
    this.how = how;
    /** @type {T[]} */
    this.rows = [];
    /** @type {Map<string, number>} */
    this.places = new Map();
    /** @type {Set<string>} */
    this.selected = new Set();
    /** @type {Set<string>} */
    this.fresh = new Set();
    this.cursor = 0;
    this.anchor = 0;
    this.loading = false;
    this.done = how.more === undefined;
    this.space = h("div", { class: "vspace", role: "presentation" });
    this.body = h(
      "div",
      {
        class: "vbody",
        role: "rowgroup",
        tabindex: "-1",
        onscroll: () => this.show(),
        onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event),
      },
      this.space,
    );
    this.head = h("div", { role: "rowgroup" });
    this.foot = h("div", { class: "vfoot", role: "status" });
    const grid = h(
      "div",
      { role: "grid", "aria-label": how.name, "aria-multiselectable": how.onSelect ? "true" : null },
      this.head,
      this.body,
    );
    this.element = h("div", { class: how.onSelect ? "vtable selectable" : "vtable" }, grid, this.foot);
    this.setColumns(how.columns);
    this.show = oncePerFrame(() => this.draw());
    new ResizeObserver(this.show).observe(this.body);
  }

  /** Show other columns. @param {Column<T>[]} columns */
  setColumns(columns) {
    this.how.columns = columns;
    const widths = [this.how.onSelect ? "22px" : null, ...columns.map((one) => one.width)].filter(Boolean);
    this.element.style.setProperty("--columns", widths.join(" "));
    const least = widths.reduce((sum, one) => sum + Number(/\d+/.exec(one ?? "")?.[0] ?? 0) + GAP_PX, 2 * GAP_PX);
    this.element.style.setProperty("--least", `${least}px`);
    const names = this.how.columns.map((one) => this.columnHead(one));
    const first = this.how.onSelect
      ? h("span", { role: "columnheader" }, h("span", { class: "unseen" }, "Selected"))
      : null;
    fill(this.head, h("div", { class: "vhead", role: "row" }, first, names));
  }

  /** The name of a column, or the button that sorts by it. @param {Column<T>} column */
  columnHead({ name, sort }) {
    const sorting = this.how.sorting;
    if (!sorting || !sort) return h("span", { role: "columnheader" }, name);
    const current = sorting.current();
    const order = { [sort]: "ascending", [`-${sort}`]: "descending" }[current] ?? "none";
    const arrow = { ascending: " ↑", descending: " ↓", none: "" }[order];
    const change = () => sorting.change(order === "ascending" ? `-${sort}` : sort);
    const button = h("button", { type: "button", class: "sort", onclick: change, title: `Sort by ${name}` }, name, h("span", { "aria-hidden": "true" }, arrow));
    return h("span", { role: "columnheader", "aria-sort": order }, button);
  }

  /** @param {T[]} rows */
  add(rows) {
    for (const row of rows) {
      const key = this.how.keyOf(row);
      if (this.places.has(key)) continue;
      this.places.set(key, this.rows.push(row) - 1);
    }
    this.show();
  }

  clear() {
    this.rows = [];
    this.places.clear();
    this.selected.clear();
    this.cursor = 0;
    this.done = this.how.more === undefined;
    this.body.scrollTop = 0;
    this.show();
  }

  /** Change a row that is there. @param {string} key @param {(row: T) => void} change */
  change(key, change) {
    const place = this.places.get(key);
    const row = place === undefined ? undefined : this.rows[place];
    if (row === undefined) return;
    change(row);
    this.fresh.add(key);
    this.show();
  }

  draw() {
    const tall = Math.max(ROW_PX, this.rows.length * ROW_PX);
    this.space.style.height = `${tall}px`;
    const first = Math.max(0, Math.floor(this.body.scrollTop / ROW_PX) - ROWS_AHEAD);
    const last = Math.min(this.rows.length, Math.ceil((this.body.scrollTop + this.body.clientHeight) / ROW_PX) + ROWS_AHEAD);
    const focused = this.space.contains(document.activeElement);
    fill(this.space, this.rows.slice(first, last).map((row, number) => this.row(row, first + number)));
    if (focused) this.focusRow();
    this.fresh.clear();
    this.foot.textContent = this.how.foot();
    if (last >= this.rows.length - ROWS_AHEAD) this.load();
  }

  /** @param {T} row @param {number} number */
  row(row, number) {
    const key = this.how.keyOf(row);
    const chosen = this.selected.has(key);
    const mark = () => h("input", { type: "checkbox", tabindex: "-1", checked: chosen, "aria-label": `Select ${key}` });
    return h(
      "div",
      {
        class: this.fresh.has(key) ? "vrow fresh" : "vrow",
        role: "row",
        tabindex: number === this.cursor ? "0" : "-1",
        "aria-rowindex": number + 2,
        "aria-selected": this.how.onSelect ? String(chosen) : null,
        "data-key": key,
        style: { top: `${number * ROW_PX}px` },
        onclick: (/** @type {MouseEvent} */ event) => this.click(event, number),
      },
      this.how.onSelect ? h("span", { role: "gridcell" }, mark()) : null,
      this.how.columns.map((one) => h("span", { role: "gridcell" }, one.cell(row))),
    );
  }

  async load() {
    if (this.loading || this.done || this.how.more === undefined) return;
    this.loading = true;
    try {
      const page = await this.how.more();
      if (page === null) this.done = true;
      else this.add(page);
    } catch (error) {
      this.done = true;
      if (/** @type {any} */ (error)?.name !== "AbortError") showProblem(error);
    }
    this.loading = false;
    this.show();
    this.how.loaded?.();
  }

  // --- choosing ------------------------------------------------------------------------------------------------------

  /** @param {MouseEvent} event @param {number} number */
  click(event, number) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (target.closest("a")) return;
    this.cursor = number;
    if (target.matches("input") || event.shiftKey || event.ctrlKey || event.metaKey)
      this.select(number, event.shiftKey);
    else {
      const row = this.rows[number];
      if (row !== undefined) this.how.onOpen(row);
    }
  }

  /** @param {number} number @param {boolean} range */
  select(number, range) {
    if (!this.how.onSelect) return;
    const [from, to] = range ? [Math.min(this.anchor, number), Math.max(this.anchor, number)] : [number, number];
    const keys = this.rows.slice(from, to + 1).map(this.how.keyOf);
    const on = range || !this.selected.has(keys[0] ?? "");
    for (const key of keys) {
      if (on) this.selected.add(key);
      else this.selected.delete(key);
    }
    this.anchor = number;
    this.show();
    this.how.onSelect();
  }

  /** @param {boolean} on */
  selectAll(on) {
    this.selected = new Set(on ? this.rows.map(this.how.keyOf) : []);
    this.show();
    this.how.onSelect?.();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const page = Math.floor(this.body.clientHeight / ROW_PX);
    const steps = /** @type {Record<string, number>} */ ({
      ArrowDown: 1,
      ArrowUp: -1,
      PageDown: page,
      PageUp: -page,
      Home: -this.rows.length,
      End: this.rows.length,
    });
    const step = steps[event.key];
    const row = this.rows[this.cursor];
    if (step !== undefined) this.walk(step, event.shiftKey);
    else if (event.key === "Enter" && row !== undefined) this.how.onOpen(row);
    else if (event.key === " ") this.select(this.cursor, false);
    else return;
    event.preventDefault();
  }

  /** @param {number} step @param {boolean} range */
  walk(step, range) {
    this.cursor = Math.min(this.rows.length - 1, Math.max(0, this.cursor + step));
    const top = this.cursor * ROW_PX;
    if (top < this.body.scrollTop) this.body.scrollTop = top;
    if (top + ROW_PX > this.body.scrollTop + this.body.clientHeight)
      this.body.scrollTop = top + ROW_PX - this.body.clientHeight;
    if (range) this.select(this.cursor, true);
    this.draw();
    this.focusRow();
  }

  focusRow() {
    const row = this.space.querySelector(`[aria-rowindex="${this.cursor + 2}"]`);
    if (row) /** @type {HTMLElement} */ (row).focus({ preventScroll: true });
    else this.body.focus({ preventScroll: true });
  }
}
