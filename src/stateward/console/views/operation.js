// One operation: where its time went, its attempts and steps, what it said, and what it waits for.

import { get, objectPath, part, Problem, send } from "../core/api.js";
import { fill, fillIfChanged, h, throttle } from "../core/dom.js";
import { card, code, confirm, empty, errorText, fact, json, meter, note, objectAnchor, quiet, readable } from "../ui/components.js";
import { link } from "../core/links.js";
import { countParts, duration, exactSpan, isOpen, operationLink, partsProgress, statusBadge, statusOf } from "../ui/operation-status.js";
import { attempt } from "../ui/problems.js";
import { shape } from "../ui/states.js";
import { may, store } from "../core/store.js";
import { timeBars } from "../ui/time-bars.js";
import { ago, clock, moment, seconds, span } from "../core/time.js";
import { numberText } from "../core/numbers.js";

/** @import {Context, JournalEntry, Operation, Span, Timeline, Why} from "../core/types.js" */

const MOMENTS = ["event", "output"];

/** @param {Context} context */
async function show(context) {
  const [ns = "", id = ""] = context.path;
  const base = `/ns/${part(ns)}/operations/${part(id)}`;
  const head = h("div", { class: "column" });
  const bars = h("div", null);
  const said = h("ol", { class: "timeline" });
  const facts = h("div", { class: "column" });
  /** @type {Timeline | null} */
  let found = null;

  async function read() {
    try {
      found = /** @type {Timeline} */ (await get(`${base}/timeline`, {}, context.signal));
    } catch (error) {
      if (error instanceof Problem && error.fields.status === 404) return missing(context.main, ns, id);
      throw error;
    }
    const { operation, spans, now } = found;
    const why = isOpen(operation) ? await reason(operation, context.signal) : "";
    fill(head, title(operation, spans, why, soon));
    const last = operation.ended ? seconds(operation.ended) : seconds(now);
    fill(bars, timeBars(ns, spans.filter((one) => !MOMENTS.includes(one.kind)), seconds(operation.created), last));
    const moments = spans.filter((one) => MOMENTS.includes(one.kind)).reverse();
    fillIfChanged(said, moments, () => moments.map(line));
    fillIfChanged(facts, [operation.status, operation.steps, operation.result], () => details(operation));
  }
  const soon = throttle(300, () => void read().catch(() => {})); // without the server, the view stays as it is

  fill(
    context.main,
    head,
    card("Timeline", "filled: running; hatched: waiting", bars),
    h("div", { class: "columns" }, card("Output and events", "newest first", said), facts),
  );
  await read();
  context.on("entries", (/** @type {JournalEntry[]} */ entries) => {
    if (entries.some((one) => one.ns === ns && (one.op === id || one.object === found?.operation.object))) soon();
  });
  context.on("afresh", soon);
  context.every(1, () => found && isGoing(found.operation) && soon());
}

/** @param {Operation} one */
const isGoing = (one) => isOpen(one) || statusOf(one) === "running";

/** What an operation waits for. @param {Operation} one @param {AbortSignal} signal @returns {Promise<string>} */
async function reason(one, signal) {
  try {
    const why = /** @type {Why} */ (await get(`${objectPath({ ns: one.ns, id: one.object })}/why`, {}, signal));
    return why.queue.find((queued) => queued.op === one.id)?.text ?? "";
  } catch {
    return ""; // its object is gone by now, or the server is away
  }
}

/** @param {Operation} one @param {Span[]} spans @param {string} why @param {() => void} refresh */
function title(one, spans, why, refresh) {
  const status = statusOf(one);
  const more = one.group === one.id ? countParts(one) - 1 : 0;
  const last = spans.filter((span) => span.kind === "output").at(-1);
  const [, done, total] = /^(\d+) of (\d+)$/.exec(last?.text ?? "") ?? [];
  return [
    h(
      "div",
      { class: "who-is" },
      h("h1", null, one.action, " ", objectAnchor(one.ns, one.object), more > 0 ? ` and ${numberText(more)} more` : ""),
      statusBadge(status),
      quiet(`${one.kind} in ${one.ns}, by ${one.who || one.actor} ${ago(one.created)}, ${one.ended ? "took" : "for"} ${duration(one)}`),
      may("act") && isOpen(one) ? h("button", { class: "danger", onclick: () => cancel(one, refresh) }, "Cancel…") : null,
    ),
    why ? h("p", { class: "sentence" }, readable(why)) : null,
    isOpen(one) && last ? h("p", null, total ? meter(Number(done), Number(total), "Progress") : null, ` ${last.name} `, quiet(last.text)) : null,
    countParts(one) ? h("p", { class: "row" }, partsProgress(one), partLinks(one)) : null,
    one.error ? h("p", null, errorText(one.error)) : null,
    one.group && one.group !== one.id ? note("It is a part of ", h("a", { href: operationLink(one.ns, one.group) }, "another operation"), ".") : null,
  ];
}

/** @param {Operation} one */
function partLinks(one) {
  /** @param {string} status @param {string} text */
  const to = (status, text) => h("a", { href: link("operations", [], { ns: one.ns, group: one.id, status }) }, text);
  return [to("", "all parts"), one.parts?.failed ? to("failed", "failed parts") : null];
}

/** @param {Operation} one @param {() => void} refresh */
async function cancel(one, refresh) {
  const effect = [h("p", null, "Running work is stopped, and finished steps that have an undo are undone. Waiting work ends at once.")];
  if (!(await confirm(`Cancel ${one.action} of ${one.object}?`, "Cancel the operation", effect))) return;
  await attempt(() => send("POST", `/ns/${part(one.ns)}/operations/${part(one.id)}/cancel`));
  refresh();
}

/** @param {Span} one */
function line(one) {
  const tone = one.status === "failed" ? "failed" : one.kind === "output" ? "idle" : "over";
  return h(
    "li",
    { "data-kind": one.kind },
    h("time", { datetime: one.began, title: moment(one.began ?? "") }, clock(one.began ?? "")),
    h("span", { class: "pin" }, shape(tone)),
    h("div", { class: "said" }, one.kind === "output" ? h("span", null, one.name) : h("b", { class: "event" }, one.name), one.text ? h("span", { class: one.status === "failed" ? "why error-text" : "why" }, one.text) : null),
  );
}

/** @param {Operation} one */
function details(one) {
  const began = one.started ? `${moment(one.started)}, after ${exactSpan(seconds(one.started) - seconds(one.created))}` : "not yet";
  const trace = one.traceback
    ? h("details", null, h("summary", null, "traceback"), h("pre", { class: "json", tabindex: "0", role: "group", "aria-label": "Traceback" }, one.traceback))
    : null;
  return [
    card(
      "Record",
      "",
      h(
        "dl",
        { class: "facts" },
        ...fact("states", `${one.origin} → ${one.via} → ${one.desired}, or ${failingState(one)} if it fails`),
        ...fact("requested", moment(one.created)),
        ...fact("started", began),
        ...fact("ended", one.ended ? moment(one.ended) : "not yet"),
        ...fact("time limit", one.within ? span(one.within) : "none"),
        ...fact("attempts", String(one.attempts)),
        ...fact("id", code(one.id)),
      ),
      trace,
    ),
    Object.keys(one.args ?? {}).length ? card("Arguments", "", json(one.args, "Arguments")) : null,
    one.facts.length ? card("Facts", "", one.facts.join(", ")) : null,
    one.result !== null ? card("Result", "", json(one.result, "Result")) : null,
  ];
}

/** Where a failure leads: a step of another party says it in the rows that lead on from its state. @param {Operation} one */
function failingState({ kind, via, failing }) {
  const rows = store.kinds.get(kind)?.rows ?? [];
  const exits = rows.filter((row) => ["failure", "timeout"].includes(row.meaning) && row.sources.includes(via));
  const states = new Set(exits.map((row) => row.to));
  return states.size && !states.has(failing) && states.size === 1 ? [...states][0] : failing;
}

/** @param {HTMLElement} main @param {string} ns @param {string} id */
function missing(main, ns, id) {
  fill(
    main,
    h("div", { class: "who-is" }, h("h1", null, "Operation not found")),
    empty(
      `There is no operation ${id} in ${ns}.`,
      "Retention may have deleted it, or your token may not read it. ",
      h("a", { href: link("operations") }, "All operations"),
      ", ",
      h("a", { href: link("journal", [], { op: id }) }, "its journal entries"),
    ),
  );
}

export default { title: "Operation", show };
