// Buttons for the actions of an object. All of them lead through the action dialog. A button that is not allowed is grey
// and says why; the dialog then shows the refusal, and what would help.

import { get, objectPath } from "../core/api.js";
import { actionForm, argsSchema, extraActions, mayAsk } from "../core/domains.js";
import { fillIfChanged, h } from "../core/dom.js";
import { showForm, showSchemaForm } from "./form.js";
import { presentArguments, showActionForm } from "./action-form.js";
import { askAction, isAnswered, newKey } from "./action-dialog.js";
import { objectTarget } from "./action-target.js";
import { quiet } from "./components.js";
import { attempt, toast } from "./problems.js";
import { classOf, may, store } from "../core/store.js";
import { span } from "../core/time.js";
import { phraseOf, titleOf } from "./kind-words.js";

/** @import {AskedAction} from "./action-form.js" */
/** @import {ActionTarget} from "./action-target.js" */
/** @import {AllowedAction, ObjectView} from "../core/types.js" */

/** @type {AllowedAction} */
const UNKNOWN = { event: "", allowed: true, why_not: null, needs: [], target: null, desired: null, within: null };

/** A button takes no second click for so long: a double click is one click. */
const REST_MS = 1_000;

/**
 * @param {ObjectView} thing
 * @param {AllowedAction[]} actions
 * @param {() => void} then
 */
export function actionButtons(thing, actions, then) {
  if (!may("act")) return [quiet(`Your role, ${store.me?.role}, is read-only.`)];
  const order = (/** @type {AllowedAction} */ one) => (one.allowed ? 0 : one.needs.length ? 1 : 2);
  const settled = thing.state_class !== "transitional";
  const more = (settled ? extraActions(thing) : []).filter((event) => mayAsk(thing, event)).map((event) => ({ ...UNKNOWN, event }));
  /** @type {Map<string, AllowedAction>} one way for each action: facts are asked for in the dialog */
  const ways = new Map();
  for (const one of [...actions].sort((one, other) => order(one) - order(other)))
    if (!isCreation(thing.kind, one.event) && !ways.has(one.event)) ways.set(one.event, one);
  const shown = [...ways.values(), ...more];
  return shown.length
    ? shown.map((one) => button(thing, one, then))
    : [quiet(thing.op ? "No action is possible until the current operation has ended." : "This state has no actions for you.")];
}

/** Whether an action makes new objects only. @param {string} kind @param {string} action */
function isCreation(kind, action) {
  const known = store.kinds.get(kind);
  const rows = known?.rows.filter((row) => row.event === action) ?? [];
  return rows.length > 0 && rows.every((row) => row.sources.every((source) => source === known?.initial));
}

/** Whether an action ends an object for good. @param {string} kind @param {string} action */
export function isRemoval(kind, action) {
  const rows = store.kinds.get(kind)?.rows.filter((row) => row.event === action) ?? [];
  return rows.some((row) => row.to === "(gone)" || classOf(kind, row.to) === "final");
}

/** Whether a deletion is done at once, because `restore` brings the object back. @param {ObjectView} thing @param {string} action */
function isRestorable({ kind, state }, action) {
  const rows = store.kinds.get(kind)?.rows ?? [];
  const target = rows.find((row) => row.event === action && row.sources.includes(state))?.to ?? "";
  return action === "delete" && rows.some((row) => row.event === "restore" && row.sources.includes(target));
}

/** The actions of an object that the token may ask for. @param {ObjectView} thing @param {AbortSignal} signal @returns {Promise<AllowedAction[]>} */
export async function readAllowed(thing, signal) {
  const found = await get(`${objectPath(thing)}/allowed`, {}, signal);
  return found.actions.filter((/** @type {AllowedAction} */ one) => mayAsk(thing, one.event));
}

/**
 * The actions of an object that are allowed without further facts.
 * @param {ObjectView} thing
 * @param {AbortSignal} signal
 * @param {string[]} [usual] actions that are shown even if they are not allowed
 * @returns {Promise<AllowedAction[]>}
 */
export async function allowedActions(thing, signal, usual = []) {
  /** @param {AllowedAction} one */
  const isShown = (one) => !one.needs.length && (one.allowed || usual.includes(one.event));
  return (await readAllowed(thing, signal)).filter(isShown);
}

/**
 * Show the buttons of an object's allowed actions; they are read again when its state has changed.
 * @param {HTMLElement} place
 * @param {ObjectView} thing
 * @param {AbortSignal} signal
 * @param {() => void} then
 * @param {string[]} [usual]
 */
export async function showAllowedActions(place, thing, signal, then, usual) {
  if (!may("act") || place.dataset.state === thing.state) return;
  place.dataset.state = thing.state;
  try {
    const found = await allowedActions(thing, signal, usual);
    fillIfChanged(place, found, () => actionButtons(thing, found, then));
  } catch {
    delete place.dataset.state; // the object is gone, or the server is away
  }
}

/**
 * One action as a button, where a view knows when it makes sense.
 * @param {ObjectView} thing
 * @param {string} event
 * @param {boolean} allowed
 * @param {() => void} then
 */
export function actionButton(thing, event, allowed, then) {
  return mayAsk(thing, event) && allowed ? button(thing, { ...UNKNOWN, event }, then) : "";
}

/** @param {ObjectView} thing @param {AllowedAction} one @param {() => void} then */
function button(thing, one, then) {
  const able = may("act") && one.allowed;
  const why = may("act") ? one.why_not : `your role, ${store.me?.role}, is read-only`;
  const leads = [one.target, one.desired].filter(Boolean).join(" → ");
  const about = able ? `${leads}${one.within ? `, within ${span(one.within)}` : ""}` : (why ?? "");
  const made = h(
    "button",
    {
      "aria-disabled": able ? null : "true",
      class: isRemoval(thing.kind, one.event) && able ? "danger" : "",
      title: about,
      "aria-description": about,
      "data-action": one.event,
      onclick: () => (may("act") ? once(made, () => ask(thing, one.event, then)) : toast(why ?? "", "failed")),
    },
    takesArguments(thing, one.event) ? `${titleOf(one.event)}…` : titleOf(one.event),
    isRestorable(thing, one.event) ? quiet(" (can be restored)") : null,
  );
  return made;
}

/** Run what a button does, once however often it is pressed. @param {HTMLElement} pressed @param {() => Promise<void>} act */
export async function once(pressed, act) {
  if (pressed.hasAttribute("aria-busy")) return;
  pressed.setAttribute("aria-busy", "true");
  await attempt(act);
  setTimeout(() => pressed.removeAttribute("aria-busy"), REST_MS);
}

/** Whether an action asks for arguments first. @param {ObjectView} thing @param {string} action */
export function takesArguments(thing, action) {
  const form = actionForm(thing, action);
  return form ? form.fields !== undefined : argsSchema(thing.kind, action) !== null;
}

/** @param {ObjectView} thing @param {string} action @param {() => void} then */
async function ask(thing, action, then) {
  const target = objectTarget(thing);
  const form = actionForm(thing, action);
  if (!form) return askWithArguments(target, action, then);
  if (!form.fields) return askAction(target, action, { then });
  const fields = await form.fields(thing);
  let key = newKey();
  const submit = async (/** @type {import("./form.js").Values} */ values) => {
    try {
      await askAction(target, action, { values, key, then });
    } catch (error) {
      if (isAnswered(error)) key = newKey();
      throw error;
    }
  };
  showForm(phraseOf(action, target.name), "", fields, titleOf(action), submit);
}

/**
 * Ask for an action; if its kind declares arguments, a form asks for them first.
 * @param {ActionTarget} target
 * @param {string} action
 * @param {() => void} [then]
 */
export async function askWithArguments(target, action, then) {
  const [kind = "", ...others] = target.kinds;
  const schema = others.length ? null : argsSchema(kind, action);
  if (!schema) return askAction(target, action, { then });
  const submit = (/** @type {any} */ args) => askAction(target, action, { args, then });
  const present = target.thing ? presentArguments(target.thing, action) : undefined;
  showSchemaForm(phraseOf(action, target.name), schema.description ?? "", schema, titleOf(action), submit, present);
}

/** A button for any action with any arguments. @param {ObjectView} thing @param {AllowedAction[]} actions @param {() => void} then */
export function anyAction(thing, actions, then) {
  const ordered = [...actions].sort((one, other) => Number(other.allowed) - Number(one.allowed));
  const names = [...new Set(ordered.map((one) => one.event))].filter((name) => !isCreation(thing.kind, name));
  const target = objectTarget(thing);
  const submit = (/** @type {AskedAction} */ { action, ...options }) => askAction(target, action, { ...options, then });
  const ask = () => showActionForm(`Action with arguments: ${target.name}`, thing, names, submit);
  return may("act") && names.length ? h("button", { onclick: ask }, "Action with arguments…") : null;
}

/**
 * Ask for an action without arguments.
 * @param {ObjectView} thing
 * @param {string} action
 * @param {string[]} facts
 * @param {AllowedAction[]} _all kept for modules of 0.1.0
 * @param {() => void} then
 */
export async function act(thing, action, facts, _all, then) {
  await attempt(() => askAction(objectTarget(thing), action, { facts, then }));
}
