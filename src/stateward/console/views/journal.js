// The journal: who, what, from, to, why, when. It can be filtered, followed and exported.

import { lines } from "../core/api.js";
import { download, fill, h } from "../core/dom.js";
import { recentJournal } from "../core/recent-journal.js";
import { empty, heading, labeled, objectAnchor, quiet, select, wordOptions } from "../ui/components.js";
import { showProblem, toast } from "../ui/problems.js";
import { go, keepQuery, objectLink } from "../core/links.js";
import { badge } from "../ui/states.js";
import { classOf, store } from "../core/store.js";
import { moment } from "../core/time.js";
import { VirtualTable } from "../ui/virtual-table.js";
import { counted } from "../core/numbers.js";

/** @import {Context, JournalEntry} from "../core/types.js" */

const PAGE_SIZE = 500;
const MAX_ROWS = 5_000;
/** @type {Record<string, string>} the media types of exports, by the endings of their files */
const EXPORTS = { csv: "text/csv", ndjson: "application/x-ndjson" };

/** @param {Context} context */
async function show(context) {
  const filter = { object: "", kind: "", actor: "", op: "", text: "", since: "", until: "", ...Object.fromEntries(context.query) };
  let following = true;
  const none = h(
    "div",
    { hidden: true },
    empty("No entries match.", "Remove a filter, or wait: new entries appear live."),
  );
  const filters = h("form", { class: "filters", onsubmit: (/** @type {Event} */ event) => event.preventDefault() });

  /** @type {VirtualTable<JournalEntry>} */
  const rows = new VirtualTable({
    name: "Journal",
    columns: [
      { name: "when", width: "150px", cell: (entry) => h("time", { datetime: entry.at }, moment(entry.at)) },
      { name: "object", width: "minmax(110px, 1.4fr)", cell: (entry) => objectAnchor(entry.ns, entry.object) },
      {
        name: "event",
        width: "minmax(90px, 1fr)",
       
        cell: (entry) => h("span", { class: entry.event.startsWith("rejected") ? "error-text" : "" }, entry.event),
      },
      { name: "from", width: "minmax(70px, .9fr)", cell: (entry) => entry.source ?? "" },
      {
        name: "to",
        width: "minmax(100px, 1fr)",
        cell: (entry) => (entry.target ? badge(entry.target, classOf(entry.kind, entry.target)) : ""),
      },
      { name: "who", width: "minmax(80px, .9fr)", cell: (entry) => entry.who || entry.actor },
      {
        name: "why",
        width: "minmax(90px, 1.6fr)",
       
        cell: (entry) => h("span", { title: entry.reason ?? "" }, entry.reason ?? ""),
      },
      { name: "#", width: "64px", cell: (entry) => quiet(entry.seq) },
    ],
    keyOf: (entry) => String(entry.seq),
    onOpen: (entry) => go(objectLink(entry.ns, entry.object)),
    foot: () => `${counted(rows.rows.length, "entry", "entries")} shown, newest first${following ? ", following" : ""}`,
  });

  const asked = () => ({
    ns: store.ns === "*" ? "" : store.ns,
    object: filter.object,
    kind: filter.kind,
    actor: filter.actor,
    op: filter.op,
    since: utc(filter.since),
    until: utc(filter.until),
  });
  const fits = (/** @type {JournalEntry} */ entry) =>
    (store.ns === "*" || entry.ns === store.ns) &&
    (!filter.object || entry.object === filter.object) &&
    (!filter.kind || entry.kind === filter.kind) &&
    (!filter.actor || entry.actor === filter.actor) &&
    (!filter.op || entry.op === filter.op) &&
    (!filter.since || entry.at >= utc(filter.since)) &&
    (!filter.until || entry.at < utc(filter.until)) &&
    has(entry, filter.text);

  async function reload() {
    keepQuery(filter);
    showFilters();
    const found = (await recentJournal(asked(), PAGE_SIZE, context.signal)).filter(fits).reverse();
    const newer = rows.rows.filter((entry) => entry.seq > (found[0]?.seq ?? 0) && fits(entry)); // came while it was read
    put([...newer, ...found]);
  }

  /** @param {JournalEntry[]} found newest first */
  function put(found) {
    rows.clear();
    rows.add(found);
    none.hidden = found.length > 0;
    rows.element.hidden = found.length === 0;
  }

  function showFilters() {
    /** @param {keyof typeof filter} name @returns {(event: any) => void} */
    const typed = (name) => (event) => ((filter[name] = event.target.value.trim()), reload().catch(showProblem));
    const actors = [...new Set([...store.kinds.values()].flatMap((kind) => kind.actors))].sort();
    fill(
      filters,
      labeled("object", h("input", { name: "object", value: filter.object, onchange: typed("object") })),
      labeled(
        "kind",
        select(
          [["", "any"], ...wordOptions(...store.kinds.keys())],
          filter.kind,
          (value) => ((filter.kind = value), reload().catch(showProblem)),
          "Kind",
        ),
      ),
      labeled(
        "actor",
        select(
          [["", "anybody"], ...wordOptions(...actors)],
          filter.actor,
          (value) => ((filter.actor = value), reload().catch(showProblem)),
          "Actor",
        ),
      ),
      labeled(
        "text",
        h("input", { name: "text", value: filter.text, placeholder: "rejected", onchange: typed("text") }),
      ),
      labeled("from", h("input", { type: "datetime-local", name: "since", step: "1", value: filter.since, onchange: typed("since") })),
      labeled("until", h("input", { type: "datetime-local", name: "until", step: "1", value: filter.until, onchange: typed("until") })),
      h(
        "label",
        { class: "follow" },
        h("input", {
          type: "checkbox",
          checked: following,
          onchange: (/** @type {any} */ event) => (following = event.target.checked),
        }),
        "follow",
      ),
    );
  }

  /** @param {string} ending */
  async function exportEntries(ending) {
    const type = EXPORTS[ending] ?? "";
    const parts = [];
    try {
      for await (const line of lines("/journal", asked(), type, context.signal)) parts.push(line, "\n");
    } catch (error) {
      showProblem(error);
      return;
    }
    download(`journal.${ending}`, parts, type);
    toast(`The journal is exported: ${counted(parts.length / 2, "entry", "entries")}.`, "good");
  }

  fill(
    context.main,
    heading("Journal", "every change: who, what, from, to, why, when", h("button", { onclick: () => exportEntries("ndjson") }, "Export"), h("button", { onclick: () => exportEntries("csv") }, "Export CSV")),
    filters,
    none,
    rows.element,
  );
  context.on("entries", (/** @type {JournalEntry[]} */ fresh) => {
    const mine = fresh.filter(fits).reverse();
    if (!following || !mine.length) return;
    const top = rows.body.scrollTop;
    const all = [...mine, ...rows.rows].slice(0, MAX_ROWS);
    put(all);
    rows.body.scrollTop = top;
  });
  await reload();
}

/** A time of the page's own clock, as the server reads it. @param {string} local */
function utc(local) {
  const time = Date.parse(local);
  return Number.isNaN(time) ? "" : new Date(time).toISOString();
}

/** @param {JournalEntry} entry @param {string} text */
function has(entry, text) {
  return (
    !text ||
    `${entry.object} ${entry.event} ${entry.reason ?? ""} ${entry.who} ${entry.source} ${entry.target}`
      .toLowerCase()
      .includes(text.toLowerCase())
  );
}

export default { title: "Journal", show };
