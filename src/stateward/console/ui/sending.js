// What a form will send: as YAML, as a command to copy, and what the server would say to it.

import { address } from "../core/api.js";
import { fill, fillIfChanged, h } from "../core/dom.js";
import { plainWord, shellWord } from "../core/shell-words.js";
import { code, note, quiet } from "./components.js";
import { toast } from "./problems.js";

/** @import {Child} from "../core/dom.js" */
/** @import {Call, DomainCommand} from "../core/types.js" */

/**
 * @template T
 * @typedef {object} Sending what the values of a form become
 * @property {(values: T) => Call} call
 * @property {(values: T) => string} [command] the command that sends the same, if not that of the general API
 * @property {(values: T) => Promise<Child[]>} [plan] what would happen now; rejects with the refusal
 */

const PLAIN = /^[A-Za-z_][\w./-]*$/;
const RESERVED = /^(true|false|null|yes|no|on|off|y|n)$/i;

/** A text in YAML: without quotes only if nobody can take it for something else. @param {string} text */
const scalar = (text) => (PLAIN.test(text) && !RESERVED.test(text) ? text : JSON.stringify(text));

/** A value in YAML. @param {any} value @param {string} [indent] @returns {string} */
export function yamlOf(value, indent = "") {
  if (typeof value === "string") return scalar(value);
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const isList = Array.isArray(value);
  const entries = Object.entries(value).filter(([, one]) => one !== undefined);
  if (!entries.length) return isList ? "[]" : "{}";
  const lines = entries.map(([name, one]) => {
    const inner = yamlOf(one, `${indent}  `);
    const isBlock = typeof one === "object" && one !== null && inner !== "[]" && inner !== "{}";
    const head = isList ? "-" : `${scalar(name)}:`;
    return `${indent}${head}${isBlock && !isList ? `\n${inner}` : ` ${inner.trimStart()}`}`;
  });
  return lines.join("\n");
}

/** A command of a domain. @param {string} ns @param {DomainCommand} how @returns {string} */
export function domainCommand(ns, { command, options = [], names = [], words: rest, document, after }) {
  const flags = options.filter(([, value]) => value !== undefined && value !== "").flatMap(([name, value]) => [name, value ?? ""]);
  const isFlagLike = names.some((one) => one.startsWith("-")); // a name, and not an option
  const words = [...command.split(" "), "-n", ns, ...flags, ...(isFlagLike ? ["--"] : []), ...names, ...(rest ? ["--", ...rest] : [])];
  const input = document === undefined ? "" : ` -f - ${hereDocument(yamlOf(document))}`;
  const first = after ? `stateward ${after.map(plainWord).join(" ")} && ` : "";
  return `${first}stateward ${words.map(plainWord).join(" ")}${input}`;
}

/** A document as the input of a command; the mark must not be a line of it. @param {string} text */
function hereDocument(text) {
  let mark = "END";
  while (text.split("\n").includes(mark)) mark += "_";
  return `<<'${mark}'\n${text}\n${mark}`;
}

/** The objects of the general API have a command; anything else is sent as it is. @param {Call} call */
function creationOf([method, path, body]) {
  const ns = method === "POST" ? /^\/ns\/([^/]+)\/objects$/.exec(path)?.[1] : undefined;
  return ns === undefined ? null : { namespace: decodeURIComponent(ns), ...body };
}

/** What is sent, as a document. @param {Call} call */
const documentOf = (call) => yamlOf(creationOf(call) ?? call[2] ?? {});

/** The command that sends the same. An API that has no command of its own is called with curl. @param {Call} call */
function commandOf(call) {
  const creation = creationOf(call);
  if (creation) return `stateward create --namespace ${shellWord(creation.namespace)} -f - ${hereDocument(documentOf(call))}`;
  const [method, path, body] = call;
  const url = `${location.origin}${address(path)}`;
  const headers = `-H "Authorization: Bearer $STATEWARD_TOKEN" -H 'Content-Type: application/json'`;
  return `curl -fsS -X ${method} ${shellWord(url)} ${headers} --data-binary @- ${hereDocument(JSON.stringify(body ?? {}, null, 2))}`;
}

/** Copy a text, if the browser lets us. @param {string} name @param {string} text */
export async function copyText(name, text) {
  try {
    await navigator.clipboard.writeText(text); // there is no clipboard without HTTPS, but on the same machine
    toast(`${name} copied`, "good");
  } catch {
    toast("The browser does not let this page copy. Select the text, and copy it with the keys.", "failed");
  }
}

/** @param {string} name @param {string} text */
function copyable(name, text) {
  const copy = () => copyText(name, text);
  return h(
    "section",
    { "aria-label": name },
    h("header", null, h("b", null, name), h("button", { type: "button", onclick: copy }, `Copy ${name}`)),
    h("pre", { tabindex: "0" }, text),
  );
}

/** The command that does the same as a part of the page; hidden while there is none. */
export function commandDetails() {
  const body = h("div");
  const element = h("details", { class: "sending", hidden: true }, h("summary", null, "As a command"), body);
  /** @param {string} ns @param {DomainCommand | null} how */
  const show = (ns, how) => {
    element.hidden = how === null;
    fillIfChanged(body, how, () => (how ? copyable("Command", domainCommand(ns, how)) : null));
  };
  return { element, show };
}

/**
 * The part of a form that shows what it will send.
 * @param {() => {call: Call, command?: string} | null} read what was entered; null if something is wrong with it
 */
export function sendingPanel(read) {
  const body = h("div", { class: "column" });
  const details = /** @type {HTMLDetailsElement} */ (
    h("details", { class: "sending" }, h("summary", null, "What will be sent: YAML and command"), body)
  );
  const draw = () => {
    if (!details.open) return;
    const entered = read();
    if (entered === null) return fill(body, note("Something is wrong above: see beside the fields."));
    const { call, command = commandOf(call) } = entered;
    fill(
      body,
      quiet(code(`${call[0]} ${address(call[1])}`)),
      copyable("YAML", documentOf(call)),
      copyable("Command", command),
    );
  };
  details.addEventListener("toggle", draw);
  return { element: details, draw };
}
