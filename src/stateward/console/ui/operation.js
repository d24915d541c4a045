// The current operation of an object: its steps, its progress, and its end.

import { follow, get, part, send } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { card, confirm, json, meter, note, table } from "./components.js";
import { attempt } from "./problems.js";
import { shape } from "./states.js";
import { may } from "../core/store.js";
import { ago, clock, seconds, span } from "../core/time.js";

/** @import {Context, Operation, ObjectView} from "../core/types.js" */
/** @import {Tone} from "./states.js" */

const MAX_PROGRESS_SHOWN = 6;

/** @type {Record<string, Tone>} */
const TONES = { waiting: "arriving", running: "moving", succeeded: "good", failed: "failed", cancelled: "over" };

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
    this.element = card("Operation", "", this.now, this.progress, this.lines, this.past);
    context.signal.addEventListener("abort", () => this.following?.abort());
  }

  /** @param {ObjectView} thing */
  async show(thing) {
    const page = await get(`/ns/${part(this.ns)}/operations`, { object: thing.id, limit: MAX_PROGRESS_SHOWN }, this.context.signal);
    /** @type {Operation[]} */
    const found = page.items;
    const mine = found.find((one) => one.id === thing.op) ?? null;
    fill(
      this.now,
      mine
        ? this.summary(mine)
        : note(found.length ? "Nothing is under way." : "It had no operation yet."),
    );
    const before = found.filter((one) => one !== mine);
    fill(
      this.past,
      before.length ? table("Former operations", ["action", "ended", "who", "took", "error"], before.map(row)) : null,
    );
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
        shape(TONES[one.status] ?? "over"),
        " ",
        h("b", null, one.action),
        ` by ${one.who || one.actor}, ${one.status}, asked ${ago(one.created)}`,
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
    if (!(await confirm(`Cancel ${one.action} of ${one.object}?`, "Cancel it"))) return;
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
            done: 1,
            total: 1,
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
  const lines = h("pre", { class: "json", tabindex: "0", role: "region", "aria-label": "Traceback" }, text);
  return h("details", null, h("summary", null, "traceback"), lines);
}

/** @param {Operation} one */
function row(one) {
  const took = one.ended && one.started ? span(seconds(one.ended) - seconds(one.started)) : "";
  return [
    h("span", { class: "fine" }, shape(TONES[one.status] ?? "over"), one.action),
    one.ended ? ago(one.ended) : one.status,
    one.who || one.actor,
    took,
    h("div", null, one.error ?? "", one.traceback ? tracebackOf(one.traceback) : null),
  ];
}
