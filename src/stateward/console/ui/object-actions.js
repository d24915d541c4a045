// Buttons for the actions of an object. A button that is not allowed is grey and says why; it can be sent all the same.

import { part, send } from "../core/api.js";
import { actionForm, extraActions } from "../core/domains.js";
import { h } from "../core/dom.js";
import { showForm } from "./form.js";
import { nameOf } from "../core/live-objects.js";
import { confirm } from "./components.js";
import { showProblem, toast } from "./problems.js";
import { may, store } from "../core/store.js";
import { span } from "../core/time.js";
import { parseJson } from "./create-buttons.js";

/** @import {Field} from "./form.js" */
/** @import {ActionForm, AllowedAction, ObjectView} from "../core/types.js" */

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
    return [h("span", { class: "quiet" }, "Nothing can be asked for until this has ended.")];
  return [...[...actions].sort((one, other) => order(one) - order(other)), ...more].map((one) =>
    button(thing, one, actions, then),
  );
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
    actionForm(thing, one.event)?.fields ? `${one.event}…` : one.event,
    one.needs.length ? h("span", { class: "quiet" }, ` with ${one.needs.join(", ")}`) : null,
  );
}

/** @param {ObjectView} thing @param {AllowedAction} one @param {AllowedAction[]} all @param {() => void} then */
async function ask(thing, one, all, then) {
  const form = actionForm(thing, one.event);
  if (form?.fields) {
    await fillIn(thing, one, form, then);
    return;
  }
  const destructive = DESTRUCTIVE.test(one.event) || one.needs.length > 0;
  const how = one.needs.length ? ` with ${one.needs.join(", ")}` : "";
  if (destructive && !(await confirm(`${one.event} ${nameOf(thing)}${how}?`, one.event))) return;
  await act(thing, one.event, one.needs, all, then);
}

/** Ask for an action's arguments first. @param {ObjectView} thing @param {AllowedAction} one @param {ActionForm} form @param {() => void} then */
async function fillIn(thing, one, form, then) {
  try {
    const fields = (await form.fields?.(thing)) ?? [];
    showForm(`${one.event}: ${nameOf(thing)}`, "", fields, one.event, async (values) => {
      await send(...form.call(thing, one.needs, values));
      toast(`${one.event} ${nameOf(thing)}: accepted`, "good");
      then();
    });
  } catch (error) {
    showProblem(error);
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
        const facts = (values.facts ?? "")
          .split(",")
          .map((one) => one.trim())
          .filter(Boolean);
        const body = { facts, args: parseJson(values.args ?? "", "args"), spec: parseJson(values.spec ?? "", "spec") };
        await send("POST", actionPath(thing, values.action ?? ""), body);
        toast(`${values.action} ${nameOf(thing)}: accepted`, "good");
        then();
      },
    );
  return may("act") && names.length ? h("button", { onclick: ask }, "With arguments…") : null;
}

/** @param {string[]} names @returns {Field[]} */
function fieldsOf(names) {
  return [
    { name: "action", label: "action", type: "choice", options: names.map((one) => [one, one]) },
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
  if (await confirm(`${one.event} is not allowed now`, "Ask all the same", [h("p", null, why)]))
    await act(thing, one.event, [], all, then);
}

/** @param {ObjectView} thing @param {string} action */
function actionPath(thing, action) {
  return `/ns/${part(thing.ns)}/objects/${part(thing.id)}/actions/${part(action)}`;
}

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
