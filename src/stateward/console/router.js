// Which view is shown: the address behind `#` says, so that every view has a link of its own.

import { h, fill, find } from "./dom.js";
import { problemPanel } from "./problems.js";
import { listen, store } from "./store.js";

/** @import {Context, View} from "./types.js" */

/** @type {Record<string, () => Promise<{default: View}>>} */
const VIEWS = {
  overview: () => import("./views/overview.js"),
  objects: () => import("./views/objects.js"),
  object: () => import("./views/object.js"),
  mci: () => import("./views/mci.js"),
  edge: () => import("./views/edge.js"),
  ovc: () => import("./views/ovc.js"),
  leases: () => import("./views/leases.js"),
  systems: () => import("./views/systems.js"),
  queues: () => import("./views/queues.js"),
  lanes: () => import("./views/lanes.js"),
  workers: () => import("./views/workers.js"),
  timers: () => import("./views/timers.js"),
  journal: () => import("./views/journal.js"),
  access: () => import("./views/access.js"),
};

/** @type {AbortController} */
let current = new AbortController();

/** @param {string} view @param {string[]} [path] @param {Record<string, string>} [query] */
export function link(view, path = [], query = {}) {
  const where = `#/${[view, ...path.map(encodeURIComponent)].join("/")}`;
  const given = Object.entries(query).filter(([, value]) => value);
  return given.length ? `${where}?${new URLSearchParams(given)}` : where;
}

/** @param {string} ns @param {string} id */
export function objectLink(ns, id) {
  return link("object", [ns, id]);
}

/** @param {string} where */
export function go(where) {
  location.hash = where;
}

/** @returns {{name: string, path: string[], query: URLSearchParams}} */
export function place() {
  const [path = "", words = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [name = "", ...rest] = path.split("/").map(decodeURIComponent);
  return { name: name in VIEWS ? name : "overview", path: rest, query: new URLSearchParams(words) };
}

/** Change the query of the address without showing the view anew. @param {Record<string, string>} query */
export function keepQuery(query) {
  const { name, path } = place();
  history.replaceState(null, "", link(name, path, query));
}

/** Show the view that the address names. */
export async function show() {
  current.abort();
  const mine = (current = new AbortController());
  const { name, path, query } = place();
  for (const one of document.querySelectorAll("nav a[data-view]")) {
    const chosen = /** @type {HTMLElement} */ (one).dataset.view === name;
    if (chosen) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  const main = h("main", { id: "main", tabindex: "-1", "data-view": name });
  find("#main").replaceWith(main);
  try {
    const view = await load(name);
    if (mine.signal.aborted) return;
    document.title = `${path.at(-1) ?? view.title} · Stateward`;
    await view.show(context(main, path, query, mine.signal));
  } catch (error) {
    if (mine.signal.aborted) return;
    fill(main, problemPanel(error));
    if (store.connection !== "live") mine.signal.addEventListener("abort", listen("connection", showOnceLive));
  }
}

/** What could not be shown while the server was away is shown when it is back. */
function showOnceLive() {
  if (store.connection === "live") show();
}

let failures = 0;

/** Load a view. A browser may remember that it could not be had, so it is asked for by another address after that.
 * @param {string} name @returns {Promise<View>} */
async function load(name) {
  try {
    return (await /** @type {() => Promise<{default: View}>} */ (VIEWS[name])()).default;
  } catch {
    failures += 1;
    return (await import(`./views/${name}.js?again=${failures}`)).default;
  }
}

/** @param {HTMLElement} main @param {string[]} path @param {URLSearchParams} query @param {AbortSignal} signal @returns {Context} */
function context(main, path, query, signal) {
  return {
    main,
    path,
    query,
    signal,
    on: (topic, listener) => signal.addEventListener("abort", listen(topic, listener)),
    every: (seconds, act) => repeat(seconds, act, signal),
  };
}

/** @param {number} seconds @param {() => unknown} act @param {AbortSignal} signal */
async function repeat(seconds, act, signal) {
  while (!signal.aborted) {
    try {
      if (!document.hidden) await act();
    } catch {
      // the server is away, or refuses: what is shown stays, and the stream tells when it is back
    }
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  }
}
