// The store of the page: the session, the kinds, the number of objects by state, and the latest journal entries.
//
// The stream updates it, and views listen to topics:
//   session   a user has signed in or out            entries     new journal entries (an array)
//   counts    the numbers of objects have changed    connection  the stream is up or down
//   ns        another namespace was chosen           afresh      the stream restarted: read everything again
//   modules   the module of a domain is broken

/** @import {Counts, Kind, JournalEntry, Me, Plugin, StateClass} from "./types.js" */

export const ALL = "*";
const MAX_LATEST = 400;
const RATE_SECONDS = 10;

/** @typedef {"live" | "away" | "out"} Connection */

/**
 * @type {{me: Me | null, plugins: Plugin[], kinds: Map<string, Kind>, counts: Counts, latest: JournalEntry[], rates: number[], seq: number,
 *   connection: Connection, ns: string}}
 */
export const store = {
  me: null,
  plugins: [],
  kinds: new Map(),
  counts: {},
  latest: [],
  rates: new Array(RATE_SECONDS).fill(0),
  seq: 0,
  connection: "out",
  ns: ALL,
};

/** @type {Map<string, Set<(detail: any) => void>>} */
const listeners = new Map();

/**
 * @param {string} topic
 * @param {(detail: any) => void} listener
 * @returns {() => void} stops listening
 */
export function listen(topic, listener) {
  const all = listeners.get(topic) ?? new Set();
  listeners.set(topic, all.add(listener));
  return () => all.delete(listener);
}

/** @param {string} topic @param {any} [detail] */
export function notify(topic, detail) {
  for (const listener of [...(listeners.get(topic) ?? [])]) {
    try {
      listener(detail);
    } catch (error) {
      reportError(error); // the other listeners must hear of it all the same
    }
  }
}

// --- known data ------------------------------------------------------------------------------------------------------

/** @type {Map<string, Map<string, StateClass>>} */
const classes = new Map();

/** @param {Kind[]} kinds */
export function learnKinds(kinds) {
  store.kinds = new Map(kinds.map((kind) => [kind.kind, kind]));
  classes.clear();
  for (const kind of kinds) classes.set(kind.kind, new Map(kind.states.map((one) => [one.state, one.state_class])));
}

/** @param {string} kind @param {string} state @returns {StateClass | null} */
export function classOf(kind, state) {
  return classes.get(kind)?.get(state) ?? null;
}

/** @param {string} right @returns {boolean} */
export function may(right) {
  return store.me?.rights.includes(right) ?? false;
}

/** @returns {boolean} whether the token administers the whole deployment */
export const governs = () => may("govern") && mayAll();

/** @returns {boolean} whether the token is valid for all namespaces */
export function mayAll() {
  return store.me?.namespaces.includes(ALL) ?? false;
}

/** @returns {string[]} all namespaces that have objects, or that the token names; those in parentheses are the deployment's own */
export function namespaces() {
  const named = (store.me?.namespaces ?? []).filter((ns) => ns !== ALL);
  return [...new Set([...Object.keys(store.counts), ...named])].filter((ns) => !ns.startsWith("(")).sort();
}

/** @returns {string[]} the chosen namespaces */
export function chosenNamespaces() {
  return store.ns === ALL ? namespaces() : [store.ns];
}

/** @param {string} ns */
export function chooseNamespace(ns) {
  if (ns === store.ns) return;
  store.ns = ns;
  sessionStorage.setItem("stateward-ns", ns);
  notify("ns", ns);
}

/**
 * How many objects of the chosen namespaces are in which state, by kind.
 * @returns {Map<string, Map<string, number>>}
 */
export function tally() {
  /** @type {Map<string, Map<string, number>>} */
  const sums = new Map();
  for (const ns of chosenNamespaces()) {
    for (const [kind, states] of Object.entries(store.counts[ns] ?? {})) {
      const sum = sums.get(kind) ?? new Map();
      sums.set(kind, sum);
      for (const [state, count] of Object.entries(states)) {
        if (count > 0) sum.set(state, (sum.get(state) ?? 0) + count);
      }
    }
  }
  return sums;
}

/** @param {string} kind @returns {Map<string, number>} how many objects of a kind are in which state */
export function statesOf(kind) {
  return tally().get(kind) ?? new Map();
}

/** @param {string} kind @returns {number} how many objects of a kind there are */
export function countOf(kind) {
  return [...statesOf(kind).values()].reduce((sum, count) => sum + count, 0);
}

// --- new entries -----------------------------------------------------------------------------------------------------

/** @param {{seq: number, objects: Counts}} snapshot */
export function takeSnapshot(snapshot) {
  const again = store.seq > 0;
  store.seq = snapshot.seq;
  store.counts = snapshot.objects;
  notify("counts");
  if (again) notify("afresh");
}

/** @param {JournalEntry[]} entries @param {number} seq */
export function takeEntries(entries, seq) {
  const fresh = entries.filter((entry) => entry.seq > store.seq);
  store.seq = Math.max(store.seq, seq);
  if (!fresh.length) return;
  for (const entry of fresh) count(entry);
  store.latest.push(...fresh);
  if (store.latest.length > 2 * MAX_LATEST) store.latest.splice(0, store.latest.length - MAX_LATEST);
  notify("entries", fresh);
  notify("counts");
}

/** @param {JournalEntry} entry */
function count(entry) {
  if (entry.target === null || entry.source === entry.target || entry.ns.startsWith("(")) return;
  store.rates[store.rates.length - 1] = (store.rates.at(-1) ?? 0) + 1;
  const states = ((store.counts[entry.ns] ??= {})[entry.kind] ??= {});
  if (entry.source !== null && states[entry.source]) states[entry.source] = (states[entry.source] ?? 1) - 1;
  if (!isNowhere(entry.kind, entry.target)) states[entry.target] = (states[entry.target] ?? 0) + 1;
}

/** @param {string} kind @param {string} state @returns {boolean} whether an object in this state does not exist (any more) */
export function isNowhere(kind, state) {
  return state === "(gone)" || state === store.kinds.get(kind)?.initial;
}

/** Begin a new second of the rate. */
export function tick() {
  store.rates.push(0);
  store.rates.shift();
}

/** @param {Connection} connection */
export function connected(connection) {
  if (store.connection === connection) return;
  store.connection = connection;
  notify("connection", connection);
}
