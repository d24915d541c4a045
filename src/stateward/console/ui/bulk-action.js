// An action on many objects: which were accepted, which refused and why, and how each of them ended.

import { get, objectPath, part, Problem, send } from "../core/api.js";
import { actionForm } from "../core/domains.js";
import { fill, h, oncePerFrame } from "../core/dom.js";
import { card, meter, note, objectAnchor, table } from "./components.js";
import { fieldsOf } from "./problems.js";
import { badge, shape } from "./states.js";
import { classOf, store } from "../core/store.js";

/** @import {Accepted, Context, JournalEntry, ObjectView} from "../core/types.js" */
/** @import {Filter} from "../core/pagination.js" */

const MAX_PARALLEL = 8;
const MAX_SHOWN = 200;
const NEEDS_MORE = { title: "It needs arguments", status: 0, code: "page" };

/** @typedef {"asked" | "accepted" | "refused" | "done" | "failed"} Status */
/** @typedef {{ns: string, id: string, kind: string, state: string, status: Status, text: string, op: string, desired: string}} Entry */

/** One run of an action over many objects. */
export class BulkAction {
  /** @param {Context} context @param {string} action */
  constructor(context, action) {
    this.action = action;
    /** @type {Entry[]} */
    this.entries = [];
    /** @type {Map<string, Entry>} */
    this.byOp = new Map();
    this.body = h("div", null);
    this.element = card(`Group action: ${action}`, "each object answers for itself", this.body);
    this.show = oncePerFrame(() => this.draw());
    context.on("lines", (/** @type {JournalEntry[]} */ lines) => lines.forEach((line) => this.onEntry(line)));
  }

  /** Ask for the action on each of these. @param {ObjectView[]} things @param {string[]} facts */
  async each(things, facts) {
    this.entries = things.map((one) => entryOf(one, "asked"));
    this.show();
    const waiting = things.map((thing, number) => ({ thing, entry: this.entries[number] ?? entryOf(thing, "asked") }));
    const worker = async () => {
      for (let one = waiting.shift(); one; one = waiting.shift()) await this.ask(one.thing, one.entry, facts);
    };
    await Promise.all(Array.from({ length: MAX_PARALLEL }, worker));
  }

  /** @param {ObjectView} thing @param {Entry} entry @param {string[]} facts */
  async ask(thing, entry, facts) {
    const path = objectPath(thing);
    const form = actionForm(thing, this.action);
    try {
      if (form?.fields)
        throw new Problem({ ...NEEDS_MORE, detail: `${this.action} needs arguments: ask on its own page` });
      if (form) await this.through(entry, path, await send(...form.call(thing, facts, {})));
      else this.begun(entry, await send("POST", `${path}/actions/${part(this.action)}`, { facts }));
    } catch (error) {
      Object.assign(entry, { status: "refused", text: fieldsOf(error).detail });
    }
    this.show();
  }

  /** What was begun through the domain's own API. @param {Entry} entry @param {string} path @param {any} answer */
  async through(entry, path, answer) {
    const object = await get(path);
    const op = typeof answer?.operation === "string" ? answer.operation : (answer?.operation?.id ?? object.op);
    this.begun(entry, { object, operation: op ? await get(`/ns/${part(entry.ns)}/operations/${part(op)}`) : null });
  }

  /** Ask for the action on all that fit, in one transaction. @param {string} ns @param {Filter} filter @param {string[]} facts */
  async all(ns, filter, facts) {
    const selector = {
      ...(filter.kind ? { kind: filter.kind } : {}),
      ...(filter.parent ? { parent: filter.parent } : {}),
      ...(filter.state ? { states: filter.state.split(",") } : {}),
      ...(filter.q ? { q: filter.q } : {}),
      ...(filter.label?.length ? { labels: Object.fromEntries(filter.label.map((one) => one.split("=", 2))) } : {}),
    };
    await this.group(ns, { selector, facts });
  }

  /** @param {string} ns @param {any} body */
  async group(ns, body) {
    let verdict;
    try {
      verdict = await send("POST", `/ns/${part(ns)}/actions/${part(this.action)}`, body);
    } catch (error) {
      if (!(error instanceof Problem) || !error.fields.skipped) throw error;
      verdict = { whole: null, begun: [], skipped: error.fields.skipped };
    }
    for (const one of [verdict.whole, ...verdict.begun]) {
      if (!one) continue;
      const entry = entryOf(one.object, "accepted");
      this.entries.push(entry);
      this.begun(entry, one);
    }
    for (const [id, why] of Object.entries(verdict.skipped)) {
      this.entries.push({
        ns,
        id,
        kind: "",
        state: why.state ?? "",
        status: "refused",
        text: why.detail,
        op: "",
        desired: "",
      });
    }
    this.show();
  }

  /** @param {Entry} entry @param {Accepted} accepted */
  begun(entry, accepted) {
    entry.state = accepted.object.state;
    entry.status = accepted.operation ? "accepted" : "done";
    if (!accepted.operation) return;
    entry.op = accepted.operation.id;
    entry.desired = accepted.operation.desired;
    this.byOp.set(entry.op, entry);
    for (const line of store.latest) this.onEntry(line); // the end may have come before the answer
  }

  /** @param {JournalEntry} line */
  onEntry(line) {
    const entry = line.op === null ? undefined : this.byOp.get(line.op);
    if (!entry || line.target === null || entry.id !== line.object || entry.status !== "accepted") return;
    entry.state = line.target;
    if (classOf(line.kind, line.target) !== "transitional") {
      entry.status = line.target === entry.desired ? "done" : "failed";
      entry.text = line.reason ?? "";
    }
    this.show();
  }

  /** @param {Status} status */
  count(status) {
    return this.entries.filter((one) => one.status === status).length;
  }

  draw() {
    const total = this.entries.length;
    const ended = total - this.count("asked") - this.count("accepted");
    const words = `${total} asked · ${this.count("refused")} refused · ${this.count("accepted")} under way · ${this.count("done")} done · ${this.count("failed")} failed`;
    const order = { refused: 0, failed: 1, asked: 2, accepted: 3, done: 4 };
    const shown = [...this.entries].sort((one, other) => order[one.status] - order[other.status]).slice(0, MAX_SHOWN);
    fill(
      this.body,
      h("p", { class: "sentence", role: "status", "data-ended": ended === total ? "true" : "false" }, words),
      meter(ended, total, "ended"),
      h("div", { class: "results" }, table("Results", ["object", "result", "state", "why"], shown.map(resultRow))),
      total > MAX_SHOWN ? note(`and ${total - MAX_SHOWN} more`) : null,
    );
  }
}

/** @param {Entry} entry */
function resultRow(entry) {
  const tone = /** @type {const} */ ({
    asked: "idle",
    accepted: "moving",
    refused: "unknown",
    done: "good",
    failed: "failed",
  })[entry.status];
  return [
    objectAnchor(entry.ns, entry.id),
    h("span", { class: "fine" }, shape(tone), entry.status === "accepted" ? "under way" : entry.status),
    entry.state ? badge(entry.state, classOf(entry.kind, entry.state)) : "",
    entry.text,
  ];
}

/** @param {ObjectView} thing @param {Status} status @returns {Entry} */
function entryOf(thing, status) {
  return { ns: thing.ns, id: thing.id, kind: thing.kind, state: thing.state, status, text: "", op: "", desired: "" };
}
