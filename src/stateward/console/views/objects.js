// All objects: search, filter, choose, and act on many at once.

import { get, objectPath, part, send } from "../core/api.js";
import { actionForm, argsSchema } from "../core/domains.js";
import { fill, h, oncePerFrame, throttle } from "../core/dom.js";
import { BulkAction } from "../ui/bulk-action.js";
import { showSchemaForm, splitList } from "../ui/form.js";
import { card, code, confirm, empty, heading, labeled, objectAnchor, quiet, select, table, wordOptions } from "../ui/components.js";
import { attempt, toast } from "../ui/problems.js";
import { allObjects, Pager, readableNamespaces } from "../core/pagination.js";
import { go, keepQuery, objectLink } from "../core/links.js";
import { badge } from "../ui/states.js";
import { classOf, isNowhere, may, store, tally } from "../core/store.js";
import { ago } from "../core/time.js";
import { columnsOf } from "../ui/object-columns.js";
import { VirtualTable } from "../ui/virtual-table.js";
import { createAnyButton } from "../ui/create-buttons.js";

/** @import {Context, JournalEntry, ObjectView} from "../core/types.js" */
/** @import {Filter} from "../core/pagination.js" */
/** @import {Column} from "../ui/virtual-table.js" */

const REREAD_MS = 1_000;
const MAX_REREAD = 50;

/** @param {ObjectView} row */
const keyOf = (row) => `${row.ns}/${row.id}`;

/** @param {Context} context */
function show(context) {
  const filter = { kind: "", state: "", label: "", q: "", ...Object.fromEntries(context.query) };
  let pager = new Pager(readableNamespaces(), wanted());
  let created = 0;

  /** @returns {Filter} */
  function wanted() {
    const label = splitList(filter.label).filter((one) => one.includes("="));
    return { kind: filter.kind, state: filter.state, label, q: filter.q };
  }

  const none = h("div", { hidden: true });
  const bulk = h("div", { class: "bulk", hidden: true });
  const results = h("div", { class: "column" });
  const create = h("span", null);
  const filters = h("form", { class: "filters", onsubmit: (/** @type {Event} */ event) => event.preventDefault() });

  /** @type {VirtualTable<ObjectView>} */
  const rows = new VirtualTable({
    name: "Objects",
    columns: tableColumns(filter.kind),
    keyOf,
    onOpen: (row) => go(objectLink(row.ns, row.id)),
    onSelect: showBulk,
    more: async () => (pager.done ? null : pager.next(context.signal)),
    loaded: showNone,
    foot: () => foot(rows.rows.length, pager.done, filter, created),
  });

  function reload() {
    pager = new Pager(readableNamespaces(), wanted());
    created = 0;
    keepQuery(filter);
    rows.setColumns(tableColumns(filter.kind));
    fill(create, createAnyButton(filter.kind, reload));
    rows.clear();
    showFilters();
    showBulk();
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
            "Nothing fits.",
            h(
              "button",
              { onclick: () => (Object.assign(filter, { kind: "", state: "", label: "", q: "" }), reload()) },
              "Show everything",
            ),
          )
        : empty(
            "There are no objects yet.",
            "Make one with the button above or with ",
            code("stateward create KIND/ID"),
            ", or start the server with ",
            code("--demo"),
            ".",
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
      labeled("id has", h("input", { name: "q", value: filter.q, onchange: typed("q"), type: "search" })),
      labeled(
        "kind",
        select(
          [["", "any"], ...wordOptions(...kinds)],
          filter.kind,
          (value) => (Object.assign(filter, { kind: value, state: "" }), reload()),
          "Kind",
        ),
      ),
      labeled(
        "state",
        select([["", "any"], ...wordOptions(...states)], filter.state, (value) => ((filter.state = value), reload()), "State"),
      ),
      labeled(
        "label",
        h("input", { name: "label", value: filter.label, placeholder: "tier=web", onchange: typed("label") }),
      ),
    );
  }

  // --- acting on many ------------------------------------------------------------------------------------------------

  /** @returns {ObjectView[]} */
  function chosen() {
    return rows.rows.filter((row) => rows.selected.has(keyOf(row)));
  }

  function showBulk() {
    const things = chosen();
    bulk.hidden = things.length === 0;
    if (bulk.hidden) return;
    const kinds = [...new Set(things.map((one) => one.kind))];
    const actions = kinds
      .map((kind) => store.kinds.get(kind)?.actions ?? [])
      .reduce((one, other) => one.filter((name) => other.includes(name)));
    const state = { action: actions[0] ?? "" };
    /** @param {string} what @param {(things: ObjectView[], action: string, args?: any) => Promise<void>} act */
    const ask = (what, act) => {
      const action = state.action;
      return askFirst(what && `${action}: ${what}`, things, action, (args) => act(things, action, args));
    };
    const rest = rows.selected.size === rows.rows.length && !pager.done && store.ns !== "*" && kinds.length === 1;
    fill(
      bulk,
      h("b", { role: "status" }, `${things.length} selected`),
      !may("act") ? quiet(`your role, ${store.me?.role}, may only look`) : null,
      may("act") && actions.length
        ? select(wordOptions(...actions), state.action, (value) => (state.action = value), "Action")
        : null,
      may("act") && actions.length ? h("button", { onclick: () => ask("", check) }, "Check first") : null,
      may("act") && actions.length
        ? h("button", { class: "primary", onclick: () => ask(`${things.length} objects?`, run) }, "Do it")
        : null,
      may("act") && rest ? h("button", { onclick: () => ask("all objects that fit?", runAll) }, "Do it to all that fit") : null,
      may("act") && !actions.length ? quiet("these kinds have no action in common") : null,
      h("button", { onclick: () => rows.selectAll(true) }, "Select all shown"),
      h("button", { onclick: () => rows.selectAll(false) }, "Select none"),
    );
  }

  /**
   * Run an action on many objects. If it has arguments, they are asked for once; if not, the user is asked to confirm.
   * @param {string} question empty if nothing will be changed
   * @param {ObjectView[]} things @param {string} action @param {(args?: any) => Promise<void>} act
   */
  async function askFirst(question, things, action, act) {
    const [kind, ...others] = [...new Set(things.map((one) => one.kind))];
    const isGeneral = kind !== undefined && !others.length && !things.some((one) => actionForm(one, action));
    const schema = isGeneral ? argsSchema(kind, action) : null;
    const [title, yes] = question ? [question, action] : [`Check: ${action}`, "Check"];
    if (schema) showSchemaForm(title, schema.description ?? "", schema, yes, async (args) => void act(args));
    else if (!question || (await confirm(title, yes))) await act();
  }

  /** @param {ObjectView[]} things @param {string} action @param {any} [args] */
  async function check(things, action, args) {
    await attempt(async () => {
      const answers = [];
      for (const ns of new Set(things.map((one) => one.ns))) {
        const mine = things.filter((one) => one.ns === ns).slice(0, 1_000);
        const verdicts = await send("POST", `/ns/${part(ns)}/plan`, {
          requests: mine.map((one) => ({ object: one.id, action, args })),
        });
        answers.push(...mine.map((one, number) => ({ one, verdict: verdicts[number] })));
      }
      const would = answers.filter(({ verdict }) => verdict.would === "accept").length;
      const lines = answers.map(({ one, verdict }) => [
        objectAnchor(one.ns, one.id),
        verdict.would === "accept" ? badge(verdict.state, classOf(one.kind, verdict.state)) : "refused",
        verdict.problem?.detail ?? "",
      ]);
      fill(
        results,
        card(
          `Check: ${action}`,
          `${would} of ${answers.length} would be accepted now; nothing was done`,
          h("div", { class: "results" }, table("What would happen", ["object", "would be", "why not"], lines)),
        ),
      );
    });
  }

  /** @param {ObjectView[]} things @param {string} action @param {any} [args] */
  async function run(things, action, args) {
    const mine = new BulkAction(context, action, args);
    fill(results, mine.element);
    await mine.each(things, []);
    toast(`${action} was asked of ${things.length} objects`);
  }

  /** @param {ObjectView[]} things @param {string} action @param {any} [args] */
  async function runAll(things, action, args) {
    const mine = new BulkAction(context, action, args);
    fill(results, mine.element);
    await attempt(async () => {
      if (things[0] && actionForm(things[0], action)) await mine.each(await allObjects(wanted(), context.signal), []);
      else await mine.all(store.ns, wanted(), []);
    });
  }

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
      else if (entry.source === store.kinds.get(entry.kind)?.initial && !isNowhere(entry.kind, target)) created += 1;
    }
  });
  context.on("counts", oncePerFrame(showNone));
  fill(
    context.main,
    heading(
      "Objects",
      "arrows walk, Enter opens, Space selects; a click with Shift selects a range",
      create,
      h("button", { onclick: reload }, "Reload"),
    ),
    filters,
    bulk,
    results,
    none,
    rows.element,
  );
  fill(create, createAnyButton(filter.kind, reload));
  showFilters();
}

/** The columns for objects of a kind, or of all kinds. @param {string} kind @returns {Column<ObjectView>[]} */
function tableColumns(kind) {
  const named = columnsOf(kind).map(({ name, text }) => ({
    name,
    width: "minmax(90px, 1fr)",
    wide: true,
    cell: (/** @type {ObjectView} */ row) => h("span", { title: text(row) }, text(row)),
  }));
  const error = (/** @type {ObjectView} */ row) => h("span", { class: "error-text", title: row.error ?? "" }, row.error);
  const kindOf = (/** @type {ObjectView} */ row) => row.kind;
  const kindColumn = { name: "kind", width: "minmax(100px, 1fr)", wide: true, cell: kindOf };
  return [
    { name: "id", width: "minmax(140px, 2fr)", cell: (row) => objectAnchor(row.ns, row.id) },
    { name: "state", width: "minmax(120px, 1fr)", cell: (row) => badge(row.state, classOf(row.kind, row.state)) },
    ...named,
    ...(named.length ? [] : [kindColumn]),
    { name: "namespace", width: "minmax(70px, .7fr)", wide: true, cell: (row) => row.ns },
    { name: "parent", width: "minmax(80px, 1fr)", wide: true, cell: (row) => row.parent ?? "" },
    { name: "since", width: "90px", wide: true, cell: (row) => ago(row.since) },
    {
      name: "labels, error",
      width: "minmax(120px, 2fr)",
      wide: true,
      cell: (row) => (row.error ? error(row) : labels(row)),
    },
  ];
}

/** @param {ObjectView} row */
function labels(row) {
  return Object.entries(row.labels)
    .map(([name, value]) => `${name}=${value}`)
    .join("  ");
}

/** @param {number} shown @param {boolean} done @param {{kind: string, state: string, label: string, q: string}} filter @param {number} created */
function foot(shown, done, filter, created) {
  let total = 0;
  for (const [kind, states] of tally()) {
    for (const [state, count] of states)
      if ((!filter.kind || kind === filter.kind) && (!filter.state || state === filter.state)) total += count;
  }
  const known = !filter.q && !filter.label ? ` of ${Math.max(total, shown).toLocaleString()}` : "";
  return `${shown.toLocaleString()}${known} shown${done ? "" : ", more below"}${created ? ` · ${created} new: reload` : ""}`;
}

export default { title: "Objects", show };
