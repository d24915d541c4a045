// Forms in a dialog: fields with labels and hints, and the server's error beside the field that it names.
//
// The fields are named one by one (`showForm`), or come from a JSON schema (`showSchemaForm`).

import { get, part } from "../core/api.js";
import { fill, find, h } from "../core/dom.js";
import { nameOf } from "../core/live-objects.js";
import { labeled, note } from "./components.js";
import { fieldsOf, problemPanel } from "./problems.js";
import { clearComplaints, complainBeside, focusComplaint } from "./complaints.js";
import { partOf } from "./schema-groups.js";
import { MASK, withoutSecrets } from "./schema-words.js";
import { sendingPanel } from "./sending.js";

/** @import {Child} from "../core/dom.js" */
/** @import {ObjectView} from "../core/types.js" */
/** @import {Complaint} from "./complaints.js" */
/** @import {Schema} from "./schema-words.js" */
/** @import {Sending} from "./sending.js" */

/** @typedef {[string, string][]} Options values and their texts */

/**
 * @typedef {object} Field
 * @property {string} name
 * @property {string} label
 * @property {"text" | "number" | "choice" | "long" | "flag" | "time" | "secret"} [type] a secret is entered unseen
 * @property {Options} [options] the choices; for a text, proposals
 * @property {string} [value] the initial value
 * @property {string} [hint]
 * @property {boolean} [optional]
 * @property {number} [least]
 * @property {string[]} [sent] its names in errors of the server, if not its own
 */

/** @typedef {Record<string, string>} Values the entered values; a flag is "yes" or empty */

/**
 * @typedef {object} Repeat a part of the form that can be filled in several times
 * @property {string} label of the button that adds another one
 * @property {string} from the name of its first field; the part ends with the form
 */

/** @param {string} name @param {number} turn @returns {string} the name of a field in one of its turns, the first is 1 */
export const repeatedName = (name, turn) => (turn === 1 ? name : `${name}-${turn}`);

/** @param {string} [text] @returns {string[]} the words of a list with commas */
export function splitList(text = "") {
  const words = text.split(",").map((one) => one.trim());
  return words.filter(Boolean);
}

/** @param {string} [text] @returns {Record<string, string>} the pairs of a list such as `tier=web, team=shop` */
export function splitPairs(text) {
  const pairs = splitList(text).map((one) => one.split("=", 2));
  return Object.fromEntries(pairs.map(([name, value]) => [name, value ?? ""]));
}

/** @param {string} ns @param {string} kind @returns {Promise<Options>} the objects of a kind */
export async function objectOptions(ns, kind) {
  const found = await get(`/ns/${part(ns)}/objects`, { kind, limit: 1_000 });
  return found.items.map((/** @type {ObjectView} */ one) => [
    one.id,
    nameOf(one) === one.id ? one.id : `${nameOf(one)} (${one.id})`,
  ]);
}

/** The dialog of forms and questions. @returns {HTMLDialogElement} */
const dialogOf = () => /** @type {HTMLDialogElement} */ (find("#question"));

/**
 * Show content in the dialog; a dialog that is open already gets other content.
 * @param {string} title
 * @param {...Child} content
 */
export function showDialog(title, ...content) {
  const dialog = dialogOf();
  // What was entered may be secret: nothing of it stays in the page.
  dialog.onclose = () => dialog.open || fill(dialog);
  fill(dialog, h("h2", null, title), ...content);
  if (!dialog.open) dialog.showModal();
}

/**
 * @template T
 * @typedef {object} Content of a form
 * @property {Child[]} elements
 * @property {(complaints: Complaint[]) => T} read the entered values; adds what is wrong with them
 * @property {(path: string[], text: string) => boolean} complain shows what is wrong beside a field; false if there is
 *   no such field
 * @property {(path: string[]) => string} [labelOf] what the form calls a field, if not by the end of its path
 */

/**
 * Show a form; the dialog stays open until the server accepts or the user cancels.
 * @template T
 * @param {string} title
 * @param {string} about
 * @param {Content<T>} content
 * @param {string} yes
 * @param {(values: T) => Promise<void>} submit
 * @param {Sending<T>} [sending] shows what will be sent, and plans it
 */
export function showContent(title, about, content, yes, submit, sending) {
  const dialog = dialogOf();
  const feedback = h("div", { "aria-live": "polite" });
  const go = h("button", { class: "primary", type: "submit" }, yes);
  /** Do something with what was entered, if nothing is wrong with it. @param {(values: T) => Promise<unknown>} act */
  const withValues = async (act) => {
    if (go.hasAttribute("aria-busy")) return;
    /** @type {Complaint[]} */
    const complaints = [];
    clearComplaints(form);
    fill(feedback);
    const values = content.read(complaints);
    for (const [path, text] of complaints) content.complain(path, sentence(content, path, text));
    if (complaints.length) return focusComplaint(form);
    go.setAttribute("aria-busy", "true");
    try {
      await act(values);
    } catch (error) {
      const { detail, code, field = code === "exists" ? "name" : "" } = fieldsOf(error);
      const path = pathOf(field);
      const reason = sentence(content, path, reasonOf(field, detail));
      // The form may be a part of the body that the server names the field in.
      const isShown = field !== "" && (content.complain(path, reason) || content.complain(path.slice(1), reason));
      fill(feedback, isShown ? null : problemPanel(error));
      focusComplaint(form);
    }
    go.removeAttribute("aria-busy");
  };
  const sent = (/** @type {Event} */ event) => {
    event.preventDefault();
    void withValues(async (values) => {
      await submit(values);
      dialog.close("yes");
    });
  };
  const plan = () => withValues(async (values) => fill(feedback, h("div", { class: "plan" }, ...((await sending?.plan?.(values)) ?? []))));
  const panel = sending && sendingPanel(() => {
    /** @type {Complaint[]} */
    const complaints = [];
    const values = content.read(complaints);
    return complaints.length ? null : { call: sending.call(values), command: sending.command?.(values) };
  });
  const cancel = h("button", { type: "button", onclick: () => dialog.close("no") }, "Cancel");
  const planned = sending?.plan ? h("button", { type: "button", onclick: plan }, "Plan") : null;
  const form = h(
    "form",
    { class: "column", novalidate: true, onsubmit: sent, oninput: panel?.draw, onchange: panel?.draw },
    ...content.elements,
    panel?.element,
    feedback,
    h("footer", null, cancel, planned, go),
  );
  form.addEventListener("input", () => form.classList.add("entered"));
  showDialog(title, about ? note(about) : null, form);
  return form;
}

/** @param {string} field as the server names it, such as `$.spec.ports[0].name` @returns {string[]} */
const pathOf = (field) => field.split(/[.[\]]+/).filter((one) => one && one !== "$");

/** What is wrong, without the name of the field. @param {string} field @param {string} detail */
const reasonOf = (field, detail) => (detail.startsWith(`${field}: `) ? detail.slice(field.length + 2) : detail);

/**
 * Show a form for a value that a JSON schema describes.
 * @param {string} title
 * @param {string} about
 * @param {Schema} schema of a record
 * @param {string} yes
 * @param {(value: any) => Promise<void>} submit
 * @param {any} [value] the initial values
 * @param {Sending<any>} [sending]
 */
export function showSchemaForm(title, about, schema, yes, submit, value, sending) {
  const part = partOf({ ...schema, description: undefined }, { path: [], label: "", required: true, value });
  const shown = sending && { ...sending, call: (/** @type {any} */ values) => sending.call(withoutSecrets(values, schema)) };
  showContent(title, about, { ...part, elements: [part.element] }, yes, submit, shown);
}

/**
 * Show a form of fields.
 * @param {string} title
 * @param {string} about
 * @param {Field[]} asked
 * @param {string} yes
 * @param {(values: Values) => Promise<void>} submit
 * @param {(first: string) => Promise<Field[]>} [others] the fields for another value of the first, which choices hang on
 * @param {Repeat} [repeat]
 * @param {Sending<Values>} [sending]
 */
export function showForm(title, about, asked, yes, submit, others, repeat, sending) {
  /** @type {Field[]} */
  const fields = [];
  /** @type {HTMLInputElement[]} */
  const inputs = [];
  const rows = h("div", { class: "column" });
  const add = (/** @type {Field[]} */ more) => {
    const entered = more.map(inputOf);
    fields.push(...more);
    inputs.push(...entered);
    for (const [number, field] of more.entries()) rows.append(...shown(field, entered[number] ?? h("input")));
    return entered[0];
  };
  const first = repeat ? asked.findIndex((field) => field.name === repeat.from) : asked.length;
  const again = () => {
    const turn = (fields.length - first) / (asked.length - first) + 1;
    const more = asked.slice(first).map((field) => ({
      ...field,
      name: repeatedName(field.name, turn),
      value: anew(field),
      sent: [field.name, ...(field.sent ?? [])],
    }));
    add(more)?.focus();
  };
  add(asked);
  inputs[0]?.addEventListener("change", async (event) => {
    const found = await others?.(/** @type {HTMLInputElement} */ (event.target).value.trim()).catch(() => null);
    for (const field of found ?? []) offer(inputs[fields.findIndex((one) => one.name === field.name)], field);
  });
  /** The place of a field that the server names by its path in the body: in the turn that the path has the number of. @param {string[]} path */
  const placeOf = (path) => {
    const [name = "", number] = [path.at(-1), path.findLast((one) => /^\d+$/.test(one))];
    const places = fields.flatMap((field, at) => ([field.name, ...(field.sent ?? [])].includes(name) ? [at] : []));
    const turn = repeatedName("", Number(number) + 1);
    const isThere = (/** @type {number} */ at) => at >= first && fields[at]?.name.endsWith(turn) && (turn || at < asked.length);
    return places.find((at) => (number === undefined ? at < first : isThere(at))) ?? places[0] ?? -1;
  };
  const content = {
    elements: [rows, repeat ? h("button", { type: "button", onclick: again }, repeat.label) : null],
    read: (/** @type {Complaint[]} */ complaints) => {
      const values = valuesOf(fields, inputs);
      for (const field of fields) {
        const text = complaintOf(field, values[field.name] ?? "");
        if (text) complaints.push([[field.name], text]);
      }
      return values;
    },
    complain: (/** @type {string[]} */ path, /** @type {string} */ text) => complainAt(inputs[placeOf(path)], text),
    labelOf: (/** @type {string[]} */ path) => fields[placeOf(path)]?.label ?? "",
  };
  const secrets = fields.filter((field) => field.type === "secret");
  const masked = (/** @type {Values} */ values) => ({ ...values, ...Object.fromEntries(secrets.map((one) => [one.name, MASK])) });
  const seen = sending && { ...sending, call: (/** @type {Values} */ values) => sending.call(masked(values)) };
  showContent(title, about, content, yes, submit, seen);
}

/** What is wrong with a value, or nothing. @param {Field} field @param {string} value */
function complaintOf({ label, type, optional, least }, value) {
  if (!value) return optional || type === "flag" ? "" : `${sentenceName(label)} must be given`;
  if (type === "number" && !Number.isFinite(Number(value))) return `${sentenceName(label)} must be a number`;
  return least !== undefined && Number(value) < least ? `${sentenceName(label)} must be at least ${least}` : "";
}

/** What is wrong, as a sentence about the field. @param {{labelOf?: (path: string[]) => string}} content @param {string[]} path @param {string} text */
function sentence(content, path, text) {
  const name = content.labelOf?.(path) || path.findLast((one) => !/^\d+$/.test(one));
  return name && text.startsWith("must ") ? `${sentenceName(name)} ${text}` : text;
}

/** The name of a field at the beginning of a sentence. @param {string} name */
const sentenceName = (name) => name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " ");

/** @param {HTMLInputElement | undefined} input @param {string} text */
function complainAt(input, text) {
  if (!input) return false;
  if (input.nextElementSibling === null) input.after(h("small", { class: "complaint error-text", role: "alert" }));
  return complainBeside(/** @type {HTMLElement} */ (input.nextElementSibling), text, input);
}

/** @param {Field} field @returns {string} the initial value in a repetition: a name must differ */
const anew = ({ type, least = 1 }) => (type === "number" ? String(least) : "");

/** @param {Field} field @param {HTMLElement} input */
function shown(field, input) {
  const list =
    field.options && field.type !== "choice"
      ? h(
          "datalist",
          { id: `list-${field.name}` },
          field.options.map(([value, text]) => h("option", { value }, text)),
        )
      : null;
  const label = labeled(field.optional ? `${field.label} (optional)` : field.label, input);
  return list ? [label, list] : [label];
}

/** @param {Field} field @returns {HTMLInputElement} */
function inputOf(field) {
  const common = { name: field.name, required: !field.optional, autocomplete: "off", placeholder: field.hint };
  const made = () => {
    switch (field.type) {
      case "choice":
        return h("select", { name: field.name, required: !field.optional }, optionsOf(field));
      case "long":
        return h("textarea", { ...common, rows: 9, spellcheck: "false", value: field.value ?? "" });
      case "flag":
        return h("input", { type: "checkbox", name: field.name, checked: field.value === "yes" });
      case "number":
        return h("input", { ...common, type: "number", min: field.least ?? 1, value: field.value ?? "" });
      case "time":
        return h("input", { ...common, type: "datetime-local", value: field.value ?? "" });
      case "secret":
        return h("input", { ...common, type: "password", autocomplete: "new-password" });
      default:
        return h("input", { ...common, list: field.options ? `list-${field.name}` : null, value: field.value ?? "" });
    }
  };
  return /** @type {HTMLInputElement} */ (made());
}

/** @param {Field} field */
function optionsOf({ options = [], value: chosen }) {
  if (!options.length) return [h("option", { value: "" }, "none available")];
  return options.map(([value, text]) => h("option", { value, selected: value === chosen }, text));
}

/** Replace the choices; the chosen one stays if it still exists. @param {HTMLInputElement | undefined} input @param {Field} field */
function offer(input, field) {
  if (input && field.type === "choice") fill(input, optionsOf({ ...field, value: input.value || field.value }));
}

/** @param {Field[]} fields @param {HTMLInputElement[]} inputs @returns {Values} */
function valuesOf(fields, inputs) {
  const read = (/** @type {HTMLInputElement | undefined} */ input) =>
    input?.type === "checkbox" ? (input.checked ? "yes" : "") : input?.type === "password" ? input.value : (input?.value.trim() ?? "");
  return Object.fromEntries(fields.map((field, number) => [field.name, read(inputs[number])]));
}
