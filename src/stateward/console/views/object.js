// One object: its state, its actions, what it waits for, and its journal.

import { get, objectPath, part, Problem, send } from "../core/api.js";
import { actionButtons, anyAction } from "../ui/object-actions.js";
import { diagramOf } from "../ui/diagram.js";
import { fill, fillIfChanged, h } from "../core/dom.js";
import { recentJournal } from "../core/recent-journal.js";
import { countStates, groupBy, nameOf } from "../core/live-objects.js";
import { OperationCard } from "../ui/operation.js";
import { card, code, empty, fact, json, kindLink, note, objectAnchor, plainList, quiet, shortenIds, stateSummary } from "../ui/components.js";
import { problemPanel, toast } from "../ui/problems.js";
import { link } from "../core/links.js";
import { badge, shape, stateBadge, toneOf } from "../ui/states.js";
import { classOf, may, store } from "../core/store.js";
import { ago, clock, moment, seconds, span } from "../core/time.js";
import { splitPairs } from "../ui/form.js";
import { columnValues, recordTable } from "../ui/object-columns.js";

/** @import {Ancestor, Context, JournalEntry, Operation, QueuedOperation, ObjectView, Why} from "../core/types.js" */

const MAX_TIMELINE = 100;
const MAX_CHILDREN = 200;
const MAX_CHILDREN_LISTED = 50;
const REDRAW_MS = 250;

/** @param {Context} context */
async function show(context) {
  const [ns = "", id = ""] = context.path;
  const base = objectPath({ ns, id });
  const head = h("div", { class: "column" });
  const actions = h("div", { class: "actions" });
  const picture = h("div", { class: "diagram", tabindex: "0", role: "region", "aria-label": "Lifecycle" });
  const why = h("div", null);
  const details = h("div", { class: "column" });
  const children = h("div", null);
  const timeline = h("ol", { class: "timeline" });
  const operation = new OperationCard(context, ns);
  /** @type {JournalEntry[]} */
  let history = [];

  const showHistory = () =>
    fill(
      timeline,
      history.length ? [...history].reverse().map(event) : h("li", { class: "quiet" }, "The journal has no entry about it."),
    );
  const refresh = calmly(async () => {
    const found = await get(base, {}, context.signal).catch(gone);
    if (found === null) {
      fill(
        head,
        title(ns, id, null),
        empty(
          `${id} is not there (any more).`,
          "Its journal stays below. ",
          h("a", { href: link("objects") }, "All objects"),
        ),
      );
      for (const one of [actions, picture, details]) fill(one);
      return;
    }
    fill(head, title(ns, id, found));
    diagram?.mark(found.state);
    const [allowed, reason] = await Promise.all([
      get(`${base}/allowed`, {}, context.signal),
      get(`${base}/why`, {}, context.signal),
    ]);
    fillIfChanged(actions, [allowed, found.version], () => [
      ...actionButtons(found, allowed.actions, refresh),
      anyAction(found, allowed.actions, refresh),
    ]);
    fill(why, waiting(reason, ns));
    fillIfChanged(details, found.version, () => specs(found, refresh));
    await operation.show(found);
    await showChildren(children, found, context.signal);
  }, context.signal);

  fill(
    context.main,
    head,
    card("Actions", "grey ones are not allowed now; they say why", actions),
    card("State", "its state in its lifecycle", picture),
    h(
      "div",
      { class: "columns" },
      h(
        "div",
        { class: "column" },
        card("Why is it waiting?", "up the tree", why),
        operation.element,
        card("Timeline", "who, what, why; rejected reports too", timeline),
      ),
      h("div", { class: "column" }, card("Children", "", children), details),
    ),
  );
  const first = await get(base, {}, context.signal).catch(gone);
  const diagram = first === null ? null : await diagramOf(first.kind).catch(gone);
  if (diagram) fill(picture, diagram.element);
  refresh();
  history = await recentJournal({ ns, object: id }, MAX_TIMELINE, context.signal);
  showHistory();

  context.on("entries", (/** @type {JournalEntry[]} */ entries) => {
    const mine = entries.filter((entry) => entry.ns === ns && entry.object === id);
    if (mine.length) {
      const last = history.at(-1)?.seq ?? 0;
      history = [...history, ...mine.filter((entry) => entry.seq > last)].slice(-MAX_TIMELINE);
      showHistory();
      diagram?.step(mine);
    }
    if (mine.length) refresh();
  });
  context.on("afresh", refresh);
  context.every(5, refresh);
}

/** @param {unknown} error */
function gone(error) {
  if (error instanceof Problem && error.fields.status === 404) return null;
  throw error;
}

/**
 * Run an action at most once in a while, and once more if it was asked for meanwhile.
 * @param {() => Promise<void>} act
 * @param {AbortSignal} signal
 */
function calmly(act, signal) {
  let busy = false;
  let again = false;
  return async () => {
    again = true;
    if (busy) return;
    busy = true;
    while (again && !signal.aborted) {
      again = false;
      try {
        await act();
      } catch {
        // the server is away, or the view was left: the next entry of the stream refreshes it
      }
      await new Promise((resolve) => setTimeout(resolve, REDRAW_MS));
    }
    busy = false;
  };
}

/** @param {string} ns @param {string} id @param {ObjectView | null} found */
function title(ns, id, found) {
  return h(
    "div",
    null,
    h(
      "div",
      { class: "who-is" },
      h("h1", null, found ? nameOf(found) : id),
      found && nameOf(found) !== id ? code(id) : null,
      found ? stateBadge(found) : null,
      found
        ? quiet(kindLink(found.kind), ` in ${ns}, ${found.state} for ${span(Date.now() / 1000 - seconds(found.since))}`)
        : quiet(`in ${ns}`),
      found?.parent ? quiet("part of ", objectAnchor(ns, found.parent)) : null,
    ),
    found ? summary(columnValues(found)) : null,
    found?.error ? h("p", { class: "error-text" }, found.error) : null,
  );
}

/** What the kind names about its objects. @param {[string, string][]} values */
function summary(values) {
  if (!values.length) return null;
  return h("dl", { class: "summary" }, values.map(([name, text]) => h("div", null, ...fact(name, text))));
}

// --- why -------------------------------------------------------------------------------------------------------------

/** @param {Why} reason @param {string} ns */
function waiting({ operation, text, queue, lane, children, parents }, ns) {
  /** @param {QueuedOperation} one */
  const queued = (one) => {
    const position = h("b", null, `${one.position + 1}.`);
    return h("li", null, position, objectAnchor(ns, one.object), one.action, quiet(shortenIds(one.text)));
  };
  /** @param {Operation} one */
  const child = (one) => h("li", null, objectAnchor(ns, one.object), `${one.action}, ${one.status}`);
  /** @param {Ancestor} one */
  const above = (one) => {
    const work = one.operation ? `, ${one.operation.action} by ${one.operation.who || one.operation.actor}` : "";
    return h("li", null, objectAnchor(ns, one.id), stateBadge(one), quiet(one.kind, work));
  };
  return [
    h("p", { class: "sentence" }, operation === null ? "It waits for nothing." : shortenIds(text)),
    queue.length > 1 ? h("ol", { class: "plain" }, queue.map(queued)) : null,
    lane?.lane ? note(`lane ${lane.lane}: ${lane.running} of ${lane.capacity} run`) : null,
    children.length ? plainList(children.map(child)) : null,
    parents.length ? h("ul", { class: "chain", "aria-label": "Parents" }, parents.map(above)) : null,
  ];
}

// --- timeline --------------------------------------------------------------------------------------------------------

/** @param {JournalEntry} entry */
function event(entry) {
  const rejected = entry.event.startsWith("rejected");
  const tone = rejected ? "failed" : entry.target ? toneOf(entry.target, classOf(entry.kind, entry.target)) : "over";
  return h(
    "li",
    { class: rejected ? "rejected" : "" },
    h("time", { datetime: entry.at, title: moment(entry.at) }, clock(entry.at)),
    h("span", { class: "pin" }, shape(tone)),
    h(
      "div",
      { class: "said" },
      h("b", { class: "event" }, entry.event),
      entry.target && entry.target !== entry.source ? quiet(`${entry.source ?? ""} → `) : null,
      entry.target && entry.target !== entry.source ? badge(entry.target, classOf(entry.kind, entry.target)) : null,
      quiet(`by ${entry.who || entry.actor}${entry.who && entry.who !== entry.actor ? ` (${entry.actor})` : ""}`),
      entry.reason ? h("span", { class: "why" }, entry.reason) : null,
    ),
  );
}

// --- what it is ------------------------------------------------------------------------------------------------------

/** @param {ObjectView} found @param {() => void} refresh */
function specs(found, refresh) {
  const seen = Object.keys(found.seen ?? {}).length > 0;
  const schema = store.kinds.get(found.kind)?.spec;
  const raw = json(found.spec, "Spec");
  return [
    card(
      "Spec",
      `version ${found.version}, generation ${found.generation}`,
      ...(schema ? [recordTable(found.spec, schema), h("details", null, h("summary", null, "as JSON"), raw)] : [raw]),
    ),
    seen ? card("Seen", "what was observed last", json(found.seen, "Seen")) : null,
    card("Labels", "", labels(found, refresh)),
    card(
      "Record",
      "",
      h(
        "dl",
        { class: "facts" },
        ...fact("created", `${moment(found.created)}, ${ago(found.created)}`),
        ...fact("queue", found.queue === found.id ? "its own" : objectAnchor(found.ns, found.queue)),
        ...fact("allowed in state", within(found)),
      ),
    ),
  ];
}

/** @param {ObjectView} found */
function within(found) {
  const row = store.kinds.get(found.kind)?.rows.find((one) => one.via === found.state && one.within !== null);
  return row?.within ? `at most ${span(row.within)}` : "any time";
}

/** @param {ObjectView} found @param {() => void} refresh */
function labels(found, refresh) {
  const text = Object.entries(found.labels)
    .map(([name, value]) => `${name}=${value}`)
    .join(", ");
  if (!may("act")) return text || quiet("none");
  const input = /** @type {HTMLInputElement} */ (
    h("input", { value: text, placeholder: "name=value, name=value", "aria-label": "Labels" })
  );
  const save = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      await send("PUT", `${objectPath(found)}/labels`, { labels: splitPairs(input.value) });
      toast("The labels are set.", "good");
      refresh();
    } catch (error) {
      fill(feedback, problemPanel(error));
    }
  };
  const feedback = h("div", null);
  return h("form", { class: "row", onsubmit: save }, input, h("button", { type: "submit" }, "Set"), feedback);
}

/** @param {ObjectView} one */
const columnText = (one) => columnValues(one).map(([name, text]) => `${name} ${text}`).join(", ");

/** @param {HTMLElement} place @param {ObjectView} found @param {AbortSignal} signal */
async function showChildren(place, found, signal) {
  const page = await get(`/ns/${part(found.ns)}/objects`, { parent: found.id, limit: MAX_CHILDREN }, signal);
  /** @type {ObjectView[]} */
  const things = page.items;
  if (!things.length) {
    fill(place, note("It has no parts. An object that is created with ", code(`--parent ${found.id}`), " becomes one."));
    return;
  }
  const kinds = [...groupBy(things, (one) => one.kind)];
  const shown = things.slice(0, MAX_CHILDREN_LISTED);
  fill(
    place,
    kinds.map(([kind, some]) => h("div", { class: "column" }, stateSummary(kind, countStates(some)))),
    plainList(shown.map((one) => h("li", null, objectAnchor(one.ns, one.id), stateBadge(one), quiet(one.kind), quiet(columnText(one))))),
  );
}

export default { title: "Object", show };
