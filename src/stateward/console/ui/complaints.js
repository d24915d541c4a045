// Complaints beside the inputs of a form: what is wrong with a value, whether the page or the server found it.

import { fill, h } from "../core/dom.js";

/** @typedef {[string[], string]} Complaint the path of a value, and what is wrong with it */

/** The line below an input or a group that says what is wrong. @param {string} id */
export function complaintLine(id) {
  return h("p", { class: "complaint error-text", id: `${id}-wrong`, hidden: true });
}

/** @param {HTMLElement} line the place for the text @param {string} text @param {HTMLElement} [input] */
export function complainBeside(line, text, input) {
  line.hidden = false;
  fill(line, text);
  line.parentElement?.setAttribute("data-wrong", "");
  input?.setAttribute("aria-invalid", "true");
  return true;
}

/** Take all complaints away. @param {HTMLElement} form */
export function clearComplaints(form) {
  for (const one of /** @type {NodeListOf<HTMLElement>} */ (form.querySelectorAll(".complaint"))) {
    fill(one);
    one.hidden = true;
  }
  for (const one of form.querySelectorAll("[data-wrong]")) one.removeAttribute("data-wrong");
  for (const one of form.querySelectorAll("[aria-invalid]")) one.removeAttribute("aria-invalid");
}

/** Focus the first input with a complaint. @param {HTMLElement} form */
export function focusComplaint(form) {
  const first = form.querySelector("[data-wrong]");
  /** @type {HTMLElement | null | undefined} */ (first?.querySelector("input, select, textarea, button"))?.focus();
}
