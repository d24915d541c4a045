// Notices of actions that were accepted: live progress, a link to the operation, Cancel, and the action that undoes it.
//
// They stay over all views until they are closed. Only that of an action on one object, which needs no further look,
// goes by itself some seconds after its end.

import { get, part, Problem, send } from "../core/api.js";
import { fill, fillIfChanged, find, h, throttle } from "../core/dom.js";
import { link } from "../core/links.js";
import { listen, may } from "../core/store.js";
import { meter, quiet } from "./components.js";
import { attempt } from "./problems.js";
import { shape } from "./states.js";
import { numberText } from "../core/numbers.js";

/** @import {Child} from "../core/dom.js" */
/** @import {Operation} from "../core/types.js" */
/** @import {Tone} from "./states.js" */

const READ_MS = 700;
const REREAD_SECONDS = 5;
const STAYS_MS = 6_000;
const MAX_NOTICES = 4;
const MAX_LINES = 6;

/** @typedef {{ns: string, name: string, op: string | null, total: number}} NoticedRun one accepted request; it has no operation if it was done at once */

/**
 * @typedef {object} Noticed
 * @property {string} title such as "Suspend 4,050 VMs"
 * @property {NoticedRun[]} runs
 * @property {string} [undo] the text of the button that undoes it
 * @property {() => Promise<void>} [onUndo]
 */

/** @typedef {{ended: number, failed: number, cancelled: number, total: number, error: string | null}} Progress */

/** @type {Notice[]} */
let notices = [];

/** Show that an action was accepted, and how it goes. @param {Noticed} noticed */
export function noticeAction(noticed) {
  const notice = new Notice(noticed);
  notices.push(notice);
  find("#notices").prepend(notice.element);
  while (notices.length > MAX_NOTICES) notices[0]?.close();
  notice.read();
}

class Notice {
  /** @param {Noticed} noticed */
  constructor(noticed) {
    this.noticed = noticed;
    /** @type {Progress[]} */
    this.progress = noticed.runs.map(({ op, total }) => ({ ended: op === null ? total : 0, failed: 0, cancelled: 0, total, error: null }));
    const close = h("button", { class: "close", "aria-label": `Close: ${noticed.title}`, onclick: () => this.close() }, "✕");
    this.sign = h("span");
    this.lines = h("div", { class: "column" });
    this.buttons = h("div", { class: "row" });
    const header = h("header", null, this.sign, h("b", null, noticed.title), close);
    this.element = h("section", { class: "notice", "aria-label": noticed.title }, h("div", { class: "column" }, header, this.lines, this.buttons));
    this.isClosed = false;
    this.read = throttle(READ_MS, () => void this.readAll());
    const timer = setInterval(this.read, REREAD_SECONDS * 1_000);
    const deaf = listen("entries", this.read);
    this.stop = () => (clearInterval(timer), deaf());
    this.draw();
  }

  get hasEnded() {
    return this.progress.every((one) => one.ended >= one.total);
  }

  async readAll() {
    if (this.isClosed || this.hasEnded) return this.onEnd();
    const found = await Promise.all(
      this.noticed.runs.map(({ ns, op }, number) =>
        op === null || isOver(this.progress[number]) ? null : get(`/ns/${part(ns)}/operations/${part(op)}`).catch(missing),
      ),
    );
    for (const [number, one] of found.entries())
      if (one) this.progress[number] = progressOf(one, this.noticed.runs[number]?.total ?? 1);
    if (!this.isClosed) this.draw();
    if (this.hasEnded) this.onEnd();
  }

  onEnd() {
    this.stop();
    const isQuiet = this.progress.length === 1 && this.progress[0]?.total === 1 && !this.progress[0].failed;
    if (isQuiet) setTimeout(() => this.close(), STAYS_MS);
  }

  close() {
    this.isClosed = true;
    this.stop();
    this.element.remove();
    notices = notices.filter((one) => one !== this);
  }

  async cancel() {
    for (const [number, { ns, op }] of this.noticed.runs.entries()) {
      if (op === null || isOver(this.progress[number])) continue;
      await attempt(() => send("POST", `/ns/${part(ns)}/operations/${part(op)}/cancel?parts=true`));
    }
    this.read();
  }

  draw() {
    const { runs } = this.noticed;
    const hasFailed = this.progress.some((one) => one.failed);
    fill(this.sign, shape(/** @type {Tone} */ (hasFailed ? "failed" : this.hasEnded ? "good" : "moving")));
    // A link or a button that is replaced while it is pressed is not clicked.
    fillIfChanged(this.lines, this.progress, () => [
      runs.length > MAX_LINES ? this.line(sumOf(this.progress), undefined, false) : null,
      ...this.progress.slice(0, MAX_LINES).map((one, number) => this.line(one, runs[number], runs.length > 1)),
      runs.length > MAX_LINES ? quiet(`and ${runs.length - MAX_LINES} more`) : null,
    ]);
    fillIfChanged(this.buttons, this.hasEnded, () => (this.hasEnded ? this.undoButton() : this.cancelButton()));
  }

  cancelButton() {
    return may("act") ? h("button", { onclick: () => this.cancel() }, "Cancel") : null;
  }

  undoButton() {
    const { undo, onUndo } = this.noticed;
    return undo && onUndo ? h("button", { onclick: () => attempt(onUndo) }, undo) : null;
  }

  /** @param {Progress} one @param {NoticedRun | undefined} run @param {boolean} isOneOfMany */
  line(one, run, isOneOfMany) {
    /** @type {Child[]} */
    const shown = [h("span", { role: "status", "data-ended": String(isOver(one)) }, textOf(one))];
    if (isOneOfMany && run) shown.unshift(quiet(run.name));
    if (run?.op) shown.push(h("a", { href: link("operation", [run.ns, run.op]) }, "operation"));
    return h(
      "div",
      { class: "column" },
      one.total > 1 ? meter(one.ended, one.total, "ended", one.failed ? "failed" : "good") : null,
      h("div", { class: "row" }, shown),
      one.error ? h("p", { class: "error-text" }, one.error) : null,
    );
  }
}

/** @param {Progress[]} all @returns {Progress} */
function sumOf(all) {
  const sum = (/** @type {"ended" | "failed" | "cancelled" | "total"} */ name) => all.reduce((total, one) => total + one[name], 0);
  return { ended: sum("ended"), failed: sum("failed"), cancelled: sum("cancelled"), total: sum("total"), error: null };
}

/** @param {Progress | undefined} one */
const isOver = (one) => one !== undefined && one.ended >= one.total;

/** @param {Progress} one */
function textOf({ ended, failed, cancelled, total }) {
  const bad = [failed ? `${numberText(failed)} failed` : "", cancelled ? `${numberText(cancelled)} cancelled` : ""].filter(Boolean);
  if (total === 1) return bad.length ? (failed ? "failed" : "cancelled") : ended ? "done" : "under way";
  return [`${numberText(ended - failed - cancelled)} of ${numberText(total)} done`, ...bad].join(", ");
}

/** An operation with parts has ended when they have; it may have ended itself before, as the first of them. @param {Operation} one @param {number} total @returns {Progress} */
function progressOf(one, total) {
  const parts = one.parts ?? { [one.status]: 1 };
  const count = (/** @type {string} */ status) => parts[status] ?? 0;
  const [failed, cancelled] = [count("failed"), count("cancelled")];
  const all = Object.values(parts).reduce((sum, some) => sum + some, 0);
  const ended = count("succeeded") + failed + cancelled;
  const isHeld = one.parts && ended >= all && ["waiting", "running"].includes(one.status); // the composite ends last
  return { ended: isHeld ? all - 1 : ended, failed, cancelled, total: Math.max(all, one.parts ? total : 1), error: all === 1 ? one.error : null };
}

/** When the server is away it is read again later; what is not there any more has ended. @param {unknown} error */
function missing(error) {
  if (error instanceof Problem && error.fields.status === 404) return { status: "succeeded", parts: null, error: null };
  return null;
}
