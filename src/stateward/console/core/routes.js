// The table of views, and the router that shows the view of the current address.

import { isOutage, Problem, reportBug } from "./api.js";
import { domainNames, domains, loadModule, tellModuleError } from "./domains.js";
import { h, fill, find } from "./dom.js";
import { place } from "./links.js";
import { beginView, outage } from "./outage.js";
import { outagePanel, problemPanel } from "../ui/problems.js";
import { listen, store } from "./store.js";
import { missingView } from "../ui/missing.js";

/** @import {Context, View} from "./types.js" */

/** @type {Record<string, () => Promise<{default: View}>>} */
const VIEWS = {
  overview: () => import("../views/overview.js"),
  objects: () => import("../views/objects.js"),
  object: () => import("../views/object.js"),
  operations: () => import("../views/operations.js"),
  operation: () => import("../views/operation.js"),
  queues: () => import("../views/queues.js"),
  lanes: () => import("../views/lanes.js"),
  workers: () => import("../views/workers.js"),
  timers: () => import("../views/timers.js"),
  journal: () => import("../views/journal.js"),
  access: () => import("../views/access.js"),
};

/** @returns {string[]} the names of all views */
export const viewNames = () => [...Object.keys(VIEWS), ...domainNames()];

/** @type {AbortController} */
let current = new AbortController();

/** Stop whatever the current view does. */
export const closeView = () => current.abort();

/** Show the view that the address names. */
export async function show() {
  current.abort();
  beginView();
  const mine = (current = new AbortController());
  const { path, query, ...address } = place();
  const name = address.name;
  const domain = domains.get(name);
  for (const one of document.querySelectorAll("nav a[data-view]")) {
    const chosen = /** @type {HTMLElement} */ (one).dataset.view === name;
    if (chosen) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  const main = h("main", { id: "main", tabindex: "-1", "data-view": name });
  const hadFocus = find("#main").contains(document.activeElement);
  find("#main").replaceWith(main);
  if (hadFocus) main.focus({ preventScroll: true }); // Tab goes on from here, and a reader begins here
  if (!viewNames().includes(name)) {
    document.title = "Page not found · Stateward";
    fill(main, missingView(name, viewNames().filter((one) => one !== "object" && one !== "operation")));
    return;
  }
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
    if (isOutage(error)) main.prepend(outagePanel());
    else fill(main, problemPanel(error));
  }
}

/** Show a view again that has missed something while the server was away. @param {boolean} hasMissed */
async function showMissed(hasMissed) {
  if (!hasMissed || store.me === null) return;
  const { offsetHeight } = find("#main");
  const shown = show();
  const main = find("#main");
  main.style.minHeight = `${offsetHeight}px`; // so that the page does not scroll away
  await shown;
  main.style.minHeight = "";
}

listen("back", showMissed);

/** @param {string} name @returns {Promise<View>} */
function loadView(name) {
  if (name in VIEWS) return loadModule(`../views/${name}.js`, VIEWS[name]);
  return loadModule("../views/domain.js", () => import("../views/domain.js"));
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
      if (!document.hidden && !outage.since) await act();
    } catch (error) {
      reportBug(error, signal);
    }
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  }
}
