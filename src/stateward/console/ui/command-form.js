// A form that runs a command where a program runs, and shows its exit status and output.
//
// The line is split as a shell does it, and shown as the words that are sent: what is quoted, and that nothing is
// expanded, is seen before the command runs. It is sent once, and given up when the page is left.

import { send } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { splitWords } from "../core/shell-words.js";
import { plainText } from "../core/terminal-text.js";
import { card, code, labeled, note } from "./components.js";
import { problemPanel } from "./problems.js";
import { commandDetails } from "./sending.js";

/** @import {Call, Context, DomainCommand} from "../core/types.js" */

/** @typedef {{argv: string[], part: string, timeout: number}} AskedCommand */
/** @typedef {{status: number | null, part?: string, stdout: string, stderr: string, left?: string}} CommandOutcome without a status, it did not end in time; `left`: what is left out of the output */

/**
 * @typedef {object} CommandSource Runs commands where a program runs, through the API of a domain.
 * @property {string} otherwise where a command runs if no part is chosen, such as `a ready instance`
 * @property {(asked: AskedCommand) => Call} call
 * @property {(answer: any) => CommandOutcome} outcome
 * @property {(asked: AskedCommand) => DomainCommand} command the command that does the same
 */

const TIMEOUT_S = 60;
const MAX_TIMEOUT_S = 600;
const ABOUT = "No shell reads it: for variables, patterns and pipes, run sh -c '…'.";

/** @param {Context} context @param {string} ns @param {string} noun @param {CommandSource} source */
export function commandCard(context, ns, noun, source) {
  const common = { autocomplete: "off", autocapitalize: "off", spellcheck: "false", oninput: () => draw() };
  const line = /** @type {HTMLInputElement} */ (h("input", { ...common, name: "command", placeholder: "ls -l '/var/lib/my app'", "aria-describedby": "command-words" }));
  const timeout = /** @type {HTMLInputElement} */ (
    h("input", { name: "timeout", type: "number", min: "1", max: String(MAX_TIMEOUT_S), value: String(TIMEOUT_S), required: true, oninput: () => draw() })
  );
  const part = /** @type {HTMLSelectElement} */ (h("select", { name: "part", onchange: () => draw() }, h("option", { value: "" }, source.otherwise)));
  const words = h("div", { class: "row", id: "command-words" });
  const equivalent = commandDetails();
  const result = h("div", { class: "column", "aria-live": "polite" });
  const go = /** @type {HTMLButtonElement} */ (h("button", { class: "primary", type: "submit" }, "Run"));

  /** @returns {AskedCommand} */
  const asked = () => ({ argv: splitWords(line.value).words, part: part.value, timeout: Number(timeout.value) });

  function draw() {
    const { words: argv, error } = splitWords(line.value);
    line.setAttribute("aria-invalid", String(Boolean(error)));
    go.disabled = !argv.length || error !== "" || !timeout.validity.valid;
    if (error) fill(words, h("span", { class: "error-text" }, `The command has no end: ${error}.`));
    else fill(words, argv.length ? argv.map((one) => code(one || "''")) : note(ABOUT));
    equivalent.show(ns, go.disabled ? null : source.command(asked()));
  }

  async function run() {
    if (go.disabled || go.hasAttribute("aria-busy")) return;
    go.setAttribute("aria-busy", "true");
    fill(result, note("The command runs…"));
    try {
      const [method, path, body] = source.call(asked());
      fill(result, outcomePanel(source.outcome(await send(method, path, body, {}, context.signal)), noun));
    } catch (error) {
      if (!context.signal.aborted) fill(result, problemPanel(error));
    }
    go.removeAttribute("aria-busy");
  }

  draw();
  const form = h(
    "form",
    { class: "column command-form", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), void run()) },
    h("div", { class: "row" }, labeled("command", line), labeled(noun, part), labeled("seconds at most", timeout), go),
    words,
    equivalent.element,
  );
  return {
    element: card("Run a command", "the journal keeps who ran which program", form, result),
    /** Offer these parts. @param {string[]} names */
    offer: (names) => {
      const chosen = part.value;
      const options = ["", ...names].map((one) => h("option", { value: one, selected: one === chosen }, one || source.otherwise));
      fill(part, options);
    },
  };
}

/** @param {CommandOutcome} outcome @param {string} noun */
function outcomePanel({ status, part, stdout, stderr, left }, noun) {
  const ended = status === null ? "It did not end in time." : `Exit status ${status}.`;
  return [
    h("p", { class: status === 0 ? "" : "error-text" }, h("b", null, ended), part ? ` ${noun}: ${part}.` : ""),
    written("Output", stdout),
    stderr ? written("Standard error", stderr) : null,
    left ? note(left) : null,
  ];
}

/** @param {string} name @param {string} text */
function written(name, text) {
  if (!text) return note(`${name}: nothing.`);
  return h("div", null, h("h3", null, name), h("pre", { class: "json", tabindex: "0", role: "group", "aria-label": name }, plainText(text)));
}
