// Buttons for the actions of an object. A button that is not allowed is grey and says why; it can be sent all the same.

import { get, objectPath, part, send } from "../core/api.js";
import { actionForm, argsSchema, extraActions } from "../core/domains.js";
import { fillIfChanged, h } from "../core/dom.js";
import { showForm, showSchemaForm, splitList } from "./form.js";
import { nameOf } from "../core/live-objects.js";
import { confirm, quiet, wordOptions } from "./components.js";
import { attempt, showProblem, toast } from "./problems.js";
import { may, store } from "../core/store.js";
import { span } from "../core/time.js";
import { parseJson } from "./create-buttons.js";

/** @import {Field} from "./form.js" */
/** @import {AllowedAction, Call, ObjectView} from "../core/types.js" */

/** @type {AllowedAction} */
const UNKNOWN = { event: "", allowed: true, why_not: null, needs: [], target: null, desired: null, within: null };

const DESTRUCTIVE = /delete|terminate|destroy|remove|teardown|purge|decommission|reset/;

/**
 * @param {ObjectView} thing
 * @param {AllowedAction[]} actions
 * @param {() => void} then
 */
export function actionButtons(thing, actions, then) {
  const order = (/** @type {AllowedAction} */ one) => (one.allowed ? 0 : one.needs.length ? 1 : 2);
  const settled = thing.state_class !== "transitional";
  const more = (settled ? extraActions(thing) : []).map((event) => ({ ...UNKNOWN, event }));
  if (!actions.length && !more.length)
    return [quiet("Nothing can be asked for until this has ended.")];
  return [...[...actions].sort((one, other) => order(one) - order(other)), ...more].map((one) =>
    button(thing, one, actions, then),
  );
}

/**
 * The actions of an object that are allowed without further facts.
 * @param {ObjectView} thing
 * @param {AbortSignal} signal
 * @param {string[]} [usual] actions that are shown even if they are not allowed
 * @returns {Promise<AllowedAction[]>}
 */
export async function allowedActions(thing, signal, usual = []) {
  const found = await get(`${objectPath(thing)}/allowed`, {}, signal);
  /** @param {AllowedAction} one */
  const isShown = (one) => !one.needs.length && (one.allowed || usual.includes(one.event));
  return found.actions.filter(isShown);
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
  if (place.dataset.state === thing.state) return;
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
  return may("act") && allowed ? button(thing, { ...UNKNOWN, event }, [], then) : "";
}

/** @param {ObjectView} thing @param {AllowedAction} one @param {AllowedAction[]} all @param {() => void} then */
function button(thing, one, all, then) {
  const able = may("act") && (one.allowed || one.needs.length > 0);
  const why = may("act") ? one.why_not : `your role, ${store.me?.role}, may only look`;
  const leads = [one.target, one.desired].filter(Boolean).join(" → ");
  const about = able
    ? `${leads}${one.within ? `, within ${span(one.within)}` : ""}${one.needs.length ? ` · ${why}` : ""}`
    : (why ?? "");
  return h(
    "button",
    {
      "aria-disabled": able ? null : "true",
      class: DESTRUCTIVE.test(one.event) && able ? "danger" : "",
      title: about,
      "aria-description": about,
      "data-action": one.event,
      onclick: () => (able ? ask(thing, one, all, then) : explain(thing, one, why ?? "", all, then)),
    },
    takesArguments(thing, one.event) ? `${one.event}…` : one.event,
    one.needs.length ? quiet(` with ${one.needs.join(", ")}`) : null,
  );
}

/** Whether an action asks for arguments first. @param {ObjectView} thing @param {string} action */
function takesArguments(thing, action) {
  const form = actionForm(thing, action);
  return form ? form.fields !== undefined : argsSchema(thing.kind, action) !== null;
}

/** @param {ObjectView} thing @param {AllowedAction} one @param {AllowedAction[]} all @param {() => void} then */
async function ask(thing, one, all, then) {
  if (takesArguments(thing, one.event)) return attempt(() => fillIn(thing, one, then));
  const destructive = DESTRUCTIVE.test(one.event) || one.needs.length > 0;
  const how = one.needs.length ? ` with ${one.needs.join(", ")}` : "";
  if (destructive && !(await confirm(`${one.event} ${nameOf(thing)}${how}?`, one.event))) return;
  await act(thing, one.event, one.needs, all, then);
}

/** Ask for an action's arguments first. @param {ObjectView} thing @param {AllowedAction} one @param {() => void} then */
async function fillIn(thing, one, then) {
  const form = actionForm(thing, one.event);
  const title = `${one.event}: ${nameOf(thing)}`;
  const submit = async (/** @type {Call} */ call) => {
    await send(...call);
    toast(`${one.event} ${nameOf(thing)}: accepted`, "good");
    then();
  };
  if (form) {
    const fields = (await form.fields?.(thing)) ?? [];
    showForm(title, "", fields, one.event, (values) => submit(form.call(thing, one.needs, values)));
  } else {
    const schema = argsSchema(thing.kind, one.event) ?? {};
    const path = actionPath(thing, one.event);
    showSchemaForm(title, schema.description ?? "", schema, one.event, (args) => submit(["POST", path, { facts: one.needs, args }]));
  }
}

/** A button for any action with any arguments. @param {ObjectView} thing @param {AllowedAction[]} actions @param {() => void} then */
export function anyAction(thing, actions, then) {
  const names = [...new Set(actions.map((one) => one.event))];
  const ask = () =>
    showForm(
      `Act on ${nameOf(thing)}`,
      "Arguments and spec are JSON, as the kind has them.",
      fieldsOf(names),
      "Ask",
      async (values) => {
        const [args, spec] = [parseJson(values.args ?? "", "args"), parseJson(values.spec ?? "", "spec")];
        await send("POST", actionPath(thing, values.action ?? ""), { facts: splitList(values.facts), args, spec });
        toast(`${values.action} ${nameOf(thing)}: accepted`, "good");
        then();
      },
    );
  return may("act") && names.length ? h("button", { onclick: ask }, "With arguments…") : null;
}

/** @param {string[]} names @returns {Field[]} */
function fieldsOf(names) {
  return [
    { name: "action", label: "action", type: "choice", options: wordOptions(...names) },
    { name: "args", label: "arguments", type: "long", optional: true, hint: "{}" },
    { name: "spec", label: "another spec", type: "long", optional: true, hint: "{}" },
    { name: "facts", label: "facts", optional: true, hint: "force" },
  ];
}

/** @param {ObjectView} thing @param {AllowedAction} one @param {string} why @param {AllowedAction[]} all @param {() => void} then */
async function explain(thing, one, why, all, then) {
  if (!may("act")) {
    toast(why, "failed");
    return;
  }
  if (!(await confirm(`${one.event} is not allowed now`, "Ask all the same", [h("p", null, why)]))) return;
  if (argsSchema(thing.kind, one.event) && takesArguments(thing, one.event)) await fillIn(thing, one, then);
  else await act(thing, one.event, [], all, then);
}

/** @param {ObjectView} thing @param {string} action */
const actionPath = (thing, action) => `${objectPath(thing)}/actions/${part(action)}`;

/**
 * Ask the server for an action; a refusal is shown with what would be allowed.
 * @param {ObjectView} thing
 * @param {string} action
 * @param {string[]} facts
 * @param {AllowedAction[]} all
 * @param {() => void} then
 */
export async function act(thing, action, facts, all, then) {
  try {
    const form = actionForm(thing, action);
    const [method, path, body] = form ? form.call(thing, facts, {}) : ["POST", actionPath(thing, action), { facts }];
    const accepted = await send(method, path, body);
    const at = form || accepted.operation ? "accepted" : `now ${accepted.object.state}`;
    toast(`${action} ${nameOf(thing)}: ${at}`, "good");
  } catch (error) {
    showProblem(error, {
      onAllowed: (event) => {
        const way = all.find((one) => one.event === event) ?? { ...UNKNOWN, event };
        ask(thing, { ...way, needs: [] }, all, then);
      },
    });
  }
  then();
}
