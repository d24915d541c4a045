// The dark or light theme: that of the system, unless the user chose one.

import { notify } from "./store.js";

const STORAGE_KEY = "stateward-theme";
/** Whether the user has asked for less motion. */
export const calm = matchMedia("(prefers-reduced-motion: reduce)");

const system = matchMedia("(prefers-color-scheme: dark)");

/** @returns {"dark" | "light"} */
export function theme() {
  const kept = localStorage.getItem(STORAGE_KEY);
  if (kept === "dark" || kept === "light") return kept;
  return system.matches ? "dark" : "light";
}

/** Show the page in its theme, also after the system has changed it. */
export function followTheme() {
  apply();
  system.onchange = apply;
}

/** Change from dark to light or back. */
export function turnTheme() {
  localStorage.setItem(STORAGE_KEY, theme() === "dark" ? "light" : "dark");
  apply();
}

function apply() {
  document.documentElement.dataset.theme = theme();
  notify("theme");
}

/** @param {string} name @returns {string} a colour of the theme */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
