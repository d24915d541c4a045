// A button with a panel below it, which closes by Escape or by a click elsewhere.

import { fill, h } from "../core/dom.js";

/** @import {Child} from "../core/dom.js" */

/**
 * @param {string} id @param {string} name
 * @param {(redraw: () => void, panel: HTMLElement) => Child[]} make the content, each time that it is opened
 */
export function popupButton(id, name, make) {
  const panel = h("div", { id, popover: "auto", class: "popup", role: "dialog", "aria-label": name });
  const button = h("button", { type: "button", popovertarget: id }, `${name} ▾`);
  const draw = () => fill(panel, h("div", { class: "popup-body" }, make(draw, panel)));
  panel.addEventListener("beforetoggle", draw);
  const place = () => {
    const { left, bottom } = button.getBoundingClientRect();
    const { clientWidth, clientHeight } = document.documentElement;
    const within = (/** @type {number} */ at, /** @type {number} */ most) => `${Math.max(10, Math.min(at, most - 10))}px`;
    panel.style.left = within(left, clientWidth - panel.offsetWidth);
    panel.style.top = within(bottom + 4, clientHeight - panel.offsetHeight);
  };
  panel.addEventListener("toggle", (event) => {
    if (/** @type {ToggleEvent} */ (event).newState === "closed") return window.removeEventListener("resize", place);
    place();
    window.addEventListener("resize", place);
  });
  return [button, panel];
}
