// Buttons and forms that create objects: those of a domain through its own API, and those of any kind from its schema.

import { part, Problem, send } from "../core/api.js";
import { fill, find, h } from "../core/dom.js";
import { domainName, domains, hasOwnApi } from "../core/domains.js";
import { ALL, may, namespaces, store } from "../core/store.js";
import { showDialog, showForm, showSchemaForm } from "./form.js";
import { attempt, toast } from "./problems.js";
import { quiet, wordOptions } from "./components.js";

/** @import {CreateForm, Kind} from "../core/types.js" */
/** @import {Field, Values} from "./form.js" */
/** @import {Schema} from "./schema-words.js" */

/**
 * @typedef {{name: string, about: string, right: string, open: (then: () => void) => unknown}} Creation something that
 *   can be created
 */

/** @returns {string} the namespace that is proposed */
function proposed() {
  if (store.ns !== ALL) return store.ns;
  return knownNamespaces().includes("default") ? "default" : (knownNamespaces()[0] ?? "default");
}

/** @returns {string[]} the namespaces of users' objects */
const knownNamespaces = () => namespaces().filter((ns) => !ns.startsWith("("));

/** Buttons that create objects of a domain. @param {string} domain @param {() => void} then */
export function createButtons(domain, then) {
  const forms = formsOf(domain);
  const offered = forms.length ? forms : kindsOf((kind) => domainName(kind) === domain);
  return offered.map((one) => createButton(one, then));
}

/** A button that creates an object: of one kind, or of the kind that is chosen then.
 * @param {string} kind @param {() => void} then */
export function createAnyButton(kind, then) {
  const [first, ...others] = kind ? kindsOf((one) => one === kind) : [];
  if (first && !others.length) return createButton(first, then);
  const everything = [...[...domains.keys()].flatMap(formsOf), ...kindsOf(() => true)].filter((one) => may(one.right));
  if (!everything.length) return null;
  const chooser = { name: "object", about: "", right: "act", open: () => chooseCreation(everything, kind, then) };
  return createButton(chooser, then);
}

/** @param {Creation} creation @param {() => void} then */
function createButton(creation, then) {
  if (!may(creation.right)) return null;
  const open = () => attempt(async () => creation.open(then));
  return h("button", { onclick: open, "data-makes": creation.name }, `New ${creation.name}`);
}

/** The creations that a domain has forms for. @param {string} domain @returns {Creation[]} */
function formsOf(domain) {
  if (!hasOwnApi(domain)) return [];
  const forms = domains.get(domain)?.createForms ?? [];
  return forms.map((form) => ({
    name: form.name,
    about: `of the domain ${domain}`,
    right: form.right ?? "act",
    open: (then) => openForm(form, then),
  }));
}

// --- the choice ------------------------------------------------------------------------------------------------------

/** Ask what to create. @param {Creation[]} everything @param {string} sought @param {() => void} then */
function chooseCreation(everything, sought, then) {
  const list = h("ul", { class: "choices", "aria-label": "Kinds" });
  const draw = (/** @type {string} */ text) => {
    const words = text.toLowerCase().split(/\s+/);
    const textOf = (/** @type {Creation} */ one) => `${one.name} ${one.about}`.toLowerCase();
    const found = everything.filter((one) => words.every((word) => textOf(one).includes(word)));
    const choice = (/** @type {Creation} */ one) => {
      const open = () => attempt(async () => one.open(then));
      const button = { type: "button", "data-creates": one.name, onclick: open };
      return h("li", null, h("button", button, h("b", null, one.name), quiet(one.about)));
    };
    fill(list, found.length ? found.map(choice) : h("li", { class: "quiet" }, "No kind has these words."));
  };
  const how = { type: "search", value: sought, placeholder: "Search kinds", "aria-label": "Search kinds", autocomplete: "off" };
  const input = /** @type {HTMLInputElement} */ (h("input", { ...how, oninput: () => draw(input.value) }));
  const key = (/** @type {KeyboardEvent} */ event) => {
    const buttons = /** @type {HTMLElement[]} */ ([...list.querySelectorAll("button")]);
    const at = buttons.findIndex((one) => one === document.activeElement);
    if (event.key === "Enter" && event.target === input) buttons[0]?.click();
    else if (event.key === "ArrowDown") (buttons[at + 1] ?? buttons.at(-1))?.focus();
    else if (event.key === "ArrowUp") (at > 0 ? buttons[at - 1] : input)?.focus();
    else return;
    event.preventDefault();
  };
  draw(sought);
  const dialog = /** @type {HTMLDialogElement} */ (find("#question"));
  const cancel = h("button", { type: "button", onclick: () => dialog.close("no") }, "Cancel");
  showDialog("New object", h("div", { class: "column", onkeydown: key }, input, list), h("footer", null, cancel));
  input.focus();
}

// --- through a domain's own form -------------------------------------------------------------------------------------

/** @param {CreateForm} form @param {() => void} then */
async function openForm(form, then) {
  const ns = proposed();
  const fields = await form.fields(ns);
  /** @type {Field} */
  const where = { name: "ns", label: "namespace", value: ns, options: wordOptions(...knownNamespaces()) };
  const submit = async (/** @type {Values} */ { ns: chosen = ns, ...values }) => {
    await form.prepare?.(chosen);
    await send(...form.call(chosen, values));
    toast(`The ${form.name} is on its way.`, "good");
    then();
  };
  const others = async (/** @type {string} */ chosen) => form.fields(chosen);
  showForm(`New ${form.name}`, "", [where, ...fields], "Make it", submit, others, form.repeat);
}

// --- of any kind -----------------------------------------------------------------------------------------------------

/** The creations of the kinds that the general API creates.
 * @param {(kind: string) => boolean} isWanted @returns {Creation[]} */
function kindsOf(isWanted) {
  const kinds = [...store.kinds.values()].filter((one) => one.creatable && isWanted(one.kind));
  return kinds.sort((one, other) => (one.kind < other.kind ? -1 : 1)).flatMap(creationsOf);
}

/** One creation for each action that creates objects of a kind. @param {Kind} kind @returns {Creation[]} */
function creationsOf(kind) {
  const actors = store.me?.role === "admin" ? ["user", "admin"] : ["user"];
  const rows = kind.rows.filter((row) => row.sources.includes(kind.initial));
  const allowed = rows.filter((row) => row.actors.some((one) => actors.includes(one)));
  const actions = [...new Set(allowed.map((row) => row.event))];
  return actions.map((action) => ({
    name: actions.length > 1 ? `${kind.kind} (${action})` : kind.kind,
    about: kind.about,
    right: "act",
    open: (then) => openKindForm(kind, action, then),
  }));
}

/** @param {Kind} kind @param {string} action @param {() => void} then */
function openKindForm(kind, action, then) {
  const submit = async (/** @type {any} */ { ns, ...body }) => {
    await send("POST", `/ns/${part(ns)}/objects`, { kind: kind.kind, action, ...body });
    toast(`${kind.kind} ${body.id} is on its way.`, "good");
    then();
  };
  showSchemaForm(`New ${kind.kind}`, kind.about, bodySchema(kind, action), "Make it", submit, { ns: proposed() });
}

/** The schema of a request that creates an object of a kind. @param {Kind} kind @param {string} action @returns {Schema} */
function bodySchema(kind, action) {
  const args = kind.args?.[action];
  return {
    type: "object",
    required: ["ns", "id", ...(kind.spec ? ["spec"] : []), "args"],
    properties: {
      ns: { type: "string", title: "namespace", examples: knownNamespaces() },
      id: { type: "string", description: "its name in the namespace, which stays" },
      parent: { type: "string", title: "part of", description: "the id of its parent" },
      labels: { type: "object", additionalProperties: { type: "string" } },
      spec: kind.spec ?? {},
      ...(args ? { args: { ...args, title: `arguments of ${action}` } } : {}),
    },
  };
}

/** @param {string} text @param {string} field @returns {any} */
export function parseJson(text, field) {
  try {
    return text ? JSON.parse(text) : null;
  } catch (error) {
    const detail = `must be JSON: ${/** @type {Error} */ (error).message}`;
    throw new Problem({ title: "This is not JSON", status: 0, code: "page", detail, field });
  }
}
