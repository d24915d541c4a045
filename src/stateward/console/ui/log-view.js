// The output of a program: its end, and what it writes from now on.
//
// A source reads excerpts by cursor, so nothing is shown twice and nothing is left out while the tab is hidden. The page
// keeps the newest lines only. They are text nodes: the browser finds text in them, and no line becomes markup.

import { isOutage } from "../core/api.js";
import { download, fill, fillIfChanged, h } from "../core/dom.js";
import { counted } from "../core/numbers.js";
import { may } from "../core/store.js";
import { plainLine } from "../core/terminal-text.js";
import { commandCard } from "./command-form.js";
import { card, labeled } from "./components.js";
import { fieldsOf, problemPanel } from "./problems.js";
import { commandDetails, copyText } from "./sending.js";

/** @import {Context, DomainCommand} from "../core/types.js" */
/** @import {CommandSource} from "./command-form.js" */

/** @typedef {string | number} Cursor */
/** @typedef {{name: string, text: string, next: Cursor}} LogExcerpt what a part has written, and the cursor of what comes next */

/**
 * @typedef {object} OutputSource The output of a program whose parts write logs of their own.
 * @property {string} ns
 * @property {string} name of the program, for files
 * @property {string} noun what a part is called, such as `instance`
 * @property {boolean} [isEnded] whether nothing more will be written
 * @property {(asked: {part: string, after?: Cursor, most: number}, signal: AbortSignal) => Promise<LogExcerpt[]>} read the
 *   end of each log, or what comes after a cursor; of all parts if `part` is empty
 * @property {(part: string) => DomainCommand} command the command that shows the same
 * @property {CommandSource} [exec] runs commands where the program runs
 */

const MAX_LINES = 3_000;
const MAX_LINE_CHARS = 2_000;
const READ_BYTES = 60_000;
const MAX_READS = 8;
const INTERVAL_S = 2;
const PAUSE_ROUNDS = 4;
const NEAR_END_PX = 40;

/** The cards of a program: its logs, and a form for commands if the token has the right. @param {Context} context @param {OutputSource} source */
export function outputCards(context, source) {
  const command = source.exec && may("execute") ? commandCard(context, source.ns, source.noun, source.exec) : null;
  const logs = new LogView(context, source, (parts) => command?.offer(parts));
  return [logs.element, command?.element ?? null];
}

class LogView {
  /** @param {Context} context @param {OutputSource} source @param {(parts: string[]) => void} onParts */
  constructor(context, source, onParts) {
    this.source = source;
    this.signal = context.signal;
    this.onParts = onParts;
    this.part = "";
    /** Each choice of a part begins a round; what a former one has asked for is dropped. */
    this.round = 0;
    this.reading = -1;
    this.isLoaded = false;
    this.pause = 0;
    /** @type {Map<string, Cursor>} */
    this.cursors = new Map();
    /** @type {Map<string, {raw: string, text: HTMLElement}>} the lines that have no end yet, by part */
    this.open = new Map();
    this.follow = checkbox("follow", !source.isEnded);
    this.wrap = checkbox("wrap lines", true);
    this.choice = /** @type {HTMLSelectElement} */ (h("select", { onchange: () => this.choose(this.choice.value) }));
    this.chooser = labeled(source.noun, this.choice);
    this.count = h("span", { class: "quiet" });
    this.status = h("span", { class: "quiet", role: "status" });
    this.trouble = h("div");
    this.command = commandDetails();
    this.lines = h("div", { class: "log wrapped", role: "log", "aria-live": "off", "aria-label": `Logs of ${source.name}`, tabindex: "0" });
    this.follow.addEventListener("change", () => this.showStatus());
    this.wrap.addEventListener("change", () => this.lines.classList.toggle("wrapped", this.wrap.checked));
    this.element = card(
      "Logs",
      [this.status, this.count],
      h(
        "div",
        { class: "row log-tools" },
        this.chooser,
        h("label", { class: "row" }, this.follow, "follow"),
        h("label", { class: "row" }, this.wrap, "wrap lines"),
        h("button", { type: "button", onclick: () => copyText("Logs", this.text()) }, "Copy logs"),
        h("button", { type: "button", onclick: () => download(`${source.name.replaceAll(/[^\w.-]+/g, "-")}.log`, [this.text()], "text/plain") }, "Download logs"),
      ),
      this.trouble,
      this.lines,
      this.command.element,
    );
    this.showParts();
    this.showStatus();
    context.every(INTERVAL_S, () => this.poll());
  }

  // --- reading -------------------------------------------------------------------------------------------------------

  /** Read what is new, unless there was trouble a moment ago. */
  async poll() {
    const { part, round } = this;
    if (this.reading === round || (this.isLoaded && !this.follow.checked) || this.pause-- > 0) return;
    this.reading = round;
    this.pause = 0;
    try {
      if (!this.isLoaded) this.add(await this.source.read({ part, most: READ_BYTES }, this.signal), round);
      else if (part) await this.readOn(part, round);
      else await this.readAll(round);
      fillIfChanged(this.trouble, null, () => null);
    } catch (error) {
      if (this.signal.aborted || isOutage(error)) return; // the banner tells of an outage
      this.pause = PAUSE_ROUNDS;
      fillIfChanged(this.trouble, fieldsOf(error), () => problemPanel(error));
    } finally {
      if (this.reading === round) this.reading = -1;
    }
    this.showStatus();
  }

  /** Read on in those logs that have become longer. @param {number} round */
  async readAll(round) {
    const ends = await this.source.read({ part: "", most: 1 }, this.signal);
    for (const { name, next } of ends) if (this.cursors.get(name) !== next) await this.readOn(name, round);
  }

  /** @param {string} name of a part @param {number} round */
  async readOn(name, round) {
    for (let turn = 0; turn < MAX_READS && this.round === round; turn += 1) {
      const after = this.cursors.get(name) ?? 0;
      const found = (await this.source.read({ part: name, after, most: READ_BYTES }, this.signal)).filter((one) => one.name === name);
      this.add(found, round);
      if ((found[0]?.text.length ?? 0) < READ_BYTES / 4) return; // a character has at most four bytes
    }
  }

  // --- lines ---------------------------------------------------------------------------------------------------------

  /** @param {LogExcerpt[]} excerpts @param {number} round that asked for them */
  add(excerpts, round) {
    if (this.round !== round) return;
    const isAtEnd = this.lines.scrollHeight - this.lines.scrollTop - this.lines.clientHeight < NEAR_END_PX;
    const known = this.cursors.size;
    for (const { name, text, next } of excerpts) {
      this.cursors.set(name, next);
      this.write(name, text);
    }
    while (this.lines.childElementCount > MAX_LINES) this.lines.firstElementChild?.remove();
    if (isAtEnd) this.lines.scrollTop = this.lines.scrollHeight;
    if (this.cursors.size !== known) this.showParts();
    this.isLoaded = true;
  }

  /** @param {string} name @param {string} text */
  write(name, text) {
    const fresh = document.createDocumentFragment();
    const parts = text.split("\n");
    for (const [number, one] of parts.entries()) {
      const isLast = number === parts.length - 1;
      if (isLast && !one) break;
      const before = this.open.get(name);
      const raw = (before?.raw ?? "") + one;
      const isShown = before !== undefined && this.lines.contains(before.text); // or it was among the oldest lines
      const place = isShown ? before.text : h("span");
      if (!isShown) fresh.append(h("div", { class: "log-line" }, h("span", { class: "log-name" }, `${name}  `), place));
      place.textContent = plainLine(raw);
      // A line without an end must not grow for ever.
      if (isLast && raw.length < MAX_LINE_CHARS) this.open.set(name, { raw, text: place });
      else this.open.delete(name);
    }
    this.lines.append(fresh);
  }

  /** What is shown, as a text. */
  text() {
    const isNamed = this.lines.matches(".named");
    const lines = [...this.lines.children].map((one) => (isNamed ? one.textContent : one.lastElementChild?.textContent) ?? "");
    return lines.map((one) => `${one}\n`).join("");
  }

  // --- the head ------------------------------------------------------------------------------------------------------

  showParts() {
    const names = [...this.cursors.keys()];
    const { noun, ns, command } = this.source;
    this.onParts(names);
    this.lines.classList.toggle("named", names.length > 1 && !this.part);
    this.command.show(ns, command(this.part));
    this.chooser.hidden = names.length < 2;
    const options = ["", ...names].map((one) => h("option", { value: one, selected: one === this.part }, one || `all ${noun}s`));
    fill(this.choice, options);
  }

  /** Show the log of one part, or of all, from its end. @param {string} part empty for all */
  choose(part) {
    this.part = part;
    this.round += 1;
    this.isLoaded = false;
    this.pause = 0;
    this.open.clear();
    fill(this.lines);
    this.lines.classList.toggle("named", !part);
    this.command.show(this.source.ns, this.source.command(part));
    void this.poll();
  }

  showStatus() {
    const count = this.lines.childElementCount;
    const words = this.trouble.hasChildNodes() ? "not available now" : this.follow.checked ? "following" : "not followed";
    if (this.status.textContent !== words) fill(this.status, words);
    fill(this.count, !this.isLoaded ? "" : count ? counted(count, "line") : "nothing was written yet");
  }
}

/** @param {string} name @param {boolean} checked @returns {HTMLInputElement} */
const checkbox = (name, checked) => /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", name, checked }));
