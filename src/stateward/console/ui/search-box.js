// The search of the page: suggestions while somebody types, by type, with the matched part marked.
//
// The server searches (`/search`); the next text aborts the search for the one before. Enter on a suggestion opens it, and
// Enter without one lists the objects whose id has the text.

import { get, reportBug } from "../core/api.js";
import { fill, find, h } from "../core/dom.js";
import { go, link, objectLink } from "../core/links.js";
import { ALL, classOf, store } from "../core/store.js";
import { badge } from "./states.js";
import { shortenIds } from "./components.js";

/** @typedef {{type: string, text: string, matched: string, ns: string, id: string, kind: string, state: string}} Suggestion */

const WAIT_MS = 120;
/** @type {Record<string, string>} */
const HEADINGS = {
  object: "Objects",
  operation: "Operations",
  kind: "Kinds",
  state: "States",
  namespace: "Namespaces",
  label: "Labels",
};

/** The address of a suggestion. @param {Suggestion} one */
function addressOf(one) {
  switch (one.type) {
    case "object":
      return objectLink(one.ns, one.id);
    case "operation":
      return link("operation", [one.ns, one.id]);
    case "namespace":
      return link("objects", [], { ns: one.ns });
    case "label":
      return link("objects", [], { label: one.text });
    default:
      return link("objects", [], { kind: one.kind, state: one.state });
  }
}

/** A text with the matched part marked. @param {Suggestion} one */
function marked({ text, matched }) {
  const at = text.indexOf(matched);
  return h("span", { class: "text" }, text.slice(0, at), h("mark", null, matched), shortenIds(text.slice(at + matched.length)));
}

/** What else tells the suggestion from others. @param {Suggestion} one */
function about(one) {
  if (one.type === "object") return [one.text === one.id ? one.kind : one.id, badge(one.state, classOf(one.kind, one.state)), one.ns];
  if (one.type === "operation") return [one.state, one.ns];
  return [one.type === "state" ? one.kind : ""];
}

/** Make the search box of the page work. */
export function openSearch() {
  const form = find("#search");
  const input = /** @type {HTMLInputElement} */ (find("#search input"));
  const list = find("#suggestions");
  /** @type {Suggestion[]} */
  let found = [];
  let chosen = -1;
  let current = new AbortController();
  let timer = 0;

  const close = () => {
    current.abort();
    clearTimeout(timer);
    [found, chosen] = [[], -1];
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const open = (/** @type {string} */ where) => {
    close();
    input.value = "";
    input.blur();
    go(where);
  };
  const choose = (/** @type {number} */ number) => {
    chosen = number;
    for (const [at, one] of [...list.querySelectorAll("[role=option]")].entries()) {
      one.setAttribute("aria-selected", String(at === chosen));
      if (at === chosen) one.scrollIntoView({ block: "nearest" });
    }
    if (chosen < 0) input.removeAttribute("aria-activedescendant");
    else input.setAttribute("aria-activedescendant", `suggestion-${chosen}`);
  };
  const option = (/** @type {Suggestion} */ one, /** @type {number} */ number) => {
    const place = { id: `suggestion-${number}`, role: "option", "aria-selected": "false", class: "suggestion" };
    // The click would come after the field has lost the focus, which closes the list.
    const onmousedown = (/** @type {Event} */ event) => (event.preventDefault(), open(addressOf(one)));
    return h("div", { ...place, onmousedown }, marked(one), about(one).map((text) => h("span", { class: "quiet" }, text)));
  };
  const show = (/** @type {string} */ text) => {
    const types = Object.keys(HEADINGS).filter((type) => found.some((one) => one.type === type));
    const group = (/** @type {string} */ type) =>
      h(
        "div",
        { role: "group", "aria-labelledby": `suggestions-${type}` },
        h("div", { id: `suggestions-${type}`, class: "type", role: "presentation" }, HEADINGS[type]),
        found.map((one, number) => (one.type === type ? option(one, number) : null)),
      );
    fill(list, found.length ? types.map(group) : h("div", { class: "none", role: "presentation" }, `No matches for “${text}”.`));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
  };
  const search = async () => {
    const text = input.value.trim();
    if (!text) return close();
    current.abort();
    const { signal } = (current = new AbortController());
    try {
      const next = await get("/search", { q: text.slice(0, 250), ns: store.ns === ALL ? null : store.ns }, signal);
      const former = found[chosen]; // somebody may have chosen among the former ones
      found = next;
      show(text);
      choose(former ? found.findIndex((one) => addressOf(one) === addressOf(former)) : -1);
    } catch (error) {
      reportBug(error, signal);
    }
  };

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, WAIT_MS);
  });
  input.addEventListener("focus", () => void search());
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const step = /** @type {Record<string, number>} */ ({ ArrowDown: 1, ArrowUp: -1 })[event.key];
    const places = found.length + 1; // the field itself is one of them
    if (step && found.length) choose(((chosen + 1 + step + places) % places) - 1);
    else if (event.key === "Escape" && !list.hidden) close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const one = found[chosen];
    open(one ? addressOf(one) : link("objects", [], { q: input.value.trim() }));
  });
}
