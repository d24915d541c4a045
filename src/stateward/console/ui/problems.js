// Display of problems: the refusal, its reason, its blocker, and the allowed actions.

import { Problem } from "../core/api.js";
import { fill, find, h } from "../core/dom.js";
import { badge } from "./states.js";
import { ago } from "../core/time.js";
import { code, fact, note } from "./components.js";

/** @import {Blocker, ProblemFields} from "../core/types.js" */

/** @param {unknown} error @returns {ProblemFields} */
export function fieldsOf(error) {
  if (error instanceof Problem) return error.fields;
  const where = /\/console\/[\w/.-]+\.js[^:)\s]*:\d+/.exec(error instanceof Error ? (error.stack ?? "") : "")?.[0];
  const detail = where ? `${error} (${where})` : String(error);
  return { title: "Something went wrong in this page", status: 0, code: "page", detail };
}

/**
 * @param {unknown} error
 * @param {{onAllowed?: (action: string) => void}} [how] what happens when an action is chosen that is allowed
 * @returns {HTMLElement}
 */
export function problemPanel(error, how = {}) {
  const fields = fieldsOf(error);
  return h(
    "section",
    { class: "problem", role: "alert", "data-code": fields.code },
    h("h2", null, fields.status ? h("span", { class: "status" }, fields.status) : null, fields.title),
    h("p", { class: "detail" }, fields.detail),
    h("dl", null, facts(fields, how)),
    fields.retry ? note("The same may succeed later.") : null,
  );
}

/** @param {ProblemFields} fields @param {{onAllowed?: (action: string) => void}} how */
function facts(fields, how) {
  const shown = [];
  if (fields.state) shown.push(fact("state", badge(fields.state, fields.state_class)));
  if (fields.field) shown.push(fact("field", code(fields.field)));
  for (const one of fields.blockers ?? (fields.blocker ? [fields.blocker] : []))
    shown.push(fact("in the way", blocker(one)));
  if (fields.missing) shown.push(fact("it needs", fields.missing.join(", ")));
  if (fields.allowed) shown.push(fact("allowed now", allowed(fields.allowed, how.onAllowed)));
  for (const [action, needs] of Object.entries(fields.allowed_with ?? {}))
    shown.push(fact(`with ${needs.join(", ")}`, action));
  if (fields.right) shown.push(fact("right", fields.right));
  if (fields.limit !== undefined) shown.push(fact("limit", fields.limit));
  if (fields.nearest) shown.push(fact("did you mean", code(fields.nearest)));
  if (fields.version !== undefined) shown.push(fact("version", fields.version));
  if (fields.retry_after) shown.push(fact("again in", `${fields.retry_after} s`));
  if (fields.skipped) shown.push(fact("skipped", skipped(fields.skipped)));
  return shown.flat();
}

/** @param {Blocker} one */
function blocker(one) {
  const where = one.path ? ` ${one.mode ?? ""} on ${one.path}` : "";
  const who = one.who || one.actor;
  return h(
    "span",
    null,
    h("b", null, one.action),
    where,
    ` by ${who}, ${ago(one.since)}, operation `,
    code(one.op.slice(-6)),
  );
}

/** @param {string[]} actions @param {((action: string) => void) | undefined} onAllowed */
function allowed(actions, onAllowed) {
  if (!actions.length) return "nothing";
  if (!onAllowed) return actions.join(", ");
  return h(
    "span",
    { class: "row" },
    actions.map((one) => h("button", { onclick: () => onAllowed(one) }, one)),
  );
}

/** @param {Record<string, ProblemFields>} skipped */
function skipped(skipped) {
  const all = Object.entries(skipped);
  const items = all.slice(0, 20).map(([name, why]) => h("li", null, h("b", null, name), ` ${why.detail}`));
  return h("ul", null, items, all.length > 20 ? h("li", null, `and ${all.length - 20} more`) : null);
}

/** Run what the user asked for; show what goes wrong. @param {() => Promise<unknown>} act */
export async function attempt(act) {
  try {
    await act();
  } catch (error) {
    showProblem(error);
  }
}

/** Show a text for some seconds. @param {string} text @param {"good" | "failed" | "plain"} [tone] */
export function toast(text, tone = "plain") {
  const shown = h("div", { class: `toast ${tone}` }, text);
  find("#toasts").append(shown);
  setTimeout(() => shown.remove(), 6_000);
}

/** Show a problem over the page, until it is closed. @param {unknown} error @param {{onAllowed?: (action: string) => void}} [how] */
export function showProblem(error, how = {}) {
  const dialog = /** @type {HTMLDialogElement} */ (find("#problem"));
  const onAllowed = how.onAllowed;
  const then = onAllowed ? (/** @type {string} */ action) => (dialog.close(), onAllowed(action)) : undefined;
  const close = h("button", { class: "primary", onclick: () => dialog.close(), autofocus: true }, "Close");
  fill(dialog, problemPanel(error, { onAllowed: then }), h("footer", null, close));
  if (!dialog.open) dialog.showModal();
}
