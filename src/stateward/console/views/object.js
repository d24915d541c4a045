// One object: its state, what is going on, what can be done now; then its journal, its parts, its data and its lifecycle.

import { get, objectPath, part, Problem, send } from "../core/api.js";
import { panelsOf } from "../core/domains.js";
import { actionButtons, anyAction, readAllowed } from "../ui/object-actions.js";
import { showDiagram } from "../ui/diagram.js";
import { fill, fillIfChanged, h } from "../core/dom.js";
import { recentJournal } from "../core/recent-journal.js";
import { countObjects, countsBy, rowsBy } from "../core/counts.js";
import { nameOf } from "../core/live-objects.js";
import { OperationCard } from "../ui/operation.js";
import { duration, operationLink, statusBadge } from "../ui/operation-status.js";
import { missingObject } from "../ui/missing.js";
import { card, code, errorText, fact, json, kindLink, note, objectAnchor, plainList, quiet, readable, stateSummary } from "../ui/components.js";
import { problemPanel, toast } from "../ui/problems.js";
import { badge, shape, stateBadge, toneOf } from "../ui/states.js";
import { classOf, may, store } from "../core/store.js";
import { ago, clock, moment, seconds, span } from "../core/time.js";
import { effectiveBadge, protectionPanel, readProtection } from "../ui/protection.js";
import { splitPairs } from "../ui/form.js";
import { columnValues, recordTable } from "../ui/object-columns.js";
import { numberText } from "../core/numbers.js";

/** @import {AllowedAction, Ancestor, Context, FieldChange, JournalEntry, Operation, QueuedOperation, ObjectView, SpecChange, Why} from "../core/types.js" */
/** @import {Protection} from "../ui/protection.js" */

const MAX_TIMELINE = 100;
const MAX_OPERATIONS = 6;
const MAX_CHANGES = 20;
const MAX_BUTTONS = 4;
const MAX_CHILDREN_LISTED = 50;
const REDRAW_MS = 250;

/** @param {Context} context */
async function show(context) {
  const [ns = "", id = ""] = context.path;
  const base = objectPath({ ns, id });
  const head = h("div", { class: "column" });
  const now = h("div", null);
  const actions = h("div", { class: "actions" });
  const picture = h("div", { class: "diagram", tabindex: "0", role: "group", "aria-label": "Lifecycle" });
  const why = h("div", null);
  const details = h("div", { class: "column" });
  const children = h("div", null);
  const changes = h("div", null);
  const panels = h("div", { class: "column" });
  const timeline = h("ol", { class: "timeline" });
  const operation = new OperationCard(context, ns);
  /** @type {JournalEntry[]} */
  let history = [];

  const showHistory = () =>
    fill(
      timeline,
      history.length ? [...history].reverse().map(event) : h("li", { class: "quiet" }, "No journal entries."),
    );
  const remember = (/** @type {JournalEntry[]} */ entries) => {
    const known = new Set(history.map((entry) => entry.seq));
    history = [...history, ...entries.filter((entry) => !known.has(entry.seq))].sort((a, b) => a.seq - b.seq).slice(-MAX_TIMELINE);
    showHistory();
  };
  const readHistory = async () => remember((await recentJournal({ ns, object: id }, MAX_TIMELINE, context.signal).catch(gone)) ?? []);
  const refresh = calmly(async () => {
    const [found, protection] = await Promise.all([
      get(base, {}, context.signal).catch(gone),
      readProtection({ ns, id }, context.signal).catch(gone), // a server of 0.1.0 has no such answer
    ]);
    if (found === null) {
      fill(head, title(ns, id, null, null), await missingObject(ns, id, history.at(-1), context.signal));
      below.hidden = true;
      return;
    }
    below.hidden = false;
    fill(head, title(ns, id, found, protection));
    diagram?.mark(found.state);
    const [allowed, reason, done] = await Promise.all([
      readAllowed(found, context.signal),
      get(`${base}/why`, {}, context.signal),
      get(`/ns/${part(ns)}/operations`, { object: id, limit: MAX_OPERATIONS }, context.signal),
    ]);
    fill(now, answers(found, reason, done.items, operation.progress));
    const isOpen = actions.querySelector("details")?.open ?? false; // a menu that somebody reads stays open
    fillIfChanged(actions, [allowed, found.version], () => actionChoice(found, allowed, refresh, isOpen));
    fill(why, waiting(reason, ns));
    fillIfChanged(details, [found.version, protection], () => specs(found, protection, refresh));
    operation.show(found, done.items);
    const changed = await get(`${base}/changes`, { limit: MAX_CHANGES }, context.signal);
    fillIfChanged(changes, changed, () => specChanges(changed, ns));
    await showChildren(children, found, context.signal);
  }, context.signal);

  const below = h(
    "div",
    { class: "column" },
    card("Now", "", now, actions),
    panels,
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
      h("div", { class: "column" }, card("Children", "", children), card("Changes", "of the spec, field by field", changes), details),
    ),
    card("State", "its state in its lifecycle", picture),
  );
  fill(context.main, head, below);
  const first = await get(base, {}, context.signal).catch(gone);
  const diagram = first === null ? null : await showDiagram(picture, first.kind);
  if (first !== null) {
    fill(panels, panelsOf(first, context));
    refresh();
  }
  // The listener is there before the history is read: what comes while the answer is on its way would be missing.
  context.on("entries", (/** @type {JournalEntry[]} */ entries) => {
    const mine = entries.filter((entry) => entry.ns === ns && entry.object === id);
    if (!mine.length) return;
    remember(mine);
    diagram?.step(mine);
    refresh();
  });
  await readHistory();
  if (first === null) refresh(); // only its journal tells whether it ever was there
  context.on("afresh", refresh);
  context.on("afresh", calmly(readHistory, context.signal));
  context.every(5, refresh);
}

/**
 * The answers that a person looks for first: the state, what is going on, what it waits for, the error, the last operation.
 * @param {ObjectView} found
 * @param {Why} reason
 * @param {Operation[]} operations newest first
 * @param {HTMLElement} progress
 */
function answers(found, reason, operations, progress) {
  const current = operations.find((one) => one.id === found.op) ?? reason.operation;
  const last = operations.find((one) => one.ended);
  return h(
    "dl",
    { class: "facts answers" },
    ...fact("state", h("span", null, stateBadge(found), quiet(` for ${span(Date.now() / 1000 - seconds(found.since))}, since ${moment(found.since)}`))),
    ...fact("operation", current ? h("div", null, operationSentence(current), progress) : quiet("none")),
    ...(current ? fact(current.status === "waiting" ? "waits for" : "progress", readable(reason.text.replace(`${current.action}: `, ""))) : []),
    ...((error) => (error ? fact("error", errorText(error)) : []))(reason.error ?? found.error),
    ...fact("last operation", last ? operationSentence(last) : quiet("none")),
  );
}

/** @param {Operation} one */
function operationSentence(one) {
  const how = one.ended ? `${ago(one.ended)}, took ${duration(one)}` : `for ${duration(one)}${one.attempts > 1 ? `, attempt ${one.attempts}` : ""}`;
  return h("span", { class: "row" }, h("a", { href: operationLink(one.ns, one.id) }, one.action), statusBadge(one.status), quiet(`by ${one.who || one.actor} ${how}`));
}

/**
 * The few actions that make sense now as buttons; all others in a menu, with the reason why not.
 * @param {ObjectView} found
 * @param {AllowedAction[]} actions
 * @param {() => void} refresh
 * @param {boolean} isOpen whether the menu is
 */
function actionChoice(found, actions, refresh, isOpen) {
  const allowed = new Set(actions.filter((one) => one.allowed).map((one) => one.event));
  const declared = new Set(actions.map((one) => one.event));
  const all = actionButtons(found, actions, refresh);
  /** @param {HTMLElement} one */
  const makesSense = ({ dataset }) => !dataset.action || allowed.has(dataset.action) || !declared.has(dataset.action);
  const useful = all.filter(makesSense);
  const isFinal = (/** @type {HTMLElement} */ one) => one.matches(".danger");
  const isRestorable = (/** @type {HTMLElement} */ one) => one.dataset.action === "delete" && !isFinal(one);
  const gentle = useful.filter((one) => !isFinal(one) && !isRestorable(one));
  const removing = [...useful.filter(isRestorable), ...useful.filter(isFinal)];
  const first = [...gentle.slice(0, MAX_BUTTONS - Math.min(1, removing.length)), ...removing.slice(0, 1)];
  const rest = [...all.filter((one) => !first.includes(one)), anyAction(found, actions, refresh)].filter((one) => one !== null);
  return [...first, rest.length ? h("details", { class: "menu", open: isOpen }, h("summary", null, "More actions"), h("div", { class: "actions" }, rest)) : null];
}

/** @param {SpecChange[]} changes newest first @param {string} ns */
function specChanges(changes, ns) {
  if (!changes.length) return note("The spec has not been changed.");
  return h(
    "ol",
    { class: "changes" },
    changes.map((one) =>
      h(
        "li",
        null,
        h("p", null, h("b", null, one.who || one.actor), quiet(` ${moment(one.at)}, by `), one.op ? h("a", { href: operationLink(ns, one.op) }, one.event) : one.event),
        h("dl", { class: "facts" }, one.fields.flatMap((field) => fact(field.field, differs(field)))),
      ),
    ),
  );
}

/** @param {FieldChange} field */
function differs({ how, before, after }) {
  const [old, next] = [h("del", null, JSON.stringify(before)), h("ins", null, JSON.stringify(after))];
  if (how === "added") return h("span", null, next, quiet(" added"));
  return how === "removed" ? h("span", null, old, quiet(" removed")) : h("span", null, old, " → ", next);
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

/** @param {string} ns @param {string} id @param {ObjectView | null} found @param {Protection | null} protection */
function title(ns, id, found, protection) {
  return h(
    "div",
    null,
    h(
      "div",
      { class: "who-is" },
      h("h1", null, found ? nameOf(found) : id),
      found && nameOf(found) !== id ? code(id) : null,
      found ? stateBadge(found) : null,
      effectiveBadge(protection, id),
      found
        ? quiet(kindLink(found.kind), ` in ${ns}`)
        : quiet(`in ${ns}`),
      found?.parent ? quiet("part of ", objectAnchor(ns, found.parent)) : null,
    ),
    found ? summary(columnValues(found)) : null,
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
    return h("li", null, position, objectAnchor(ns, one.object), one.action, quiet(readable(one.text)));
  };
  /** @param {Operation} one */
  const child = (one) => h("li", null, objectAnchor(ns, one.object), `${one.action}, ${one.status}`);
  /** @param {Ancestor} one */
  const above = (one) => {
    const work = one.operation ? `, ${one.operation.action} by ${one.operation.who || one.operation.actor}` : "";
    return h("li", null, objectAnchor(ns, one.id), stateBadge(one), quiet(one.kind, work));
  };
  return [
    h("p", { class: "sentence" }, operation === null ? "No operation is under way." : readable(text)),
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

/** @param {ObjectView} found @param {Protection | null} protection @param {() => void} refresh */
function specs(found, protection, refresh) {
  const seen = Object.keys(found.seen ?? {}).length > 0;
  const schema = store.kinds.get(found.kind)?.spec;
  const raw = json(found.spec, "Spec");
  return [
    card(
      "Spec",
      `version ${found.version}, generation ${found.generation}`,
      ...(schema ? [recordTable(found.spec, schema), h("details", null, h("summary", null, "as JSON"), raw)] : [raw]),
    ),
    seen ? card("Observed", "latest observation", json(found.seen, "Observed")) : null,
    card("Labels", "", labels(found, refresh)),
    card("Protection", "against deletion", protectionPanel(found, protection, refresh)),
    card(
      "Record",
      "",
      h(
        "dl",
        { class: "facts" },
        ...fact("created", `${moment(found.created)}, ${ago(found.created)}`),
        ...fact("queue", found.queue === found.id ? "its own" : objectAnchor(found.ns, found.queue)),
        ...fact("time limit of the state", within(found)),
      ),
    ),
  ];
}

/** @param {ObjectView} found */
function within(found) {
  const row = store.kinds.get(found.kind)?.rows.find((one) => one.via === found.state && one.within !== null);
  return row?.within ? `at most ${span(row.within)}` : "none";
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
      toast("The labels are saved.", "good");
      refresh();
    } catch (error) {
      fill(feedback, problemPanel(error));
    }
  };
  const feedback = h("div", null);
  return h("form", { class: "row", onsubmit: save }, input, h("button", { type: "submit" }, "Save"), feedback);
}

/** @param {ObjectView} one */
const columnText = (one) => columnValues(one).map(([name, text]) => `${name} ${text}`).join(", ");

/** @param {HTMLElement} place @param {ObjectView} found @param {AbortSignal} signal */
async function showChildren(place, found, signal) {
  const mine = { parent: found.id };
  const [page, counts] = await Promise.all([
    get(`/ns/${part(found.ns)}/objects`, { ...mine, limit: MAX_CHILDREN_LISTED }, signal),
    countObjects(found.ns, ["kind", "state"], mine, signal),
  ]);
  /** @type {ObjectView[]} */
  const things = page.items;
  if (!things.length) {
    fill(place, note("No children. To create one: ", code(`stateward create KIND/ID --parent ${found.id}`)));
    return;
  }
  const kinds = [...rowsBy(counts.rows, 0)];
  const rest = counts.total - things.length;
  fill(
    place,
    kinds.map(([kind, rows]) => h("div", { class: "column" }, stateSummary(kind ?? "", countsBy(rows, 1)))),
    plainList(things.map((one) => h("li", null, objectAnchor(one.ns, one.id), stateBadge(one), quiet(one.kind), quiet(columnText(one))))),
    rest > 0 ? note(`and ${numberText(rest)} more`) : null,
  );
}

export default { title: "Object", show };
