// The overview: the whole fleet on one page, live.

import { get, reportBug } from "../core/api.js";
import { Cells } from "../fleet/cells.js";
import { fill, h, throttle } from "../core/dom.js";
import { FleetMap } from "../fleet/map.js";
import { createAnyButton } from "../ui/create-buttons.js";
import { demoAdvice } from "../ui/missing.js";
import { lifecycleCard } from "../ui/lifecycle-card.js";
import { card, code, empty, entryRow, meter, note, objectAnchor, plainList, select, wordOptions } from "../ui/components.js";
import { readableNamespaces } from "../core/pagination.js";
import { go, link, objectLink } from "../core/links.js";
import { fleetTone, HEALTHS, MEANINGS, shape, TONES } from "../ui/states.js";
import { recentJournal } from "../core/recent-journal.js";
import { ALL, classOf, mayAll, store, tally } from "../core/store.js";
import { sparkline } from "../ui/sparkline.js";
import { ago } from "../core/time.js";
import { numberText } from "../core/numbers.js";

/** @import {Cell} from "../fleet/cells.js" */
/** @import {Tone} from "../ui/states.js" */
/** @import {Context, Lane, JournalEntry, Stuck} from "../core/types.js" */

const MAX_ENTRIES = 13;
const REDRAW_MS = 200;
const LOADING_MS = 400;
const MAX_LANES = 16;
const MIN_LANES = 8;

/** How often the last hour is read, in seconds. */
const HOUR_S = 10;

/** @type {Record<string, {text: string, of: (cell: Cell) => string}>} */
const GROUPINGS = {
  place: { text: "provider and region", of: (cell) => cell.place || cell.kind },
  parent: { text: "parent", of: (cell) => cell.parent || cell.kind },
  kind: { text: "kind", of: (cell) => cell.kind },
  ns: { text: "namespace", of: (cell) => cell.ns },
};

const chosen = { grouping: "place", mapKind: "", kind: "" };

/** @param {Context} context */
function show(context) {
  const { main } = context;
  fill(
    main,
    h("h1", { class: "unseen" }, "Overview"),
    h(
      "div",
      { class: "overview" },
      numbers(context),
      h("div", { class: "front" }, fleet(context), lanes(context)),
      h("div", { class: "side" }, latest(context), stuck(context)),
      lifecycle(context),
    ),
  );
}

// --- numbers ---------------------------------------------------------------------------------------------------------

/** The number of objects by tone, as the map draws them. @param {string} [only] a kind @returns {Record<Tone, number>} */
function byTone(only) {
  const sums = /** @type {Record<Tone, number>} */ (Object.fromEntries(TONES.map((tone) => [tone, 0])));
  for (const [kind, states] of tally()) {
    if (only && kind !== only) continue;
    for (const [state, count] of states) sums[fleetTone(state, classOf(kind, state))] += count;
  }
  return sums;
}

/** @param {Context} context */
function numbers(context) {
  const row = h("div", { class: "numbers" });
  const rate = sparkline();
  const figures = [
    new Figure("not ended", "objects", null),
    new Figure("healthy", "healthy", "good"),
    new Figure("under way", "under way", "moving"),
    new Figure("idle", "idle", "idle"),
    new Figure("unknown", "unknown", "unknown"),
    new Figure("failed", "failed", "failed"),
  ];
  for (const { element } of figures) element.classList.add("number");
  fill(row, figures.map((one) => one.element), rate.element);
  const draw = () => {
    const sums = byTone();
    for (const one of figures) one.show(sums, "");
  };
  context.on("counts", throttle(REDRAW_MS, draw));
  context.every(1, rate.show);
  context.every(HOUR_S, async () => {
    const ns = store.ns === ALL ? null : store.ns;
    rate.setHour((await get("/journal/counts", { ns }, context.signal)).counts);
  });
  draw();
  return row;
}

/** A number of objects that leads to their list. It is changed in place, because a click takes longer than a change. */
class Figure {
  /** @param {string} health @param {string} name @param {Tone | null} tone */
  constructor(health, name, tone) {
    this.health = health;
    this.count = h("b", null);
    this.element = h("a", { title: "Show these objects" }, this.count, h("span", null, tone ? shape(tone) : null, name));
  }

  /** @param {Record<Tone, number>} sums @param {string} kind */
  show(sums, kind) {
    this.count.textContent = numberText((HEALTHS[this.health] ?? []).reduce((sum, tone) => sum + sums[tone], 0));
    this.element.setAttribute("href", link("objects", [], { health: this.health, kind, ns: store.ns }));
  }
}

// --- the map ---------------------------------------------------------------------------------------------------------

/** @param {Context} context */
function fleet(context) {
  const cells = new Cells();
  const namespaces = readableNamespaces();
  const map = new FleetMap(cells, {
    onOpen: (cell) => go(objectLink(cell.ns, cell.id)),
    groupOf: (cell) => (GROUPINGS[chosen.grouping] ?? { of: () => "" }).of(cell),
    wanted: (cell) => !chosen.mapKind || cell.kind === chosen.mapKind,
  });
  const nothing = h(
    "div",
    { hidden: true },
    empty(
      "No objects yet.",
      "Create a first object with the button above or with ",
      code("stateward create KIND/ID"),
      demoAdvice(),
    ),
  );
  context.on("entries", (/** @type {JournalEntry[]} */ entries) => {
    const wanted = new Set(readableNamespaces()); // a first object may have come into a namespace
    const { changed, created } = cells.apply(entries, (ns) => wanted.has(ns));
    if (created.length) cells.readPlaces(created, context.signal).then(map.arrange);
    if (created.length || cells.compact()) map.arrange();
    map.flash(changed);
    nothing.hidden = cells.all.length > 0;
  });
  context.on("theme", map.arrange);
  cells.load(namespaces, context.signal, throttle(LOADING_MS, map.arrange)).then(
    () => {
      map.arrange();
      map.canvas.dataset.loaded = "true";
      nothing.hidden = cells.all.length > 0;
    },
    () => {},
  );
  const kinds = [...tally().keys()].sort();
  const tools = [
    select(
      Object.entries(GROUPINGS).map(([key, one]) => [key, `by ${one.text}`]),
      chosen.grouping,
      (value) => ((chosen.grouping = value), map.arrange()),
      "Group cells by",
    ),
    select(
      [["", "all kinds"], ...wordOptions(...kinds)],
      kinds.includes(chosen.mapKind) ? chosen.mapKind : "",
      (value) => ((chosen.mapKind = value), map.arrange(), drawKeys()),
      "Kind of cells",
    ),
    createAnyButton("", () => {}),
  ];
  const figures = TONES.map((tone) => new Figure(MEANINGS[tone], MEANINGS[tone], tone));
  const keys = h("ul", { class: "legend" }, figures.map((one) => h("li", null, one.element)));
  const drawKeys = () => {
    const sums = byTone(chosen.mapKind);
    for (const one of figures) one.show(sums, chosen.mapKind);
  };
  context.on("counts", throttle(REDRAW_MS, drawKeys));
  drawKeys();
  return card(
    "Fleet map",
    ["one cell for each object ", h("span", { class: "tools" }, ...tools)],
    map.element,
    nothing,
    keys,
  );
}

// --- beside it -------------------------------------------------------------------------------------------------------

/** @param {Context} context */
function latest(context) {
  const list = h("ol", { class: "lines" });
  /** @type {JournalEntry[]} */
  let former = [];
  let read = false;
  const draw = () => {
    const live = store.latest.filter((entry) => store.ns === ALL || entry.ns === store.ns);
    const first = live[0]?.seq ?? Infinity;
    const mine = [...former.filter((entry) => entry.seq < first), ...live].slice(-MAX_ENTRIES).reverse();
    fill(list, mine.length ? mine.map(entryRow) : h("li", { class: "quiet" }, read ? "No journal entries yet." : "…"));
  };
  context.on("entries", throttle(REDRAW_MS, draw));
  draw();
  recentJournal({ ns: store.ns === ALL ? null : store.ns }, MAX_ENTRIES, context.signal).then(
    (found) => ((former = found), (read = true), draw()),
    (error) => reportBug(error, context.signal),
  );
  return card("Latest", [h("a", { href: link("journal") }, "journal")], list);
}

/** @param {Context} context */
function stuck(context) {
  const body = h("div", null, note("…"));
  context.every(5, async () => {
    /** @type {Stuck[]} */
    const found = await get("/stuck", { limit: 20 }, context.signal);
    fill(
      body,
      found.length
        ? plainList(
            found.map((one) =>
              h(
                "li",
                null,
                shape("failed"),
                objectAnchor(one.ns, one.object),
                ` ${one.action}: ${one.why}`,
                one.deadline ? `, due ${ago(one.deadline)}` : "",
              ),
            ),
          )
        : h("p", { class: "fine" }, shape("good"), "Nothing is stuck."),
    );
  });
  return card("Stuck", "past the deadline, or of a dead worker", body);
}

// --- the lifecycle ---------------------------------------------------------------------------------------------------

/** @param {Context} context */
function lifecycle(context) {
  const kinds = [...tally()]
    .filter(([kind]) => store.kinds.has(kind)) // a kind whose plug-in is not loaded has no diagram here
    .sort(([kind, one], [other, its]) => living(other, its) - living(kind, one))
    .map(([kind]) => kind);
  return lifecycleCard(context, kinds.length ? kinds : [...store.kinds.keys()], chosen);
}

/** @param {string} kind @param {Map<string, number>} counts @returns {number} how many objects of a kind have not ended */
function living(kind, counts) {
  return [...counts].reduce((total, [state, count]) => total + (classOf(kind, state) === "final" ? 0 : count), 0);
}

// --- lanes -----------------------------------------------------------------------------------------------------------

/** @param {Context} context */
function lanes(context) {
  const list = h("ul", { class: "lanes" });
  if (mayAll()) {
    context.every(2, async () => {
      const found = await get("/lanes", {}, context.signal);
      /** @type {Lane[]} */
      const sorted = found.lanes
        .filter((/** @type {Lane} */ one) => one.lane)
        .sort((/** @type {Lane} */ a, /** @type {Lane} */ b) => b.running / b.capacity - a.running / a.capacity);
      const shown = sorted.filter((one, place) =>
        one.running || one.back_off ? place < MAX_LANES : place < MIN_LANES,
      );
      fill(list, shown.length ? shown.map(lane) : h("li", { class: "quiet" }, "No lane has work or a limit yet."));
    });
  } else fill(list, h("li", { class: "quiet" }, "To see lanes, sign in with a token for all namespaces."));
  return card("Lanes", [h("a", { href: link("lanes") }, "limits and use")], list);
}

/** @param {Lane} one */
function lane(one) {
  const full = one.running >= one.capacity;
  const tone = one.back_off && Date.parse(one.back_off) > Date.now() ? "failed" : full ? "leaving" : "good";
  return h(
    "li",
    null,
    h("span", null, one.lane),
    meter(one.running, one.capacity, one.lane, tone),
    h("b", null, `${one.running}/${one.capacity}`),
  );
}

export default { title: "Overview", show };
