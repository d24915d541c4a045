// Saved views of the objects: a name for an address, kept by this browser. The address alone shows the same elsewhere.

import { h } from "../core/dom.js";
import { note } from "./components.js";
import { popupButton } from "./popup.js";
import { toast } from "./problems.js";

const STORAGE_KEY = "stateward-views";

/** @typedef {{name: string, address: string}} SavedView the address begins with # */

/** @returns {SavedView[]} what this browser keeps; anything else in its place is left out */
function readViews() {
  try {
    const kept = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "[]");
    const isView = (/** @type {any} */ one) => typeof one?.name === "string" && one.address?.startsWith?.("#/objects");
    return Array.isArray(kept) ? kept.filter(isView) : [];
  } catch {
    return [];
  }
}

/** @param {SavedView[]} views */
const keepViews = (views) => localStorage.setItem(STORAGE_KEY, JSON.stringify(views));

/** The button with the saved views: open one, save this one, copy its link. */
export function viewsButton() {
  return popupButton("views", "Views", (draw, panel) => {
    const views = readViews();
    const name = /** @type {HTMLInputElement} */ (h("input", { "aria-label": "Name of the view", placeholder: "Name", maxlength: 80, required: true }));
    const save = (/** @type {Event} */ event) => {
      event.preventDefault();
      const made = { name: name.value.trim(), address: location.hash };
      if (!made.name) return;
      keepViews([...views.filter((one) => one.name !== made.name), made].sort((a, b) => a.name.localeCompare(b.name)));
      draw();
      toast(`The view “${made.name}” is saved in this browser`);
    };
    const remove = (/** @type {SavedView} */ view) => {
      keepViews(views.filter((one) => one.name !== view.name));
      draw();
    };
    const row = (/** @type {SavedView} */ view) =>
      h(
        "li",
        null,
        h("a", { href: view.address, onclick: () => panel.hidePopover() }, view.name),
        h("button", { type: "button", class: "remove", "aria-label": `Delete the view ${view.name}`, onclick: () => remove(view) }, "✕"),
      );
    const copy = async () => {
      await navigator.clipboard.writeText(location.href);
      toast("The link is copied: it shows the same filter, order, columns and selection");
    };
    return [
      views.length ? h("ul", { class: "plain views" }, views.map(row)) : note("No saved views in this browser."),
      h("form", { class: "save-view", onsubmit: save }, name, h("button", { class: "primary" }, "Save this view")),
      h("footer", null, h("button", { type: "button", onclick: copy }, "Copy link")),
    ];
  });
}
