// The entry point: signs in, loads the domains, opens the stream, and shows the view of the address.

import { get, keepToken, session, token } from "./core/api.js";
import { fill, find, h, oncePerFrame, throttle } from "./core/dom.js";
import { brokenModules, domainNames, domains, loadDomains, watchModules } from "./core/domains.js";
import { keys } from "./core/keys.js";
import { code, select, wordOptions } from "./ui/components.js";
import { go, link, place } from "./core/links.js";
import { show } from "./core/routes.js";
import { ALL, chooseNamespace, learnKinds, listen, may, namespaces, store, tick } from "./core/store.js";
import { closeStream, openStream } from "./core/stream.js";
import { followTheme, turnTheme } from "./core/theme.js";
import { offerTour } from "./ui/tour.js";
import { showSignIn } from "./views/signin.js";

async function begin() {
  followTheme();
  if (token() === null) {
    signIn();
    return;
  }
  try {
    // During an upgrade, an older server may answer, which has no list of plug-ins.
    const read = [get("/me"), get("/kinds"), get("/namespaces"), get("/plugins").catch(() => []), loadDomains()];
    const [me, kinds, counts, plugins] = await Promise.all(read);
    Object.assign(store, { me, plugins });
    learnKinds(kinds);
    store.counts = Object.fromEntries(counts.map((/** @type {any} */ one) => [one.ns, one.counts]));
  } catch (error) {
    signIn(error);
    return;
  }
  enter();
}

function enter() {
  find("#top").hidden = false;
  showDomains();
  showBrokenModules();
  for (const one of document.querySelectorAll("nav a[data-right]")) {
    /** @type {HTMLElement} */ (one).hidden = !may(/** @type {HTMLElement} */ (one).dataset.right ?? "");
  }
  store.ns = firstNamespace();
  showNamespaces();
  openStream();
  show();
  offerTour();
}

/** The entries of the domains in the navigation. */
function showDomains() {
  const entries = domainNames().map((name) =>
    h("a", { "data-view": name, "data-domain": true, href: link(name) }, domains.get(name)?.nav ?? name),
  );
  for (const old of document.querySelectorAll("nav a[data-domain]")) old.remove();
  find("#more").before(...entries);
}

/** Keep the entries of domains in one line: those that do not fit are behind "More". */
function fitNavigation() {
  const [nav, more, rest] = [find("#nav"), find("#more"), find("#more-domains")];
  more.before(...rest.children);
  more.hidden = true;
  const entries = [...document.querySelectorAll("#nav > a[data-domain]")];
  while (nav.scrollWidth > nav.clientWidth && entries.length) {
    more.hidden = false;
    rest.prepend(/** @type {Element} */ (entries.pop()));
  }
}

/** Below its button. */
function placeMore() {
  const { left, bottom } = find("#more").getBoundingClientRect();
  Object.assign(find("#more-domains").style, { left: `${left}px`, top: `${bottom}px` });
}

/** What is wrong with plug-ins and their modules. */
function showBrokenModules() {
  const place = find("#modules");
  const faults = store.plugins.filter((one) => one.error);
  const close = h("button", { onclick: () => (place.hidden = true), "aria-label": "Hide" }, "✕");
  const lines = [
    ...faults.map((one) => h("p", null, `The plug-in ${one.name} is not loaded: `, code(one.error ?? ""))),
    ...[...brokenModules].map(([name, text]) =>
      h("p", null, `The console module of the plug-in ${name} is broken: `, code(text), " The generic pages stand in for it."),
    ),
  ];
  place.hidden = lines.length === 0;
  fill(place, h("div", null, lines), close);
}

function firstNamespace() {
  const kept = sessionStorage.getItem("stateward-ns");
  return kept !== null && (kept === ALL || namespaces().includes(kept)) ? kept : ALL;
}

/** @param {unknown} [problem] */
function signIn(problem) {
  find("#top").hidden = true;
  showSignIn(find("#main"), problem, (text) => {
    keepToken(text);
    begin();
  });
}

function signOut() {
  keepToken(null);
  closeStream();
  location.reload();
}

let shown = "";

/** The choice of namespaces, made anew only when there are others. */
function showNamespaces() {
  const names = namespaces();
  const text = JSON.stringify([names, store.ns]);
  if (text === shown) return;
  shown = text;
  fill(find("#ns"), select([[ALL, "all namespaces"], ...wordOptions(...names)], store.ns, chooseNamespace, "Namespace"));
}

function showConnection() {
  const live = store.connection === "live";
  const text = live ? "live" : "away";
  fill(find("#live"), h("span", { class: `dot ${text}` }), live ? `#${store.seq.toLocaleString()}` : "reconnecting");
  find("#live").title = live ? "The stream is open; this is the number of the last journal entry seen" : "";
  const offline = find("#offline");
  offline.hidden = live || store.connection === "out";
  fill(offline, "The server does not answer. The page shows the last known state, and continues by itself, without a gap.");
}

function listenToThePage() {
  find("#search").addEventListener("submit", (event) => {
    event.preventDefault();
    const input = /** @type {HTMLInputElement} */ (find("#search input"));
    go(link("objects", [], { q: input.value.trim() }));
    input.blur();
  });
  new ResizeObserver(oncePerFrame(fitNavigation)).observe(find("#top"));
  find("#more").addEventListener("click", placeMore);
  find("#more-domains").addEventListener("click", () => find("#more-domains").hidePopover());
  find("#theme").addEventListener("click", turnTheme);
  find("#sign-out").addEventListener("click", signOut);
  find("#menu").addEventListener("click", () => openMenu(!find("#top").classList.contains("open")));
  window.addEventListener("hashchange", () => {
    openMenu(false);
    if (store.me !== null) show();
  });
  keys();
}

/** @param {boolean} open */
function openMenu(open) {
  find("#top").classList.toggle("open", open);
  find("#menu").setAttribute("aria-expanded", String(open));
}

session.onUnknown = () => {
  if (store.me === null) return;
  keepToken(null);
  closeStream();
  store.me = null;
  signIn("The token is not valid any more.");
};
listen("counts", throttle(500, showNamespaces));
listen("connection", showConnection);
listen("modules", showBrokenModules);
listen("ns", () => {
  showNamespaces();
  if (place().name !== "object") show();
});
listen("afresh", show);
setInterval(() => {
  tick();
  if (store.connection === "live") showConnection();
}, 1_000);
listenToThePage();
watchModules();
begin();
