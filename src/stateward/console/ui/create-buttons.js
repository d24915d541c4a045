// Buttons and forms that create objects: those of a domain through its own API, and those of any kind from its schema.

import { dryRun, part, Problem, send } from "../core/api.js";
import { fill, find, h } from "../core/dom.js";
import { nameOf } from "../core/live-objects.js";
import { objectLink } from "../core/links.js";
import { domainName, domains, hasOwnApi } from "../core/domains.js";
import { ALL, classOf, isNowhere, may, mayAll, namespaces, store } from "../core/store.js";
import { showDialog, showForm, showSchemaForm } from "./form.js";
import { attempt, fieldsOf, toast } from "./problems.js";
import { quiet, wordOptions } from "./components.js";
import { domainCommand } from "./sending.js";
import { badge } from "./states.js";

/** @import {Call, CreateForm, Kind, ObjectView} from "../core/types.js" */
/** @import {Field, Values} from "./form.js" */
/** @import {Sending} from "./sending.js" */
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
    fill(list, found.length ? found.map(choice) : h("li", { class: "quiet" }, "No kinds match."));
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

/** @param {string} what @param {string} ns @param {unknown} id of the object, if the answer told it @param {string} [name] */
function toastCreation(what, ns, id, name) {
  const named = typeof id === "string" ? h("a", { href: objectLink(ns, id) }, name ?? id) : (name ?? "");
  toast(h("span", null, `${what} `, named, " is being created."), "good");
}

// --- through a domain's own form -------------------------------------------------------------------------------------

/** @param {CreateForm} form @param {() => void} then */
async function openForm(form, then) {
  const ns = proposed();
  const fields = await form.fields(ns);
  /** @type {Field} */
  const where = { name: "ns", label: "namespace", value: ns, options: wordOptions(...knownNamespaces()) };
  if (!mayAll()) where.type = "choice"; // another one would be refused
  const submit = async (/** @type {Values} */ { ns: chosen = ns, ...values }) => {
    await form.prepare?.(chosen);
    const answer = await answerOf(send(...form.call(chosen, values)), values.name);
    toastCreation(form.name, chosen, answer?.object?.id ?? answer?.id, values.name);
    then();
  };
  const others = async (/** @type {string} */ chosen) => form.fields(chosen);
  /** @type {Sending<Values>} */
  const sending = {
    call: ({ ns: chosen = ns, ...values }) => form.call(chosen, values),
    plan: ({ ns: chosen = ns, ...values }) => planForm(form, chosen, values),
  };
  const command = form.command;
  if (command) sending.command = ({ ns: chosen = ns, ...values }) => domainCommand(chosen, command(chosen, values));
  showForm(`New ${form.name}`, "", [where, ...fields], "Create", submit, others, form.repeat, sending);
}

/**
 * The answer to the request of a form. A domain may create an object again that has failed: where the state of an object
 * refuses that, its name is taken.
 * @param {Promise<any>} request @param {string} [name]
 */
async function answerOf(request, name) {
  try {
    return await request;
  } catch (error) {
    const { status, state, allowed } = fieldsOf(error);
    const isThere = state && [...store.kinds.keys()].every((kind) => !isNowhere(kind, state));
    if (status !== 409 || !allowed || !isThere || !name) throw error;
    throw new Problem({ title: "Exists already", status, code: "exists", detail: `${name} exists already, and is ${state}` });
  }
}

/** What the call of a domain's own form would create; rejects with the refusal. @param {CreateForm} form @param {string} ns @param {Values} values */
async function planForm(form, ns, values) {
  const why = await form.whyNoPlan?.(ns, values);
  if (why) return [h("p", null, why)];
  const { dry_run: requests } = await answerOf(dryRun(form.call(ns, values)), values.name);
  const { object } = requests.at(-1); // all requests of a form are about one object
  const more = (await form.planned?.(ns, values, object)) ?? [];
  return [creationText(object), ...more.map((one) => (typeof one === "string" ? h("p", null, one) : one)), quiet("Nothing has been created yet.")];
}

/** What would be created. @param {Pick<ObjectView, "ns" | "id" | "kind" | "state" | "spec">} object */
function creationText(object) {
  const what = `This creates the ${object.kind} ${nameOf(object)} in the namespace ${object.ns}; its state is then `;
  return h("p", null, h("b", null, "The request would be accepted."), ` ${what}`, badge(object.state, classOf(object.kind, object.state)), ".");
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
  const call = (/** @type {any} */ { ns, ...body }) =>
    /** @type {Call} */ (["POST", `/ns/${part(ns)}/objects`, { kind: kind.kind, action, ...body }]);
  const submit = async (/** @type {any} */ values) => {
    await send(...call(values));
    toastCreation(kind.kind, values.ns, values.id);
    then();
  };
  const sending = { call, plan: (/** @type {any} */ values) => planCreation(kind.kind, action, values) };
  showSchemaForm(`New ${kind.kind}`, kind.about, bodySchema(kind, action), "Create", submit, { ns: proposed() }, sending);
}

/** What would be created; rejects with the refusal. @param {string} kind @param {string} action @param {any} values */
async function planCreation(kind, action, { ns, id, ...body }) {
  const request = { object: id, action, kind, ...body };
  const [verdict] = await send("POST", `/ns/${part(ns)}/plan`, { requests: [request] });
  if (verdict.would !== "accept") throw new Problem(verdict.problem);
  return [creationText({ ns, id, kind, state: verdict.state, spec: {} }), quiet("Nothing has been created yet.")];
}

/** The schema of a request that creates an object of a kind. @param {Kind} kind @param {string} action @returns {Schema} */
function bodySchema(kind, action) {
  const args = kind.args?.[action];
  return {
    type: "object",
    required: ["ns", "id", ...(kind.spec ? ["spec"] : []), "args"],
    properties: {
      ns: { type: "string", title: "namespace", examples: knownNamespaces() },
      id: { type: "string", description: "unique in the namespace; cannot be changed later" },
      parent: { type: "string", title: "parent", description: "the id of the parent object" },
      labels: { type: "object", additionalProperties: { type: "string" } },
      spec: kind.spec ?? {},
      ...(args ? { args: { ...args, title: `arguments of ${action}` } } : {}),
    },
  };
}
