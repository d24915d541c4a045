// Addresses of views: every view has a link of its own, behind `#`. The table of views is in routes.js.

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
  return { name: name || "overview", path: rest, query: new URLSearchParams(words) };
}

/** Change the query of the address without showing the view anew. @param {Record<string, string>} query */
export function keepQuery(query) {
  const { name, path } = place();
  history.replaceState(null, "", link(name, path, query));
}

/** Change the query of the address without showing the view anew; the way back leads to the one before. @param {Record<string, string>} query */
export function pushQuery(query) {
  const { name, path } = place();
  const where = link(name, path, query);
  if (where !== location.hash) history.pushState(null, "", where);
}
