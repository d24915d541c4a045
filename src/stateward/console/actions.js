// What can be done to an object, as buttons: what is not allowed is grey and says why, and can be asked all the same.

import { part, send } from "./api.js";
import { h } from "./dom.js";
import { confirm } from "./parts.js";
import { showProblem, toast } from "./problems.js";
import { may, store } from "./store.js";
import { span } from "./time.js";

/** @import {Possible, Thing} from "./types.js" */

/** @type {Possible} */
const UNKNOWN = { event: "", allowed: true, why_not: null, needs: [], target: null, desired: null, within: null };

const GRAVE = /delete|terminate|destroy|remove|teardown|purge|decommission|reset/;

/**
 * @param {Thing} thing
 * @param {Possible[]} actions
 * @param {() => void} then
 */
export function actionButtons(thing, actions, then) {
  const order = (/** @type {Possible} */ one) => (one.allowed ? 0 : one.needs.length ? 1 : 2);
  return [...actions].sort((one, other) => order(one) - order(other)).map((one) => button(thing, one, actions, then));
}

/** @param {Thing} thing @param {Possible} one @param {Possible[]} all @param {() => void} then */
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
      class: GRAVE.test(one.event) && able ? "danger" : "",
      title: about,
      "aria-description": about,
      "data-action": one.event,
      onclick: () => (able ? ask(thing, one, all, then) : explain(thing, one, why ?? "", all, then)),
    },
    one.event,
    one.needs.length ? h("span", { class: "quiet" }, ` with ${one.needs.join(", ")}`) : null,
  );
}

/** @param {Thing} thing @param {Possible} one @param {Possible[]} all @param {() => void} then */
async function ask(thing, one, all, then) {
  const grave = GRAVE.test(one.event) || one.needs.length > 0;
  const how = one.needs.length ? ` with ${one.needs.join(", ")}` : "";
  if (grave && !(await confirm(`${one.event} ${thing.id}${how}?`, one.event))) return;
  await act(thing, one.event, one.needs, all, then);
}

/** @param {Thing} thing @param {Possible} one @param {string} why @param {Possible[]} all @param {() => void} then */
async function explain(thing, one, why, all, then) {
  if (!may("act")) {
    toast(why, "failed");
    return;
  }
  if (await confirm(`${one.event} is not allowed now`, "Ask all the same", [h("p", null, why)]))
    await act(thing, one.event, [], all, then);
}

/**
 * Ask the server for an action; a refusal is shown with what would be allowed.
 * @param {Thing} thing
 * @param {string} action
 * @param {string[]} facts
 * @param {Possible[]} all
 * @param {() => void} then
 */
export async function act(thing, action, facts, all, then) {
  try {
    const accepted = await send("POST", `/ns/${part(thing.ns)}/objects/${part(thing.id)}/actions/${part(action)}`, {
      facts,
    });
    toast(`${action} ${thing.id}: ${accepted.operation ? "accepted" : `now ${accepted.object.state}`}`, "good");
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
