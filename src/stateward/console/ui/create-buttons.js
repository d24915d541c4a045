// Buttons and forms that create objects: those of a domain through its own API, and any object of any kind.

import { part, Problem, send } from "../core/api.js";
import { h } from "../core/dom.js";
import { domains } from "../core/domains.js";
import { ALL, may, namespaces, store } from "../core/store.js";
import { showForm, splitPairs } from "./form.js";
import { attempt, toast } from "./problems.js";
import { wordOptions } from "./components.js";

/** @import {CreateForm} from "../core/types.js" */
/** @import {Field, Values} from "./form.js" */

/** @returns {string} the namespace that is proposed */
function proposed() {
  if (store.ns !== ALL) return store.ns;
  const known = namespaces().filter((ns) => !ns.startsWith("("));
  return known.includes("default") ? "default" : (known[0] ?? "default");
}

/** Buttons that create objects of a domain. @param {string} domain @param {() => void} then */
export function createButtons(domain, then) {
  if (!store.me?.domains?.includes(domain)) return [createButton(anyObject(domain), then)];
  return (domains.get(domain)?.createForms ?? []).map((form) => createButton(form, then));
}

/** A button that creates any object. @param {string} kind @param {() => void} then */
export function createAnyButton(kind, then) {
  return createButton(anyObject(kind), then);
}

/** @param {CreateForm} form @param {() => void} then */
function createButton(form, then) {
  if (!may(form.right ?? "act")) return null;
  return h("button", { onclick: () => attempt(() => openForm(form, then)), "data-makes": form.name }, `New ${form.name}`);
}

/** @param {CreateForm} form @param {() => void} then */
async function openForm(form, then) {
  const ns = proposed();
  const fields = await form.fields(ns);
  const known = namespaces().filter((one) => !one.startsWith("("));
  /** @type {Field} */
  const where = { name: "ns", label: "namespace", value: ns, options: wordOptions(...known) };
  const submit = async (/** @type {Values} */ { ns: chosen = ns, ...values }) => {
    await form.prepare?.(chosen);
    await send(...form.call(chosen, values));
    toast(`The ${form.name} is on its way.`, "good");
    then();
  };
  const others = async (/** @type {string} */ chosen) => form.fields(chosen);
  showForm(`New ${form.name}`, "", [where, ...fields], "Make it", submit, others, form.repeat);
}

// --- any object ------------------------------------------------------------------------------------------------------

/** @param {string} wanted a kind, or the beginning of one @returns {CreateForm} */
function anyObject(wanted) {
  const kinds = [...store.kinds.keys()].filter((kind) => kind.startsWith(wanted)).sort();
  return {
    name: "object",
    fields: () => [
      { name: "kind", label: "kind", type: "choice", options: wordOptions(...kinds), value: wanted },
      { name: "id", label: "id", hint: "web-1" },
      {
        name: "action",
        label: "with the action",
        optional: true,
        hint: "the first of its table",
        options: initialActions(kinds),
      },
      { name: "parent", label: "part of", optional: true },
      { name: "labels", label: "labels", optional: true, hint: "tier=web, team=shop" },
      { name: "spec", label: "spec (JSON)", type: "long", optional: true, hint: "{}" },
    ],
    call: (ns, values) => ["POST", `/ns/${part(ns)}/objects`, bodyOf(values)],
  };
}

/** @param {string[]} kinds @returns {[string, string][]} the actions that create objects */
function initialActions(kinds) {
  const rows = kinds.flatMap((kind) => {
    const found = store.kinds.get(kind);
    return (found?.rows ?? []).filter((row) => found && row.sources.includes(found.initial)).map((row) => row.event);
  });
  return wordOptions(...[...new Set(rows)].sort());
}

/** @param {Values} values */
function bodyOf({ kind, id, action, parent, labels, spec = "" }) {
  const optional = { action: action || null, parent: parent || null };
  return { kind, id, ...optional, labels: splitPairs(labels), spec: parseJson(spec, "spec") };
}

/** @param {string} text @param {string} field @returns {any} */
export function parseJson(text, field) {
  try {
    return text ? JSON.parse(text) : null;
  } catch (error) {
    throw new Problem({ title: "This is not JSON", status: 0, code: "page", detail: String(error), field });
  }
}
