// The current operation of an object: its steps, its progress, and its end.

import { follow, part, send } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { card, confirm, json, meter, note, relativeTime, table } from "./components.js";
import { duration, operationLink, statusTone } from "./operation-status.js";
import { attempt } from "./problems.js";
import { shape } from "./states.js";
import { may } from "../core/store.js";
import { ago, clock, span } from "../core/time.js";

/** @import {Context, Operation, ObjectView} from "../core/types.js" */

/** The card of an object's operations. */
export class OperationCard {
  /** @param {Context} context @param {string} ns */
  constructor(context, ns) {
    this.context = context;
    this.ns = ns;
    this.current = "";
    /** @type {AbortController | null} */
    this.following = null;
    this.now = h("div", { class: "column" });
    this.lines = h("ol", { class: "steps", "aria-label": "Progress" });
    this.progress = h("div", null);
    this.past = h("div", null);
    this.element = card("Operation", "", this.now, this.lines, this.past);
    context.signal.addEventListener("abort", () => this.following?.abort());
  }

  /** @param {ObjectView} thing @param {Operation[]} found its operations, newest first */
  show(thing, found) {
    const mine = found.find((one) => one.id === thing.op) ?? null;
    fill(
      this.now,
      mine
        ? this.summary(mine)
        : note(found.length ? "No operation is under way." : "No operations yet."),
    );
    const before = found.filter((one) => one !== mine);
    if (!this.past.querySelector("details[open]")) { // a traceback that somebody reads stays as it is
      fill(
        this.past,
        before.length ? table("Previous operations", ["action", "ended", "who", "took", "error"], before.map(row)) : null,
      );
    }
    if (mine && mine.id !== this.current) this.follow(mine.id);
    if (!mine && !this.current) fill(this.lines);
  }

  /** @param {Operation} one */
  summary(one) {
    const steps = Object.keys(one.steps ?? {});
    return [
      h(
        "p",
        null,
        shape(statusTone(one.status)),
        " ",
        h("a", { href: operationLink(one.ns, one.id) }, one.action),
        ` by ${one.who || one.actor}, ${one.status}, requested ${ago(one.created)}`,
        one.attempts > 1 ? `, attempt ${one.attempts}` : "",
      ),
      note(`${one.origin} → ${one.via} → ${one.desired}, else ${one.failing}; within ${span(one.within)}`,
      ),
      Object.keys(one.args ?? {}).length ? json(one.args, "Arguments") : null,
      steps.length ? h("p", null, `steps done: ${steps.join(", ")}`) : null,
      may("act") ? h("button", { onclick: () => this.cancel(one) }, "Cancel") : null,
    ];
  }

  /** @param {Operation} one */
  async cancel(one) {
    if (!(await confirm(`Cancel ${one.action} of ${one.object}?`, "Cancel the operation"))) return;
    await attempt(() => send("POST", `/ns/${part(this.ns)}/operations/${part(one.id)}/cancel`));
  }

  /** @param {string} op */
  async follow(op) {
    this.following?.abort();
    const mine = (this.following = new AbortController());
    this.current = op;
    fill(this.lines);
    fill(this.progress);
    try {
      for await (const { event, data } of follow(this.ns, op, mine.signal)) {
        if (event === "progress") this.step(data);
        else
          this.step({
            at: data.ended ?? data.created,
            text: data.error ? `${data.status}: ${data.error}` : data.status,
            done: null, // its parts may go on
            total: null,
          });
      }
      this.current = "";
    } catch {
      this.current = ""; // the server is away: it is followed again when the object is shown again
    }
  }

  /** @param {{at: string, text: string, done: number | null, total: number | null}} line */
  step(line) {
    const share = line.total ? `${line.done} of ${line.total}` : "";
    this.lines.append(h("li", null, h("time", null, clock(line.at)), h("span", null, line.text), share));
    while (this.lines.childElementCount > 100) this.lines.firstElementChild?.remove();
    this.lines.scrollTop = this.lines.scrollHeight;
    if (line.total) fill(this.progress, meter(line.done ?? 0, line.total, "Progress"));
  }
}

/** Folded, because only the author of the handler reads it. The server gives it to administrators only. @param {string} text */
function tracebackOf(text) {
  const lines = h("pre", { class: "json", tabindex: "0", role: "group", "aria-label": "Traceback" }, text);
  return h("details", null, h("summary", null, "traceback"), lines);
}

/** @param {Operation} one */
function row(one) {
  return [
    h("span", { class: "fine" }, shape(statusTone(one.status)), h("a", { href: operationLink(one.ns, one.id) }, one.action)),
    one.ended ? relativeTime(one.ended) : one.status,
    one.who || one.actor,
    one.ended ? duration(one) : "",
    h("div", null, one.error ?? "", one.traceback ? tracebackOf(one.traceback) : null),
  ];
}
