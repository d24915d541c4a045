// Dark or light: as the system has it, unless somebody chose.

import { tell } from "./store.js";

const KEPT = "stateward-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

/** @returns {"dark" | "light"} */
export function theme() {
  const kept = localStorage.getItem(KEPT);
  if (kept === "dark" || kept === "light") return kept;
  return system.matches ? "dark" : "light";
}

/** Show the page in its theme, and go on doing so. */
export function followTheme() {
  apply();
  system.onchange = apply;
}

/** Change from dark to light or back. */
export function turnTheme() {
  localStorage.setItem(KEPT, theme() === "dark" ? "light" : "dark");
  apply();
}

function apply() {
  document.documentElement.dataset.theme = theme();
  tell("theme");
}

/** @param {string} name @returns {string} a colour of the theme */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
