// All objects: search, filter, choose, and act on many at once.

import { get, objectPath } from "../core/api.js";
import { fill, h, oncePerFrame, throttle } from "../core/dom.js";
import { BulkBar } from "../ui/bulk-bar.js";
import { splitList } from "../ui/form.js";
import { code, empty, heading, labeled, select, wordOptions } from "../ui/components.js";
import { readableNamespaces, SortedPager } from "../core/pagination.js";
import { go, keepQuery, objectLink, pushQuery } from "../core/links.js";
import { ALL, chooseNamespace, classOf, isNowhere, namespaces, store, tally } from "../core/store.js";
import { allColumns, columnButton, columnsNamed, firstColumns } from "../ui/column-choice.js";
import { demoAdvice } from "../ui/missing.js";
import { columnsOf } from "../ui/object-columns.js";
import { attempt } from "../ui/problems.js";
import { fleetTone, HEALTHS } from "../ui/states.js";
import { viewsButton } from "../ui/saved-views.js";
import { VirtualTable } from "../ui/virtual-table.js";
import { createAnyButton } from "../ui/create-buttons.js";
import { numberText } from "../core/numbers.js";

/** @import {Context, JournalEntry, ObjectView} from "../core/types.js" */
/** @import {Filter} from "../core/pagination.js" */

const REREAD_MS = 1_000;
const MAX_REREAD = 50;
/** So many selected rows fit into the address, and are looked for among so many rows of a list that a link shows. All
 * that match the filter fit, too, however many they are. */
const MAX_ADDRESSED = 50;
const ALL_MATCHING = "all"; // no row: their keys have a slash
const MAX_AWAITED = 2_000;

/** @param {ObjectView} row */
const keyOf = (row) => `${row.ns}/${row.id}`;

/** @param {Context} context */
function show(context) {
  const ns = context.query.get("ns");
  if (ns && ns !== store.ns && (ns === ALL || namespaces().includes(ns))) return chooseNamespace(ns); // which shows it anew
  const given = (/** @type {string} */ name) => context.query.get(name) ?? "";
  const filter = { kind: given("kind"), state: given("state"), health: given("health") in HEALTHS ? given("health") : "", label: given("label"), q: given("q") };
  const order = { sort: given("sort"), columns: given("columns").split(",").filter(Boolean) };
  /** @type {Set<string>} selected rows of the address that have not been read yet */
  const awaited = new Set(given("selected").split(",").filter((one) => one.includes("/")));
  let isAllAwaited = given("selected") === ALL_MATCHING;
  /** @type {Set<string>} */
  const labelNames = new Set();
  let pager = newPager();
  /** @type {Set<string>} objects that match since the list was read, as far as the journal tells */
  const created = new Set();

  /** What the address holds: another browser shows the same. @returns {Record<string, string>} */
  function addressed() {
    return { ...filter, ns: store.ns, sort: order.sort, columns: order.columns.join(","), selected: selectedText() };
  }

  function selectedText() {
    if (isAllAwaited || bulk.matching) return ALL_MATCHING;
    return rows.selected.size <= MAX_ADDRESSED ? [...rows.selected].join(",") : isEverything() ? ALL_MATCHING : "";
  }

  /** Whether all that match are shown and selected. */
  const isEverything = () => pager.done && rows.selected.size === rows.rows.length;

  const shownColumns = () => (order.columns.length ? order.columns : firstColumns(filter.kind));
  const columnsNow = () => columnsNamed(shownColumns(), allColumns(filter.kind, labelNames));

  /** Select the rows that the address names as they arrive; those on far pages are left out. */
  function selectAwaited() {
    for (const key of awaited) {
      if (!rows.places.has(key)) continue;
      awaited.delete(key);
      rows.selected.add(key);
    }
    if (awaited.size && !pager.done && rows.rows.length < MAX_AWAITED) rows.load();
  }

  function newPager() {
    const made = new SortedPager(wanted(), order.sort);
    if (filter.health && !wanted().state) made.after = null; // no state counts as this
    return made;
  }

  /** @returns {Filter} */
  function wanted() {
    const label = splitList(filter.label).filter((one) => one.includes("="));
    return { kind: filter.kind, state: filter.state || statesOf(filter.health, filter.kind), label, q: filter.q };
  }

  /** Whether a state matches: states of the same name may differ by kind. @param {string} kind @param {string | null} state */
  const isWanted = (kind, state) =>
    state !== null &&
    !isNowhere(kind, state) &&
    (!filter.kind || kind === filter.kind) &&
    (!filter.state || filter.state.split(",").includes(state)) &&
    (!filter.health || isOfHealth(filter.health, kind, state));

  /** Whether an entry brings an object into the list. It does not tell labels. @param {JournalEntry} entry */
  const isNew = (entry) =>
    readableNamespaces().includes(entry.ns) &&
    isWanted(entry.kind, entry.target) &&
    !isWanted(entry.kind, entry.source) &&
    !filter.label &&
    entry.object.toLowerCase().includes(filter.q.toLowerCase());

  const none = h("div", { hidden: true });
  const create = h("span", null);
  const filters = h("form", { class: "filters", onsubmit: (/** @type {Event} */ event) => event.preventDefault() });

  /** @type {VirtualTable<ObjectView>} */
  const rows = new VirtualTable({
    name: "Objects",
    columns: columnsNow(),
    sorting: { current: () => order.sort || "id", change: (sort) => ((order.sort = sort === "id" ? "" : sort), reload()) },
    keyOf,
    onOpen: (row) => go(objectLink(row.ns, row.id)),
    onSelect: showSelection,
    more: async () => {
      /** @type {ObjectView[] | null} */
      let page = null;
      while (!pager.done && !page?.length) {
        const reading = pager;
        const found = await reading.next(context.signal);
        if (reading === pager) page = found.filter((row) => isWanted(row.kind, row.state)); // else another order is wanted now
      }
      for (const row of page ?? []) for (const name of Object.keys(row.labels)) labelNames.add(name);
      return page;
    },
    loaded: () => {
      const before = rows.selected.size;
      if (awaited.size) selectAwaited();
      showNone();
      if (rows.selected.size > before) showSelection();
      if (isAllAwaited) void attempt(() => bulk.chooseMatching()).then(() => (isAllAwaited = false));
    },
    foot: () => foot(rows.rows.length, pager.done, filter, isWanted, [...created].filter((key) => !rows.places.has(key)).length),
  });

  function reload() {
    if (order.sort.replace("-", "").startsWith("spec.") && !columnsNow().some(({ sort }) => order.sort.endsWith(sort ?? "?")))
      order.sort = ""; // of another kind
    pager = newPager();
    created.clear();
    rows.selected.clear();
    isAllAwaited = false;
    bulk.matching = null;
    pushQuery(addressed());
    rows.setColumns(columnsNow());
    fill(create, createAnyButton(filter.kind, reload));
    rows.clear();
    showFilters();
    bulk.show();
  }

  function showSelection() {
    bulk.show();
    keepQuery(addressed());
  }

  function showNone() {
    const hidden = rows.element.hidden;
    none.hidden = rows.rows.length > 0 || !pager.done || rows.loading;
    rows.element.hidden = !none.hidden;
    if (hidden && none.hidden) rows.show();
    const narrow = Object.values(filter).some(Boolean);
    fill(
      none,
      narrow
        ? empty(
            "No objects match.",
            h(
              "button",
              { onclick: () => (Object.assign(filter, { kind: "", state: "", health: "", label: "", q: "" }), reload()) },
              "Show all objects",
            ),
          )
        : empty(
            "No objects yet.",
            "Create one with the button above or with ",
            code("stateward create KIND/ID"),
            demoAdvice(),
          ),
    );
  }

  function showFilters() {
    const counts = tally();
    const kinds = [...new Set([...counts.keys(), ...(filter.kind ? [filter.kind] : [])])].sort();
    const states = [
      ...new Set((filter.kind ? [filter.kind] : kinds).flatMap((kind) => [...(counts.get(kind)?.keys() ?? [])])),
    ].sort();
    /** @param {keyof typeof filter} name @returns {(event: any) => void} */
    const typed = (name) => (event) => ((filter[name] = event.target.value.trim()), reload());
    fill(
      filters,
      labeled("id contains", h("input", { name: "q", value: filter.q, onchange: typed("q"), type: "search" })),
      labeled(
        "kind",
        select(
          [["", "any"], ...wordOptions(...kinds)],
          filter.kind,
          (value) => (Object.assign(filter, { kind: value, state: "" }), (order.columns = []), reload()),
          "Kind",
        ),
      ),
      labeled(
        "state",
        select([["", "any"], ...wordOptions(...states)], filter.state, (value) => ((filter.state = value), reload()), "State"),
      ),
      labeled(
        "health",
        select([["", "any"], ...wordOptions(...Object.keys(HEALTHS))], filter.health, (value) => ((filter.health = value), reload()), "Health"),
      ),
      labeled(
        "label",
        h("input", { name: "label", value: filter.label, placeholder: "tier=web", onchange: typed("label") }),
      ),
    );
  }

  // --- acting on many ------------------------------------------------------------------------------------------------

  const bulk = new BulkBar({
    chosen: () => rows.rows.filter((row) => rows.selected.has(keyOf(row))),
    canBeMore: () => !pager.done,
    matching: () => ({ namespaces: readableNamespaces(), filter: wanted() }),
    isWanted,
    selectAll: (all) => rows.selectAll(all),
    onMatching: () => keepQuery(addressed()),
    hint: () =>
      rows.selected.size > MAX_ADDRESSED && !isEverything() ? `The address keeps at most ${MAX_ADDRESSED} selected objects, or all that match.` : "",
  });

  /** @type {Set<string>} rows whose columns may have changed: the journal has the states only */
  const stale = new Set();
  const reread = throttle(REREAD_MS, async () => {
    const keys = [...stale];
    stale.clear();
    for (const key of keys) {
      const row = rows.rows[rows.places.get(key) ?? -1];
      const found = row && (await get(objectPath(row), {}, context.signal).catch(() => null));
      if (found) rows.change(key, (old) => Object.assign(old, found));
    }
  });
  context.on("entries", (/** @type {JournalEntry[]} */ entries) => {
    for (const entry of entries) {
      if (entry.target === null) continue;
      const target = entry.target;
      const key = `${entry.ns}/${entry.object}`;
      if (rows.places.has(key)) {
        rows.change(key, (row) => Object.assign(row, { state: target, since: entry.at, error: entry.reason }));
        if (stale.size < MAX_REREAD && columnsOf(entry.kind).length) stale.add(key);
        if (stale.size) reread();
      }
      else if (isNew(entry)) created.add(key);
      else if (!isWanted(entry.kind, target)) created.delete(key);
    }
    rows.show();
  });
  context.on("counts", oncePerFrame(showNone));
  fill(
    context.main,
    heading(
      "Objects",
      "arrow keys move, Enter opens, Space selects, Shift+click selects a range",
      create,
      columnButton(
        () => ({ all: allColumns(filter.kind, labelNames), shown: shownColumns() }),
        (ids) => {
          order.columns = ids;
          pushQuery(addressed());
          rows.setColumns(columnsNow());
          rows.show();
        },
      ),
      viewsButton(),
      h("button", { onclick: reload }, "Reload"),
    ),
    filters,
    bulk.element,
    none,
    rows.element,
  );
  fill(create, createAnyButton(filter.kind, reload));
  showFilters();
}

/** @param {string} health @param {string} kind @param {string} state */
const isOfHealth = (health, kind, state) =>
  !isNowhere(kind, state) && (HEALTHS[health]?.includes(fleetTone(state, classOf(kind, state))) ?? false);

/** The states that some kind, or the only one, counts as this health; empty if any. @param {string} health @param {string} only @returns {string} */
function statesOf(health, only) {
  if (!health) return "";
  const kinds = [...store.kinds.values()].filter(({ kind }) => !only || kind === only);
  const found = kinds.flatMap(({ kind, states }) => states.filter(({ state }) => isOfHealth(health, kind, state)));
  return [...new Set(found.map(({ state }) => state))].join(",");
}

/** @param {number} shown @param {boolean} done @param {{label: string, q: string}} filter @param {(kind: string, state: string) => boolean} isWanted @param {number} created */
function foot(shown, done, filter, isWanted, created) {
  let total = 0;
  for (const [kind, states] of tally()) for (const [state, count] of states) if (isWanted(kind, state)) total += count;
  const known = !filter.q && !filter.label ? ` of ${numberText(Math.max(total, shown))}` : "";
  return `${numberText(shown)}${known} shown${done ? "" : ", more below"}${created ? ` · ${created} new: reload` : ""}`;
}

export default { title: "Objects", show };
