// The entry point: signs in, loads the domains, opens the stream, and shows the view of the address.

import { forgetSession, get, isOutage, isSignedIn, onOtherTab, Problem, session, signIn, signOut } from "./core/api.js";
import { fill, fillIfChanged, find, h, oncePerFrame, throttle } from "./core/dom.js";
import { brokenModules, domainNames, domains, loadDomains, watchModules } from "./core/domains.js";
import { keys } from "./core/keys.js";
import { code, select, wordOptions } from "./ui/components.js";
import { keepQuery, link, place } from "./core/links.js";
import { askAgain, outage } from "./core/outage.js";
import { closeView, show } from "./core/routes.js";
import { ALL, chooseNamespace, learnKinds, listen, may, mayAll, namespaces, store, tick } from "./core/store.js";
import { closeStream, openStream } from "./core/stream.js";
import { followTheme, turnTheme } from "./core/theme.js";
import { attempt, closeOutageProblem, outagePanel, outageText } from "./ui/problems.js";
import { openSearch } from "./ui/search-box.js";
import { offerTour } from "./ui/tour.js";
import { showSignIn } from "./views/signin.js";
import { numberText } from "./core/numbers.js";

const BLIP_MS = 700;

async function begin() {
  followTheme();
  if (!isSignedIn()) {
    askForToken();
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
    if (isOutage(error)) fill(find("#main"), outagePanel());
    else if (error instanceof Problem && error.fields.status === 401) {
      forgetSession();
      askForToken("The session has ended. Sign in again.");
    } else askForToken(error);
    return;
  }
  enter();
}

function enter() {
  find("#top").hidden = false;
  showDomains();
  showBrokenModules();
  for (const one of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("nav a[data-right]"))) {
    one.hidden = !mayAll() || !may(one.dataset.right ?? ""); // they concern the whole deployment
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
      h("p", null, `The console module of the plug-in ${name} is broken: `, code(text), " The console shows the generic pages instead."),
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
function askForToken(problem) {
  find("#top").hidden = true;
  showSignIn(find("#main"), problem, async (text) => {
    try {
      await signIn(text);
    } catch (error) {
      askForToken(error);
      return;
    }
    beginAgain();
  });
}

/** Begin with nothing in the page that another user has seen. */
function beginAgain() {
  if (store.seq > 0) location.reload();
  else begin();
}

/** Dialogs are about the view that was left: their links lead away, and so does the way back. */
function closeDialogs() {
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
}

/** @param {string} why */
function leave(why) {
  if (store.me === null) return;
  forgetSession();
  closeStream();
  closeView();
  closeDialogs();
  store.me = null;
  askForToken(why);
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
  fill(find("#live"), h("span", { class: `dot ${live ? "live" : "away"}` }), live ? `#${numberText(store.seq)}` : "reconnecting");
  find("#live").title = live ? "Live updates are on; the number is that of the newest journal entry" : "";
  const isAway = outage.since > 0 && Date.now() - outage.since > BLIP_MS;
  const offline = find("#offline");
  offline.hidden = !isAway && store.connection !== "away";
  const text = isAway
    ? `${outageText()}${store.me === null ? "" : " You see the last known state."}`
    : "Live updates are interrupted. The page reconnects by itself, without a gap.";
  fillIfChanged(offline, text, () => [text, " ", h("button", { onclick: askAgain }, "Retry now")]);
}

function listenToThePage() {
  openSearch();
  new ResizeObserver(oncePerFrame(fitNavigation)).observe(find("#top"));
  find("#more").addEventListener("click", placeMore);
  find("#more-domains").addEventListener("click", () => find("#more-domains").hidePopover());
  find("#theme").addEventListener("click", turnTheme);
  find("#sign-out").addEventListener("click", () =>
    attempt(async () => {
      closeStream(); // the server closes it, too, and not because the session is not valid
      await signOut().catch((error) => (openStream(), Promise.reject(error)));
      leave("You are signed out.");
    }),
  );
  find("#menu").addEventListener("click", () => openMenu(!find("#top").classList.contains("open")));
  find("#top").addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !find("#top").classList.contains("open")) return;
    openMenu(false);
    find("#menu").focus();
  });
  find(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address is that of a view
    find("#main").focus();
  });
  window.addEventListener("hashchange", () => {
    openMenu(false);
    if (!document.querySelector("dialog[open] form.entered") || window.confirm("Close the form? What was entered is lost.")) closeDialogs();
    if (store.me !== null) show();
  });
  keys();
}

/** @param {boolean} open */
function openMenu(open) {
  find("#top").classList.toggle("open", open);
  find("#menu").setAttribute("aria-expanded", String(open));
}

session.onUnknown = () => leave("You are signed out: the session has ended, or its token is no longer valid.");
onOtherTab(() => {
  if (!isSignedIn()) leave("You are signed out.");
  else if (store.me === null) beginAgain();
});
listen("counts", throttle(500, showNamespaces));
listen("connection", showConnection);
listen("outage", showConnection);
listen("back", () => {
  closeOutageProblem();
  if (store.me === null && isSignedIn()) begin();
});
listen("modules", showBrokenModules);
listen("ns", () => {
  const { query } = place();
  if (query.has("ns") && query.get("ns") !== store.ns) keepQuery({ ...Object.fromEntries(query), ns: store.ns, selected: "" });
  showNamespaces();
  if (place().name !== "object") show();
});
listen("afresh", show);
setInterval(() => {
  tick();
  showConnection();
}, 1_000);
listenToThePage();
watchModules();
begin();
