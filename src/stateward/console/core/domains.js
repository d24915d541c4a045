// The domains of this server. Each domain ships one module, `src/stateward/domains/<name>/console.js`, with its view, its
// actions, its create forms, its entry in the navigation and its key. The server lists the modules in index.html.

import { store } from "./store.js";

/** @import {ActionForm, Domain, ObjectView} from "./types.js" */

/** @type {Map<string, Domain>} */
export const domains = new Map();

/** Load the modules of all domains, in the order of the page. */
export async function loadDomains() {
  if (domains.size) return;
  const links = /** @type {NodeListOf<HTMLLinkElement>} */ (document.querySelectorAll("link[data-domain]"));
  const loaded = await Promise.all([...links].map((one) => loadModule(one.href)));
  for (const one of loaded) domains.set(one.name, one);
}

let failures = 0;

/** Load a module. A browser may remember a failed import, so the next attempt uses another address.
 * @param {string} address @param {() => Promise<any>} [load] */
export async function loadModule(address, load = () => import(address)) {
  try {
    return (await load()).default;
  } catch {
    failures += 1;
    return (await import(`${address}?again=${failures}`)).default;
  }
}

/** @param {string} kind @returns {Domain | undefined} the domain of a kind */
const domainOf = (kind) => domains.get(kind.split(".", 1)[0] ?? "");

/** @param {string} kind @returns {boolean} whether this server has the own API of the kind's domain */
export function hasOwnApi(kind) {
  return store.me?.domains?.includes(kind.split(".", 1)[0] ?? "") ?? false;
}

/** @param {ObjectView} thing @param {string} action @returns {ActionForm | null} the call of the domain's own API, if any */
export function actionForm(thing, action) {
  return hasOwnApi(thing.kind) ? (domainOf(thing.kind)?.actions[thing.kind]?.[action] ?? null) : null;
}

/** @param {ObjectView} thing @returns {string[]} actions of the domain's own API beside those of the lifecycle table */
export function extraActions(thing) {
  return hasOwnApi(thing.kind) ? (domainOf(thing.kind)?.extraActions?.[thing.kind] ?? []) : [];
}
