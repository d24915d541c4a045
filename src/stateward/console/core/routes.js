// The table of views, and the router that shows the view of the current address.

import { domains, loadModule } from "./domains.js";
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
  const name = address.name in VIEWS || domains.has(address.name) ? address.name : "overview";
  for (const one of document.querySelectorAll("nav a[data-view]")) {
    const chosen = /** @type {HTMLElement} */ (one).dataset.view === name;
    if (chosen) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  const main = h("main", { id: "main", tabindex: "-1", "data-view": name });
  find("#main").replaceWith(main);
  try {
    /** @type {View} */
    const view = domains.get(name)?.view ?? (await loadModule(`../views/${name}.js`, VIEWS[name]));
    if (mine.signal.aborted) return;
    document.title = `${path.at(-1) ?? view.title} · Stateward`;
    await view.show(context(main, path, query, mine.signal));
  } catch (error) {
    if (mine.signal.aborted) return;
    fill(main, problemPanel(error));
    if (store.connection !== "live") mine.signal.addEventListener("abort", listen("connection", showOnceLive));
  }
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
    } catch {
      // the server is away or refuses: the view stays as it is until the stream is back
    }
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  }
}
