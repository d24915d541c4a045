// The form of any action on an object: fields from the types that its kind declares, or JSON.
//
// The fields begin with what the object has now. Secrets do not: nobody gets them back from the server.

import { argsSchema } from "../core/domains.js";
import { fill, h } from "../core/dom.js";
import { store } from "../core/store.js";
import { labeled, note, select, wordOptions } from "./components.js";
import { showContent, splitList } from "./form.js";
import { partOf } from "./schema-groups.js";
import { json } from "./schema-inputs.js";
import { hasSecrets, presentValues } from "./schema-words.js";

/** @import {ObjectView} from "../core/types.js" */
/** @import {Complaint} from "./complaints.js" */
/** @import {Part} from "./schema-inputs.js" */
/** @import {Schema} from "./schema-words.js" */

/** @typedef {{action: string, args?: any, spec?: any, facts: string[]}} AskedAction */

/** @param {ObjectView} thing @param {string} action @returns {any} the arguments that the object's spec has values for */
export function presentArguments(thing, action) {
  const schema = argsSchema(thing.kind, action);
  return schema ? presentValues(thing.spec, schema) : undefined;
}

/**
 * Ask for an action on an object, with its arguments and, if the action takes one, another spec.
 * @param {string} title
 * @param {ObjectView} thing
 * @param {string[]} actions
 * @param {(asked: AskedAction) => Promise<void>} submit
 */
export function showActionForm(title, thing, actions, submit) {
  const specSchema = store.kinds.get(thing.kind)?.spec ?? null;
  let [action = "", isJson] = [actions[0], false];
  /** @type {Part | null} */
  let args = null;
  /** @type {Part | null} */
  let spec = null;
  const choice = select(wordOptions(...actions), action, (chosen) => draw(chosen, isJson), "action");
  choice.setAttribute("name", "action");
  const facts = /** @type {HTMLInputElement} */ (h("input", { name: "facts", placeholder: "none", autocomplete: "off" }));
  const takesSpec = () => store.kinds.get(thing.kind)?.spec_actions?.includes(action) ?? false;
  const isChanged = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", name: "changes spec" }));
  const slot = h("div", { class: "column" });
  const tabs = [false, true].map((one) => {
    const choose = () => {
      /** @type {Complaint[]} */
      const complaints = [];
      content.read(complaints);
      if (isJson && complaints.length) for (const [path, text] of complaints) content.complain(path, text);
      else draw(action, one);
    };
    return h("button", { type: "button", onclick: choose }, one ? "JSON" : "Fields");
  });

  /** @param {Schema | null} schema @param {string} name @param {string} label @param {any} value @returns {Part} */
  function part(schema, name, label, value) {
    const place = { path: [name], label, required: true, value };
    return schema && !isJson ? partOf({ ...schema, title: undefined }, place) : json({}, { ...place, required: false });
  }

  /** What was entered, without secrets. @param {Part | null} from @param {Schema | null} schema @param {any} otherwise */
  const entered = (from, schema, otherwise) => (from && schema ? presentValues(from.read([]), schema) : otherwise);

  /** @param {string} chosen @param {boolean} asJson */
  function draw(chosen, asJson) {
    const schema = argsSchema(thing.kind, chosen);
    const present = presentArguments(thing, chosen);
    const before = { args: chosen === action ? entered(args, schema, present) : present, spec: entered(spec, specSchema, presentSpec()) };
    [action, isJson] = [chosen, asJson];
    for (const [number, tab] of tabs.entries()) tab.setAttribute("aria-pressed", String(isJson === (number === 1)));
    args = schema || isJson ? part(schema, "args", `arguments of ${action}`, before.args) : null;
    spec = takesSpec() ? part(specSchema, "spec", "spec", before.spec) : null;
    fill(
      slot,
      args ? args.element : note(`${action} declares no arguments.`),
      spec ? h("label", { class: "row" }, isChanged, "Change the spec, too") : null,
      spec?.element,
      spec && specSchema && hasSecrets(specSchema) ? secretsNote : null,
    );
    showSpec();
  }

  const secretsNote = note("Secrets are not shown. Enter them again: a secret that is left out is removed.");
  const presentSpec = () => (specSchema ? presentValues(thing.spec, specSchema) : thing.spec);
  const showSpec = () => {
    if (spec) spec.element.hidden = !isChanged.checked;
    secretsNote.hidden = !isChanged.checked;
  };
  isChanged.addEventListener("change", showSpec);
  const content = {
    elements: [
      labeled("action", choice),
      h("div", { class: "row", role: "group", "aria-label": "Input as" }, tabs),
      slot,
      labeled("facts (optional)", facts),
    ],
    read: (/** @type {Complaint[]} */ complaints) => ({
      action,
      facts: splitList(facts.value),
      args: args?.read(complaints),
      ...(spec && isChanged.checked ? { spec: spec.read(complaints) } : {}),
    }),
    complain: (/** @type {string[]} */ [name, ...rest], /** @type {string} */ text) =>
      (name === "spec" ? isChanged.checked && spec?.complain(rest, text) : name === "args" ? args?.complain(rest, text) : false) ?? false,
  };
  draw(action, false);
  showContent(title, "", content, "Continue", submit);
}
