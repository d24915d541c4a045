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
/** @typedef {{ns: string, id: string, kind: string, state: string, status: Status, text: string, op: string, desired: string}} BulkResult */

/** One run of an action over many objects. */
export class BulkAction {
  /** @param {Context} context @param {string} action @param {any} [args] */
  constructor(context, action, args) {
    this.action = action;
    this.args = args;
    /** @type {BulkResult[]} */
    this.results = [];
    /** @type {Map<string, BulkResult>} */
    this.byOp = new Map();
    this.body = h("div", null);
    this.element = card(`Group action: ${action}`, "each object answers for itself", this.body);
    this.show = oncePerFrame(() => this.draw());
    context.on("entries", (/** @type {JournalEntry[]} */ entries) => entries.forEach((entry) => this.onEntry(entry)));
  }

  /** Ask for the action on each of these. @param {ObjectView[]} things @param {string[]} facts */
  async each(things, facts) {
    this.results = things.map((one) => resultOf(one, "asked"));
    this.show();
    const waiting = things.map((thing, number) => ({ thing, result: this.results[number] ?? resultOf(thing, "asked") }));
    const worker = async () => {
      for (let one = waiting.shift(); one; one = waiting.shift()) await this.ask(one.thing, one.result, facts);
    };
    await Promise.all(Array.from({ length: MAX_PARALLEL }, worker));
  }

  /** @param {ObjectView} thing @param {BulkResult} result @param {string[]} facts */
  async ask(thing, result, facts) {
    const path = objectPath(thing);
    const form = actionForm(thing, this.action);
    try {
      if (form?.fields)
        throw new Problem({ ...NEEDS_MORE, detail: `${this.action} needs arguments: ask on its own page` });
      if (form) await this.through(result, path, await send(...form.call(thing, facts, {})));
      else this.begun(result, await send("POST", `${path}/actions/${part(this.action)}`, { facts, args: this.args }));
    } catch (error) {
      Object.assign(result, { status: "refused", text: fieldsOf(error).detail });
    }
    this.show();
  }

  /** What was begun through the domain's own API. @param {BulkResult} result @param {string} path @param {any} answer */
  async through(result, path, answer) {
    const object = await get(path);
    const op = typeof answer?.operation === "string" ? answer.operation : (answer?.operation?.id ?? object.op);
    this.begun(result, { object, operation: op ? await get(`/ns/${part(result.ns)}/operations/${part(op)}`) : null });
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
    await this.group(ns, { selector, facts, args: this.args });
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
      const result = resultOf(one.object, "accepted");
      this.results.push(result);
      this.begun(result, one);
    }
    for (const [id, why] of Object.entries(verdict.skipped)) {
      this.results.push({
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

  /** @param {BulkResult} result @param {Accepted} accepted */
  begun(result, accepted) {
    result.state = accepted.object.state;
    result.status = accepted.operation ? "accepted" : "done";
    if (!accepted.operation) return;
    result.op = accepted.operation.id;
    result.desired = accepted.operation.desired;
    this.byOp.set(result.op, result);
    for (const entry of store.latest) this.onEntry(entry); // the end may have come before the answer
  }

  /** @param {JournalEntry} entry */
  onEntry(entry) {
    const result = entry.op === null ? undefined : this.byOp.get(entry.op);
    if (!result || entry.target === null || result.id !== entry.object || result.status !== "accepted") return;
    result.state = entry.target;
    if (classOf(entry.kind, entry.target) !== "transitional") {
      result.status = entry.target === result.desired ? "done" : "failed";
      result.text = entry.reason ?? "";
    }
    this.show();
  }

  /** @param {Status} status */
  count(status) {
    return this.results.filter((one) => one.status === status).length;
  }

  draw() {
    const total = this.results.length;
    const ended = total - this.count("asked") - this.count("accepted");
    const words = `${total} asked · ${this.count("refused")} refused · ${this.count("accepted")} under way · ${this.count("done")} done · ${this.count("failed")} failed`;
    const order = { refused: 0, failed: 1, asked: 2, accepted: 3, done: 4 };
    const shown = [...this.results].sort((one, other) => order[one.status] - order[other.status]).slice(0, MAX_SHOWN);
    fill(
      this.body,
      h("p", { class: "sentence", role: "status", "data-ended": ended === total ? "true" : "false" }, words),
      meter(ended, total, "ended"),
      h("div", { class: "results" }, table("Results", ["object", "result", "state", "why"], shown.map(resultRow))),
      total > MAX_SHOWN ? note(`and ${total - MAX_SHOWN} more`) : null,
    );
  }
}

/** @param {BulkResult} result */
function resultRow(result) {
  const tone = /** @type {const} */ ({
    asked: "idle",
    accepted: "moving",
    refused: "unknown",
    done: "good",
    failed: "failed",
  })[result.status];
  return [
    objectAnchor(result.ns, result.id),
    h("span", { class: "fine" }, shape(tone), result.status === "accepted" ? "under way" : result.status),
    result.state ? badge(result.state, classOf(result.kind, result.state)) : "",
    result.text,
  ];
}

/** @param {ObjectView} thing @param {Status} status @returns {BulkResult} */
function resultOf(thing, status) {
  return { ns: thing.ns, id: thing.id, kind: thing.kind, state: thing.state, status, text: "", op: "", desired: "" };
}
