// Display of problems: the refusal, its reason, its blocker, and the allowed actions.

import { isOutage, Problem, whyAway } from "../core/api.js";
import { fill, find, h } from "../core/dom.js";
import { badge } from "./states.js";
import { outage } from "../core/outage.js";
import { ago, clock } from "../core/time.js";
import { code, fact, note } from "./components.js";
import { titleOf } from "./kind-words.js";

/** @import {Child} from "../core/dom.js" */
/** @import {Blocker, ProblemFields} from "../core/types.js" */

/** @param {unknown} error @returns {ProblemFields} */
export function fieldsOf(error) {
  if (error instanceof Problem) return error.fields;
  const where = /\/console\/[\w/.-]+\.js[^:)\s]*:\d+/.exec(error instanceof Error ? (error.stack ?? "") : "")?.[0];
  const detail = `Reload the page. If the error occurs again, report this text: ${error}${where ? ` (${where})` : ""}`;
  return { title: "Error in this page", status: 0, code: "page", detail };
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
    fields.retry ? note("The same request may succeed later.") : null,
  );
}

/** @param {ProblemFields} fields @param {{onAllowed?: (action: string) => void}} how */
function facts(fields, how) {
  const shown = [];
  if (fields.state) shown.push(fact("state", badge(fields.state, fields.state_class)));
  if (fields.field) shown.push(fact("field", code(fields.field)));
  for (const one of fields.blockers ?? (fields.blocker ? [fields.blocker] : []))
    shown.push(fact("blocked by", blocker(one)));
  if (fields.missing) shown.push(fact("needs", `${fields.missing.join(", ")}: tick it under “Force and facts”`));
  if (fields.allowed) shown.push(fact("allowed now", allowed(fields.allowed, how.onAllowed)));
  for (const [action, needs] of Object.entries(fields.allowed_with ?? {}))
    shown.push(fact(`with ${needs.join(", ")}`, action));
  if (fields.right) shown.push(fact("right", fields.right));
  if (fields.limit !== undefined) shown.push(fact("limit", fields.limit));
  if (fields.nearest) shown.push(fact("did you mean", code(fields.nearest)));
  if (fields.version !== undefined) shown.push(fact("version", fields.version));
  if (fields.retry_after) shown.push(fact("retry in", `${fields.retry_after} s`));
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
    actions.map((one) => h("button", { onclick: () => onAllowed(one) }, titleOf(one))),
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

/** Show a text for some seconds. @param {Child} text @param {"good" | "failed" | "plain"} [tone] */
export function toast(text, tone = "plain") {
  const shown = h("div", { class: `toast ${tone}` }, text);
  find("#toasts").append(shown);
  setTimeout(() => shown.remove(), 6_000);
}

/** In the place of a view that cannot be read now; the banner says since when, and why. */
export function outagePanel() {
  const text = "The view opens as soon as the server answers.";
  return h("section", { class: "problem outage", role: "alert" }, h("h2", null, "This view is not available now"), note(text));
}

/** Since when the server is away, in words. */
export function outageText() {
  const since = outage.since ? ` since ${clock(outage.since / 1000)}` : "";
  const why = outage.why || whyAway(0);
  return `${why[0]?.toUpperCase()}${why.slice(1)}${since}. The page tries again by itself.`;
}

/** Close a problem that has passed by itself. */
export function closeOutageProblem() {
  const dialog = /** @type {HTMLDialogElement} */ (find("#problem"));
  if (!dialog.open || !dialog.querySelector("[data-code=no_answer], [data-code=unavailable]")) return;
  dialog.close();
  toast("The server answers again. Check the object before you repeat the request.");
}

/** Show a problem over the page, until it is closed. What could not be read is read again by itself. @param {unknown} error @param {{onAllowed?: (action: string) => void}} [how] */
export function showProblem(error, how = {}) {
  if (error instanceof Problem && error.isLoad && isOutage(error)) {
    toast(outageText(), "failed");
    return;
  }
  const dialog = /** @type {HTMLDialogElement} */ (find("#problem"));
  const onAllowed = how.onAllowed;
  const then = onAllowed ? (/** @type {string} */ action) => (dialog.close(), onAllowed(action)) : undefined;
  const close = h("button", { class: "primary", onclick: () => dialog.close(), autofocus: true }, "Close");
  fill(dialog, problemPanel(error, { onAllowed: then }), h("footer", null, close));
  if (!dialog.open) dialog.showModal();
}
