// The table of views, and the router that shows the view of the current address.

import { Problem, reportBug } from "./api.js";
import { domainNames, domains, loadModule, tellModuleError } from "./domains.js";
import { h, fill, find } from "./dom.js";
import { place } from "./links.js";
import { problemPanel } from "../ui/problems.js";
import { listen, store } from "./store.js";

/** @import {Context, View} from "./types.js" */

/** @type {Record<string, () => Promise<{default: View}>>} */
const VIEWS = {
  overview: () => import("../views/overview.js"),
  objects: () => import("../views/objects.js"),
  object: () => import("../views/object.js"),
  queues: () => import("../views/queues.js"),
  lanes: () => import("../views/lanes.js"),
  workers: () => import("../views/workers.js"),
  timers: () => import("../views/timers.js"),
  journal: () => import("../views/journal.js"),
  access: () => import("../views/access.js"),
};

/** @type {AbortController} */
let current = new AbortController();

/** Show the view that the address names. */
export async function show() {
  current.abort();
  const mine = (current = new AbortController());
  const { path, query, ...address } = place();
  const name = address.name in VIEWS || domainNames().includes(address.name) ? address.name : "overview";
  const domain = domains.get(name);
  for (const one of document.querySelectorAll("nav a[data-view]")) {
    const chosen = /** @type {HTMLElement} */ (one).dataset.view === name;
    if (chosen) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  const main = h("main", { id: "main", tabindex: "-1", "data-view": name });
  find("#main").replaceWith(main);
  try {
    /** @type {View} */
    const view = domain?.view ?? (await loadView(name));
    if (mine.signal.aborted) return;
    document.title = `${path.at(-1) ?? (name in VIEWS ? view.title : (domain?.nav ?? name))} · Stateward`;
    await view.show(context(main, path, query, mine.signal));
  } catch (error) {
    if (mine.signal.aborted) return;
    if (domain?.view && !(error instanceof Problem)) {
      domain.view = undefined; // the generic view stands in for it
      tellModuleError(name, error);
      return show();
    }
    fill(main, problemPanel(error));
    if (store.connection !== "live") mine.signal.addEventListener("abort", listen("connection", showOnceLive));
  }
}

/** @param {string} name @returns {Promise<View>} */
function loadView(name) {
  if (name in VIEWS) return loadModule(`../views/${name}.js`, VIEWS[name]);
  return loadModule("../views/domain.js", () => import("../views/domain.js"));
}

/** Show the view again when the server is back. */
function showOnceLive() {
  if (store.connection === "live") show();
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
    } catch (error) {
      reportBug(error, signal);
    }
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  }
}
