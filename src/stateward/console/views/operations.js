// Operations: what was asked for, newest first, with filters. An action on many objects is one entry.

import { get, part } from "../core/api.js";
import { fill, h, throttle } from "../core/dom.js";
import { empty, heading, labeled, objectAnchor, quiet, relativeTime, select, shortId, wordOptions } from "../ui/components.js";
import { showProblem } from "../ui/problems.js";
import { go, keepQuery, link } from "../core/links.js";
import { countParts, duration, isOpen, operationLink, partsProgress, statusBadge, statusOf, STATUSES } from "../ui/operation-status.js";
import { store } from "../core/store.js";
import { VirtualTable } from "../ui/virtual-table.js";
import { counted, numberText } from "../core/numbers.js";

/** @import {Context, JournalEntry, Operation} from "../core/types.js" */

const PAGE_SIZE = 100;
const OPEN = "waiting,running";

/** @param {Context} context */
async function show(context) {
  const filter = { ns: "", object: "", kind: "", action: "", status: "", who: "", group: "", ...Object.fromEntries(context.query) };
  /** @type {string | null} */
  let next = null;
  const none = h("div", { hidden: true }, empty("No operations match.", h("a", { href: link("operations") }, "Show all operations")));
  const filters = h("form", { class: "filters", onsubmit: (/** @type {Event} */ event) => event.preventDefault() });

  /** @type {VirtualTable<Operation>} */
  const rows = new VirtualTable({
    name: "Operations",
    columns: [
      { name: "status", width: "118px", cell: (one) => statusBadge(statusOf(one)) },
      { name: "action", width: "minmax(90px, .8fr)", cell: (one) => h("a", { href: operationLink(one.ns, one.id) }, one.action) },
      { name: "object", width: "minmax(120px, 1.5fr)", cell: about },
      { name: "parts", width: "minmax(110px, 1fr)", cell: (one) => partsProgress(one) ?? "" },
      { name: "who", width: "minmax(80px, .8fr)", cell: (one) => one.who || one.actor },
      { name: "requested", width: "90px", cell: (one) => relativeTime(one.created) },
      { name: "took", width: "76px", cell: (one) => duration(one) },
      { name: "error", width: "minmax(90px, 1.4fr)", cell: (one) => h("span", { class: "error-text", title: one.error ?? "" }, one.error ?? "") },
    ],
    keyOf: (one) => `${one.ns}/${one.id}`,
    onOpen: (one) => go(operationLink(one.ns, one.id)),
    more: async () => (next === null ? null : take(await read(next))),
    foot: () => `${counted(rows.rows.length, "operation")}${next === null ? "" : ", more below"}, newest first`,
  });

  /** A page that looked at many operations without a match is empty, and not the end. @param {string | null} after */
  const read = async (after) => {
    const ns = filter.ns || (store.ns === "*" ? "" : store.ns);
    const { object, kind, action, status, who, group } = filter;
    const where = ns ? `/ns/${part(ns)}/operations` : "/operations";
    for (;;) {
      const page = await get(where, { object, kind, action, status, who, group, after, limit: PAGE_SIZE }, context.signal);
      if (page.items.length || page.next === null) return page;
      after = page.next;
    }
  };
  /** @param {{items: Operation[], next: string | null}} page */
  const take = (page) => ((next = page.next), page.items);

  async function reload() {
    keepQuery(filter);
    showFilters();
    const found = take(await read(null));
    rows.clear();
    rows.add(found);
    showNone();
  }
  const showNone = () => {
    none.hidden = rows.rows.length > 0;
    rows.element.hidden = rows.rows.length === 0;
  };

  /** Read the newest page again: new operations come on top, and others have gone on. */
  async function refresh() {
    const page = await read(null);
    const { scrollTop } = rows.body;
    /** @type {Operation[]} */
    const fresh = page.items;
    const added = fresh.filter((one) => !rows.places.has(`${one.ns}/${one.id}`));
    for (const one of fresh) rows.change(`${one.ns}/${one.id}`, (row) => Object.assign(row, one));
    if (added.length || filter.status) {
      const kept = filter.status ? [] : rows.rows; // what does not match any more leaves a list by status
      rows.clear();
      if (filter.status) next = page.next;
      rows.add(filter.status ? fresh : [...added, ...kept]);
      rows.body.scrollTop = scrollTop;
    }
    showNone();
  }

  function showFilters() {
    /** @param {keyof typeof filter} name @returns {(value: string) => void} */
    const choose = (name) => (value) => ((filter[name] = value.trim()), void reload().catch(showProblem));
    /** @param {keyof typeof filter} name @param {string} hint */
    const field = (name, hint) =>
      labeled(name, h("input", { name, value: filter[name], placeholder: hint, onchange: (/** @type {any} */ event) => choose(name)(event.target.value) }));
    const kinds = [...store.kinds.values()];
    const actions = [...new Set(kinds.filter((one) => !filter.kind || one.kind === filter.kind).flatMap((one) => one.actions))].sort();
    /** @type {[string, string][]} */
    const statuses = [["", "any"], [OPEN, "not ended"], ...wordOptions(...STATUSES)];
    fill(
      filters,
      labeled("status", select(statuses, filter.status, choose("status"), "Status")),
      labeled("kind", select([["", "any"], ...wordOptions(...store.kinds.keys())], filter.kind, choose("kind"), "Kind")),
      labeled("action", select([["", "any"], ...wordOptions(...actions)], filter.action, choose("action"), "Action")),
      field("who", "name of a token"),
      field("object", "id of an object"),
      filter.group ? h("button", { type: "button", onclick: () => choose("group")("") }, `parts of ${shortId(filter.group)} ✕`) : null,
    );
  }

  fill(context.main, heading("Operations", "requested actions, who requested them, and their results"), filters, none, rows.element);
  const soon = throttle(1_000, () => void refresh().catch(() => {})); // without the server, the list stays as it is
  context.on("entries", (/** @type {JournalEntry[]} */ entries) => {
    if (entries.some((one) => one.op && (store.ns === "*" || one.ns === store.ns))) soon();
  });
  context.on("afresh", soon);
  context.every(5, () => rows.rows.some(isOpen) && soon());
  await reload();
}

/** What an entry is about: its object, and how many more. @param {Operation} one */
function about(one) {
  const more = one.group === one.id ? countParts(one) - 1 : 0;
  return [objectAnchor(one.ns, one.object), more > 0 ? quiet(` and ${numberText(more)} more`) : null];
}

export default { title: "Operations", show };
