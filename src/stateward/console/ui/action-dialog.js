// The dialog of actions: every action of the console passes here, on one object or on many.
//
// First the server previews the action. If it touches one object and can be undone, it is done at once; otherwise the
// dialog shows what it would do, and a button that names it. Just before it is done it is previewed again: if it would
// do something else by then, the dialog shows that instead. Each dialog has an idempotency key, which stays the same
// until the server has answered: neither a second click nor a lost answer does anything twice.

import { dryRun, get, objectPath, Problem, send } from "../core/api.js";
import { actionForm } from "../core/domains.js";
import { fill, find, h } from "../core/dom.js";
import { store } from "../core/store.js";
import { confirmText, isHarmless, isSameEffect, mergePreviews, needsTyping, previewPanel } from "./action-preview.js";
import { listTarget } from "./action-target.js";
import { note } from "./components.js";
import { splitList } from "./form.js";
import { phraseOf, titleOf } from "./kind-words.js";
import { noticeAction } from "./notices.js";
import { fieldsOf, problemPanel } from "./problems.js";
import { liftPanel } from "./protection.js";

/** @import {ActionTarget} from "./action-target.js" */
/** @import {ActionForm, ObjectView, Preview} from "../core/types.js" */
/** @import {Values} from "./form.js" */

/**
 * @typedef {object} ActionOptions
 * @property {string[]} [facts]
 * @property {any} [args]
 * @property {any} [spec]
 * @property {Values} [values] what was entered into the form of a domain's own API
 * @property {string} [key] the idempotency key of a form that was sent before
 * @property {() => void} [then] runs after the action was accepted
 */

/** @typedef {{ns: string, id: string, kind: string}} Touched */
/** @typedef {{ns: string, name: string, op: string | null, total: number, objects: Touched[]}} AcceptedRun one request that was accepted */

/** @type {Omit<Preview, "action" | "problem">} */
const NO_EFFECT = {
  accepted: false, total: 0, targets: [], places: [], refused: [], protected: 0, protected_examples: [], removes: false, undo: null, within: null, effects: [],
};
const NOTHING = { title: "Nothing was done", status: 409, code: "none_allowed" };

/** @returns {string} an idempotency key */
export function newKey() {
  const random = crypto.getRandomValues(new Uint8Array(12));
  return `console-${[...random].map((one) => one.toString(16).padStart(2, "0")).join("")}`;
}

/**
 * Ask for an action: at once if it is harmless, otherwise through the dialog. Raises if the request itself is wrong.
 * @param {ActionTarget} target
 * @param {string} action
 * @param {ActionOptions} [options]
 */
export async function askAction(target, action, options = {}) {
  const dialog = new ActionDialog(target, action, options);
  const preview = await dialog.readPreview();
  if (preview === null && options.values) return dialog.run(); // its form was the question, and shows what is wrong
  if (preview === null || !isHarmless(preview) || dialog.form?.asksAlways) return dialog.open(preview);
  dialog.preview = preview;
  try {
    await dialog.run();
  } catch (error) {
    dialog.open(preview, error);
  }
}

class ActionDialog {
  /** @param {ActionTarget} target @param {string} action @param {ActionOptions} options */
  constructor(target, action, options) {
    this.target = target;
    this.action = action;
    this.options = options;
    this.facts = options.facts ?? [];
    this.key = options.key ?? newKey();
    this.isSent = false;
    this.form = target.thing && actionForm(target.thing, action);
    /** @type {Preview | null} */
    this.preview = null;
    this.dialog = /** @type {HTMLDialogElement} */ (find("#action"));
    this.title = h("h2", { id: "action-title", tabindex: "-1" });
    this.feedback = h("div", { "aria-live": "polite" });
    this.plan = h("div", { class: "column" });
    this.typed = /** @type {HTMLInputElement} */ (h("input", { autocomplete: "off", spellcheck: "false", oninput: () => this.showButton() }));
    this.typing = h("label", { class: "field typing", hidden: true });
    this.go = /** @type {HTMLButtonElement} */ (h("button", { class: "primary danger", type: "submit" }));
    this.factsAsked = this.factsPanel();
  }

  // --- requests ------------------------------------------------------------------------------------------------------

  /** The preview of the action; null if only the API of its domain knows the action. @returns {Promise<Preview | null>} */
  async readPreview() {
    const { thing } = this.target;
    if (this.form?.dryRun && thing) return this.readDryRun(thing, this.form);
    const asked = this.form?.preview && thing ? this.form.preview(thing, this.options.values ?? {}) : { action: this.action };
    if (thing && !store.kinds.get(thing.kind)?.rows.some((row) => row.event === asked.action)) return null;
    if (this.form?.fields && !this.form.preview) return null; // what was entered is in the words of that API
    const { facts = this.facts, args = this.options.args } = asked;
    const bodies = this.target.parts(asked.action).map(({ path, body }) =>
      send("POST", `${path}/preview`, { ...body, facts, args, ...this.spec() }),
    );
    return mergePreviews(await Promise.all(bodies));
  }

  /** What the call of a domain's own API would do; a form with fields shows a refusal itself. @param {ObjectView} thing @param {ActionForm} form @returns {Promise<Preview>} */
  async readDryRun(thing, form) {
    try {
      return (await dryRun(form.call(thing, this.facts, this.options.values ?? {}))).preview;
    } catch (error) {
      if (form.fields || !(error instanceof Problem) || error.fields.status !== 409) throw error;
      return { ...NO_EFFECT, action: this.action, problem: error.fields };
    }
  }

  spec() {
    return this.options.spec === undefined ? {} : { spec: this.options.spec };
  }

  /** Do it, and show how it goes. */
  async run() {
    this.isSent = true;
    const runs = this.form ? [await this.runForm()] : await this.runParts();
    const { target, options, preview } = this;
    const undo = preview?.undo ?? null;
    const touched = undoTarget(target, runs);
    noticeAction({
      title: this.words(),
      runs,
      ...(undo && touched
        ? {
            undo: `${titleOf(undo)} ${(preview?.total ?? 1) > 1 ? "them" : "it"}`,
            onUndo: () => askAction(touched, undo, { then: options.then }),
          }
        : {}),
    });
    options.then?.();
  }

  /** @returns {Promise<AcceptedRun[]>} */
  async runParts() {
    const runs = [];
    for (const [number, { ns, name, path, body }] of this.target.parts(this.action).entries()) {
      const wanted = { ...body, facts: this.facts, args: this.options.args, ...this.spec() };
      try {
        runs.push(runOf(ns, name, await send("POST", path, wanted, { "Idempotency-Key": `${this.key}-${number}` })));
      } catch (error) {
        // The preview has told which parts refuse it; another error is told, and the same request goes on from there.
        const isTold = error instanceof Problem && error.fields.status === 409 && this.isMany();
        if (!isTold) throw error;
      }
    }
    if (!runs.length) throw new Problem({ ...NOTHING, detail: `no object allows ${this.action} now` });
    return runs;
  }

  isMany() {
    return this.target.parts(this.action).length > 1;
  }

  /** Through the API of its domain. @returns {Promise<AcceptedRun>} */
  async runForm() {
    const thing = /** @type {ObjectView} */ (this.target.thing);
    const call = this.form?.call(thing, this.facts, this.options.values ?? {}) ?? ["POST", ""];
    const answer = await send(call[0], call[1], call[2], { "Idempotency-Key": this.key });
    const named = typeof answer?.operation === "string" ? answer.operation : answer?.operation?.id;
    const found = named ? null : await get(objectPath(thing)).catch(() => null);
    return { ns: thing.ns, name: thing.id, op: named ?? found?.op ?? null, total: this.preview?.total || 1, objects: [thing] };
  }

  // --- the dialog ----------------------------------------------------------------------------------------------------

  /** @param {Preview | null} preview @param {unknown} [error] */
  open(preview, error) {
    const form = h(
      "form",
      { class: "column", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), void this.submit()) },
      this.plan,
      this.form?.fields ? null : this.factsAsked,
      this.typing,
      this.feedback,
      h("footer", null, h("button", { type: "button", onclick: () => this.dialog.close() }, "Cancel"), this.go),
    );
    fill(this.dialog, this.title, form);
    this.show(preview);
    if (error) this.showError(error);
    if (!this.dialog.open) this.dialog.showModal();
    this.title.focus(); // a second Enter of the key that opened the dialog must not press a button in it
  }

  /** @param {Preview | null} preview */
  show(preview) {
    this.preview = preview;
    const { action, target } = this;
    fill(
      this.plan,
      preview?.problem ? problemPanel(new Problem(preview.problem), { onAllowed: (other) => this.instead(other) }) : null,
      preview?.problem ? liftPanel(preview.problem, () => this.renew()) : null,
      preview ? previewPanel(preview, target.ns) : note("No preview: the API of the domain performs this action."),
    );
    const text = this.textToType();
    this.typing.hidden = text === "";
    fill(this.typing, h("span", null, "To confirm, type ", h("b", null, text)), this.typed);
    fill(this.title, target.thing ? phraseOf(action, target.name) : this.words());
    fill(this.go, this.words());
    if (preview?.problem?.missing) this.factsAsked.setAttribute("open", "");
    this.showButton();
  }

  /** @returns {string} what will be done, by the plan that is shown */
  words() {
    const { action, preview, target } = this;
    return preview ? confirmText(action, preview, target) : phraseOf(action, target.name);
  }

  /** @returns {string} empty if nothing must be typed */
  textToType() {
    if (!this.preview?.accepted || !needsTyping(this.preview)) return "";
    return this.target.thing ? this.target.name : `${this.action} ${this.preview.total}`;
  }

  showButton() {
    this.go.disabled = this.preview?.accepted === false || this.typed.value.trim() !== this.textToType();
  }

  /** Preview it again, with other facts, or after something has changed. */
  async renew() {
    try {
      this.show(await this.readPreview());
      fill(this.feedback);
    } catch (error) {
      this.showError(error);
    }
  }

  async submit() {
    if (this.go.disabled || this.go.hasAttribute("aria-busy")) return;
    this.go.setAttribute("aria-busy", "true");
    try {
      const now = await this.readChangedPlan();
      if (now && this.preview && !isSameEffect(now, this.preview)) {
        this.show(now);
        fill(this.feedback, changed());
      } else {
        await this.run();
        this.dialog.close();
      }
    } catch (error) {
      await this.onError(error);
    }
    this.go.removeAttribute("aria-busy");
  }

  /** Read the plan again; an action on one object whose answer was lost is sent as it was: it may be under way by now. */
  async readChangedPlan() {
    return this.isSent && this.target.thing ? null : this.readPreview();
  }

  /** @param {unknown} error */
  async onError(error) {
    if (isAnswered(error)) {
      this.key = newKey(); // it was answered: another attempt is another request
      await this.renew();
    }
    this.showError(error);
  }

  /** @param {unknown} error */
  showError(error) {
    const isUnanswered = fieldsOf(error).code === "no_answer";
    this.isSent &&= isUnanswered;
    fill(
      this.feedback,
      problemPanel(error),
      isUnanswered ? note("The server may have accepted the request. Retry with the button: the request is executed once.") : null,
    );
  }

  /** Another action on the same, which is allowed. @param {string} action */
  instead(action) {
    this.dialog.close();
    void askAction(this.target, action, { then: this.options.then }).catch((error) => this.open(null, error));
  }

  /** Facts that change what is allowed, such as force. */
  factsPanel() {
    const known = factsOf(this.target.kinds, this.action);
    const others = this.facts.filter((one) => !known.includes(one));
    const input = /** @type {HTMLInputElement} */ (h("input", { value: others.join(", "), placeholder: "none", autocomplete: "off" }));
    const boxes = known.map((name) => {
      const box = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", name, checked: this.facts.includes(name) }));
      return { box, label: h("label", { class: "row" }, box, name) };
    });
    const read = () => {
      this.facts = [...boxes.filter(({ box }) => box.checked).map(({ box }) => box.name), ...splitList(input.value)];
      void this.renew();
    };
    input.addEventListener("change", read);
    for (const { box } of boxes) box.addEventListener("change", read);
    return h(
      "details",
      { class: "facts-asked", open: this.facts.length > 0 },
      h("summary", null, "Force and facts"),
      boxes.map(({ label }) => label),
      h("label", { class: "field" }, h("span", null, known.length ? "other facts" : "facts"), input),
    );
  }
}

/** @param {unknown} error @returns {boolean} whether the server has decided: the same may be asked for under another key */
export function isAnswered(error) {
  const { status } = fieldsOf(error);
  return status >= 400 && status < 500;
}

/** @param {string} ns @param {string} name @param {any} answer to an action on one object, or to a group action @returns {AcceptedRun} */
function runOf(ns, name, answer) {
  if ("object" in answer) return { ns, name, op: answer.operation?.id ?? null, total: 1, objects: [answer.object] };
  const objects = answer.begun.map((/** @type {any} */ one) => one.object);
  return { ns, name, op: answer.group ?? null, total: objects.length, objects };
}

/** @param {string[]} kinds @param {string} action @returns {string[]} the facts that their tables know for the action */
function factsOf(kinds, action) {
  const rows = kinds.flatMap((kind) => store.kinds.get(kind)?.rows ?? []);
  return [...new Set(rows.filter((row) => row.event === action).flatMap((row) => row.needs))].sort();
}

const changed = () =>
  h("p", { class: "changed", role: "alert" }, "The plan has changed since the dialog was opened. Check it and confirm again.");

/** What an action has touched: by then, a filter may match other objects. @param {ActionTarget} target @param {AcceptedRun[]} runs */
function undoTarget(target, runs) {
  const touched = runs.flatMap((one) => one.objects);
  return target.thing ? target : touched.length ? listTarget(touched) : null;
}
