// The bar over a list of objects for actions on many: on the selected ones, or on all that match the filter.
//
// It offers only actions that the states of the chosen objects allow. The action dialog shows the preview, and the
// notice shows how it goes; all objects of one namespace are one entry in the list of operations.

import { countObjects } from "../core/counts.js";
import { actionForm } from "../core/domains.js";
import { fill, h } from "../core/dom.js";
import { allObjects } from "../core/pagination.js";
import { may, store } from "../core/store.js";
import { filterTarget, isOnParts, listTarget, objectTarget } from "./action-target.js";
import { quiet } from "./components.js";
import { countWords, titleOf } from "./kind-words.js";
import { askWithArguments, isRemoval, once } from "./object-actions.js";
import { attempt } from "./problems.js";
import { numberText } from "../core/numbers.js";

/** @import {ObjectView} from "../core/types.js" */
/** @import {Filter} from "../core/pagination.js" */
/** @import {ActionTarget} from "./action-target.js" */

/** @typedef {{kind: string, state: string, count: number}} ChosenState objects of one kind in one state */

/**
 * @typedef {object} BulkOptions
 * @property {() => ObjectView[]} chosen
 * @property {() => boolean} canBeMore whether more objects match than are shown, and all that are shown are selected
 * @property {() => {namespaces: string[], filter: Filter}} matching
 * @property {(kind: string, state: string) => boolean} isWanted whether a state of a kind matches: the server's filter has names of states only
 * @property {(all: boolean) => void} selectAll selects all that are shown, or none
 * @property {() => void} onMatching runs when all that match were chosen, or no longer are
 * @property {() => string} hint what else is to be known about the selection; empty if nothing
 */

export class BulkBar {
  /** @param {BulkOptions} options */
  constructor(options) {
    this.options = options;
    this.element = h("div", { class: "bulk", hidden: true });
    /** @type {ChosenState[] | null} the numbers of all that match, if they are chosen */
    this.matching = null;
    /** Whether the filter of the server matches more than is wanted. */
    this.isNarrower = false;
    /** @type {string[]} the namespaces that have some of them */
    this.namespaces = [];
  }

  /** Show the bar for what is selected now. */
  show() {
    this.matching = null;
    this.draw();
  }

  draw() {
    const things = this.options.chosen();
    this.element.hidden = things.length === 0 && this.matching === null;
    if (this.element.hidden) return;
    const states = this.matching ?? statesOf(things);
    const total = states.reduce((sum, one) => sum + one.count, 0);
    const kinds = [...new Set(states.map((one) => one.kind))];
    const words = countWords(kinds.length === 1 ? (kinds[0] ?? null) : null, total);
    fill(
      this.element,
      h("b", { role: "status" }, this.matching ? `All ${words} that match` : `${words} selected`),
      may("act") ? this.actions(states, total, things) : quiet(`your role, ${store.me?.role}, is read-only`),
      !this.matching && this.options.hint() ? quiet(this.options.hint()) : null,
      h(
        "span",
        { class: "row choice" },
        !this.matching && this.options.canBeMore() ? h("button", { onclick: () => attempt(() => this.chooseMatching()) }, "Select all that match") : null,
        !this.matching ? h("button", { onclick: () => this.options.selectAll(true) }, "Select all shown") : null,
        h("button", { onclick: () => this.clear() }, "Clear selection"),
      ),
    );
  }

  /** @param {ChosenState[]} states @param {number} total @param {ObjectView[]} things */
  actions(states, total, things) {
    const offered = actionsOf(states).filter(([action]) => !things.some((one) => actionForm(one, action)?.fields));
    if (!offered.length) return quiet("No action is allowed in these states.");
    const kinds = [...new Set(states.map((one) => one.kind))];
    const buttons = offered.map(([action, count]) => {
      const about = count < total ? `allowed for ${numberText(count)} of ${numberText(total)}` : "";
      const button = h(
        "button",
        {
          "data-action": action,
          class: kinds.some((kind) => isRemoval(kind, action)) ? "danger" : "",
          title: about,
          onclick: () => once(button, () => this.ask(action, total, things)),
        },
        `${titleOf(action)}…`,
        count < total ? quiet(` ${numberText(count)}`) : null,
      );
      return button;
    });
    return h("span", { class: "row", role: "group", "aria-label": "Actions" }, buttons);
  }

  /** @param {string} action @param {number} total @param {ObjectView[]} things */
  async ask(action, total, things) {
    const isOfParts = this.matching?.some(({ kind }) => isOnParts(kind, action));
    const all = isOfParts ? await allObjects(this.options.matching().filter) : [];
    const named = isOfParts ? all.filter(({ kind, state }) => this.options.isWanted(kind, state)) : things;
    const [first, ...others] = named;
    const alone = first && !others.length ? objectTarget(first) : listTarget(named); // one has the API of its domain
    const target = this.matching && !isOfParts ? this.matchingTarget(total) : alone;
    await askWithArguments(target, action, () => this.clear());
  }

  /** @param {number} total @returns {ActionTarget} */
  matchingTarget(total) {
    const { filter } = this.options.matching();
    const matching = this.matching ?? [];
    const kinds = [...new Set(matching.map((one) => one.kind))];
    const statesIn = (/** @type {string} */ kind) => [...new Set(matching.filter((one) => one.kind === kind).map((one) => one.state))].join(",");
    const filters = this.isNarrower ? kinds.map((kind) => ({ ...filter, kind, state: statesIn(kind) })) : [filter];
    return filterTarget(this.namespaces, filters, kinds, total);
  }

  async chooseMatching() {
    const { namespaces, filter } = this.options.matching();
    const counts = await Promise.all(namespaces.map((ns) => countObjects(ns, ["kind", "state"], filter)));
    this.namespaces = namespaces.filter((_, number) => counts[number]?.total);
    const found = counts.flatMap(({ rows }) =>
      rows.map(({ values: [kind, state], count }) => ({ kind: kind ?? "", state: state ?? "", count })),
    );
    this.matching = found.filter(({ kind, state }) => this.options.isWanted(kind, state));
    this.isNarrower = this.matching.length < found.length;
    this.draw();
    this.options.onMatching();
  }

  clear() {
    this.matching = null;
    this.options.selectAll(false);
    this.draw();
    this.options.onMatching();
  }
}

/** @param {ObjectView[]} things @returns {ChosenState[]} */
function statesOf(things) {
  /** @type {Map<string, ChosenState>} */
  const sums = new Map();
  for (const { kind, state } of things) {
    const sum = sums.get(`${kind} ${state}`) ?? { kind, state, count: 0 };
    sums.set(`${kind} ${state}`, { ...sum, count: sum.count + 1 });
  }
  return [...sums.values()];
}

/** The actions that some of these states allow to people, and how many objects: the most first, removals last. @param {ChosenState[]} states @returns {[string, number][]} */
function actionsOf(states) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  const actors = may("govern") ? ["user", "admin"] : ["user"];
  for (const { kind, state, count } of states) {
    const known = store.kinds.get(kind);
    const rows = known?.rows.filter(
      (row) =>
        known.actions.includes(row.event) &&
        row.sources.includes(state) &&
        !row.needs.length &&
        row.actors.some((one) => actors.includes(one)),
    );
    for (const action of new Set(rows?.map((row) => row.event))) counts.set(action, (counts.get(action) ?? 0) + count);
  }
  const rank = (/** @type {string} */ action) => Number(states.some(({ kind }) => isRemoval(kind, action)));
  return [...counts].sort(([one, few], [other, many]) => rank(one) - rank(other) || many - few);
}
