// Numbers of objects in words, such as "4,050 VMs", and actions in words, such as "Scale in".

import { domainName, domains } from "../core/domains.js";
import { counted } from "../core/numbers.js";

/** @param {string} kind @returns {[string, string]} its noun, for one and for many; the module of its domain may name it */
function nounOf(kind) {
  const named = domains.get(domainName(kind))?.nouns?.[kind];
  if (named) return named;
  const word = kind.slice(kind.lastIndexOf(".") + 1);
  const one = /[aeiouy]/.test(word) ? word : word.toUpperCase(); // an abbreviation, such as vm
  return [one, pluralOf(one)];
}

/** @param {string} word */
function pluralOf(word) {
  if (/[^aeiou]y$/.test(word)) return `${word.slice(0, -1)}ies`;
  return /(s|x|z|ch|sh)$/.test(word) ? `${word}es` : `${word}s`;
}

/** @param {string | null} kind null for objects of several kinds @param {number} count @returns {string} such as "1 VM", "4,050 VMs" */
export function countWords(kind, count) {
  const [one, many] = kind === null ? ["object", "objects"] : nounOf(kind);
  return counted(count, one, many);
}

/** @param {string} action @returns {string} with a capital */
export const titleOf = (action) => action.slice(0, 1).toUpperCase() + action.slice(1);

/** @param {string} action @param {string} what @returns {string} such as "Suspend 3 VMs", "Scale in: shop" */
export const phraseOf = (action, what) => `${titleOf(action)}${action.includes(" ") ? ":" : ""} ${what}`;
