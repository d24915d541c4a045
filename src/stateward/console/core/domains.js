// The domains of this server. A plug-in may ship one module for the console, with its view, its actions, its create
// forms, its entry in the navigation and its key; the server lists the modules in index.html. A domain without a module
// has the generic pages.
//
// A module is somebody's program: whatever is wrong with it, the rest of the console goes on. It is told which plug-in,
// which file and which error, and its kinds have the generic pages.

import { isOutage, reach } from "./api.js";
import { may, notify, store } from "./store.js";

/** @import {Child} from "./dom.js" */
/** @import {ActionForm, Context, Domain, ObjectView} from "./types.js" */
/** @import {Schema} from "../ui/schema-words.js" */

/** @type {Map<string, Domain>} the modules, by the names of their domains */
export const domains = new Map();

/** @type {Map<string, string>} what is wrong with the module of a domain, with its file */
export const brokenModules = new Map();

const MODULE = /\/console\/domains\/([^/?]+)\.js(?:\?[^:)\s]*)?(?::(\d+))?/;

/** Load the modules of all domains, in the order of the page. */
export async function loadDomains() {
  if (domains.size || brokenModules.size) return;
  const links = /** @type {NodeListOf<HTMLLinkElement>} */ (document.querySelectorAll("link[data-domain]"));
  const loaded = await Promise.all([...links].map((one) => loadDomain(one.href)));
  for (const one of loaded) if (one) domains.set(one.name, one);
}

/** @param {string} address @returns {Promise<Domain | null>} */
async function loadDomain(address) {
  const name = MODULE.exec(address)?.[1] ?? address;
  try {
    return checked(await loadModule(address), name);
  } catch (error) {
    if (isOutage(error)) throw error;
    const text = error instanceof SyntaxError ? await locate(address, error) : `${placeOf(error, name)}${error}`;
    breakModule(name, text);
    return null;
  }
}

/** What a module exports, if it has the right form. @param {any} found @param {string} name @returns {Domain} */
function checked(found, name) {
  if (typeof found !== "object" || found === null) throw new TypeError("its default export must be an object");
  const domain = { nav: name, actions: {}, createForms: [], ...found };
  if (domain.name !== name) throw new TypeError(`its name must be "${name}", which is that of its plug-in`);
  if (domain.view !== undefined && typeof domain.view?.show !== "function") throw new TypeError("view.show must be a function");
  if (!Array.isArray(domain.createForms)) throw new TypeError("createForms must be a list");
  for (const field of ["actions", "extraActions", "panels"])
    if (typeof (domain[field] ?? {}) !== "object") throw new TypeError(`${field} must be an object, by kind`);
  return domain;
}

let failures = 0;

/** Load a module. A browser may remember a failed import, so the next attempt uses another address.
 * @param {string} address @param {() => Promise<any>} [load] */
export async function loadModule(address, load = () => import(address)) {
  try {
    return (await load()).default;
  } catch (error) {
    if (error instanceof SyntaxError) throw error;
    await reach(String(new URL(address, import.meta.url))).catch((problem) => {
      if (isOutage(problem)) throw problem;
    });
    failures += 1;
    return (await import(`${address}?again=${failures}`)).default;
  }
}

/** The text of a syntax error with its place. An import does not tell the place, but a script element does.
 * @param {string} address @param {SyntaxError} error @returns {Promise<string>} */
function locate(address, error) {
  return new Promise((resolve) => {
    const script = document.createElement("script");
    const onError = (/** @type {ErrorEvent} */ event) => {
      event.preventDefault();
      done(`${fileOf(event.filename)}:${event.lineno}: ${event.message.replace(/^Uncaught /, "")}`);
    };
    const done = (/** @type {string} */ text) => {
      window.removeEventListener("error", onError);
      script.remove();
      resolve(text);
    };
    window.addEventListener("error", onError);
    script.onerror = script.onload = () => done(`${fileOf(address)}: ${error}`);
    script.type = "module";
    script.src = `${address}?again=${(failures += 1)}`;
    document.head.append(script);
  });
}

/** @param {string} address */
const fileOf = (address) => new URL(address, location.href).pathname;

/** The place in a module where an error was thrown, as `file:line: `. @param {unknown} error @param {string} name */
function placeOf(error, name) {
  const line = MODULE.exec(error instanceof Error ? (error.stack ?? "") : "")?.[2];
  return `/console/domains/${name}.js${line ? `:${line}` : ""}: `;
}

/** @param {string} name @param {string} text */
function breakModule(name, text) {
  brokenModules.set(name, text);
  notify("modules");
}

/** Tell that a module has thrown. @param {string} name @param {unknown} error */
export const tellModuleError = (name, error) => breakModule(name, `${placeOf(error, name)}${error}`);

/** Listen to errors that nobody caught, and tell those of modules: in listeners, timers and buttons. */
export function watchModules() {
  const tell = (/** @type {unknown} */ error) => {
    const name = error instanceof Error ? MODULE.exec(error.stack ?? "")?.[1] : undefined;
    if (name) tellModuleError(name, error);
  };
  window.addEventListener("error", (event) => tell(event.error));
  window.addEventListener("unhandledrejection", (event) => tell(event.reason));
}

// --- which domain a kind has ------------------------------------------------------------------------------------------

/** @param {string} kind @returns {string} the name of its domain */
export const domainName = (kind) => kind.split(".", 1)[0] ?? "";

/** @returns {string[]} the domains of this server */
export function domainNames() {
  const loaded = store.plugins.filter((one) => !one.error).map((one) => one.name);
  return loaded.length ? loaded : [...domains.keys()];
}

/** @param {string} kind or the name of a domain @returns {boolean} whether this server has the own API of its domain */
export function hasOwnApi(kind) {
  return store.me?.domains?.includes(domainName(kind)) ?? false;
}

/** @param {ObjectView} thing @param {string} action @returns {ActionForm | null} the call of the domain's own API, if any */
export function actionForm(thing, action) {
  return hasOwnApi(thing.kind) ? (domains.get(domainName(thing.kind))?.actions[thing.kind]?.[action] ?? null) : null;
}

/**
 * Whether the token gives the right to ask for an action at all, in whatever state the object is.
 * @param {ObjectView} thing @param {string} action @returns {boolean}
 */
export function mayAsk(thing, action) {
  const rows = store.kinds.get(thing.kind)?.rows.filter((row) => row.event === action) ?? [];
  const actors = store.me?.role === "admin" ? ["user", "admin"] : ["user"];
  const isActor = !rows.length || rows.some((row) => row.actors.some((one) => actors.includes(one)));
  return isActor && may(actionForm(thing, action)?.right ?? "act");
}

/** The schema of an action's arguments, if it has some. @param {string} kind @param {string} action @returns {Schema | null} */
export function argsSchema(kind, action) {
  const schema = store.kinds.get(kind)?.args?.[action];
  return schema && Object.keys(schema.properties ?? {}).length ? schema : null;
}

/** @param {ObjectView} thing @returns {string[]} actions of the domain's own API beside those of the lifecycle table */
export function extraActions(thing) {
  return hasOwnApi(thing.kind) ? (domains.get(domainName(thing.kind))?.extraActions?.[thing.kind] ?? []) : [];
}

/** The cards that a domain adds to the page of an object. @param {ObjectView} thing @param {Context} context @returns {Child[]} */
export function panelsOf(thing, context) {
  const name = domainName(thing.kind);
  try {
    return hasOwnApi(thing.kind) ? (domains.get(name)?.panels?.[thing.kind]?.(thing, context) ?? []) : [];
  } catch (error) {
    tellModuleError(name, error);
    return [];
  }
}
