// The client of the HTTP API. Every error is a Problem with the fields that the server sent.

/** @import {ProblemFields} from "./types.js" */

const BASE = "/api/v1";
const STORAGE_KEY = "stateward-token";

/** The paths of the domains' own APIs, which are not all below ours. */
const DOMAIN_API = /^\/(api\/|tumblebug\/|ns\/[^/]+\/blazar\/)/;

/** Why a request was not done. */
export class Problem extends Error {
  /** @param {ProblemFields} fields */
  constructor(fields) {
    super(fields.detail);
    this.fields = fields;
  }
}

/** Report what went wrong in the page itself. When the server is away or refuses, a view stays as it is.
 * @param {unknown} error @param {AbortSignal} signal */
export function reportBug(error, signal) {
  if (!(error instanceof Problem) && !signal.aborted) reportError(error);
}

const SILENT = { title: "No answer", status: 0, code: "no_answer", detail: "the server does not answer", retry: true };

/** @type {{onUnknown: () => void}} What happens when the server does not know the token (any more). */
export const session = { onUnknown: () => {} };

/** @returns {string | null} the token, which this tab keeps and no other */
export function token() {
  return sessionStorage.getItem(STORAGE_KEY);
}

/** @param {string | null} text */
export function keepToken(text) {
  if (text === null) sessionStorage.removeItem(STORAGE_KEY);
  else sessionStorage.setItem(STORAGE_KEY, text);
}

/** @typedef {Record<string, string | number | string[] | null | undefined>} Query */

/** @param {string} path @param {Query} [query] */
export function address(path, query = {}) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") words.append(name, String(one));
    }
  }
  const text = words.toString();
  return (DOMAIN_API.test(path) ? path : BASE + path) + (text ? `?${text}` : "");
}

/** @param {string} where @param {RequestInit} how @returns {Promise<Response>} */
async function call(where, how) {
  const headers = { Authorization: `Bearer ${token() ?? ""}`, ...how.headers };
  let answer;
  try {
    answer = await fetch(where, { ...how, headers });
  } catch (error) {
    if (how.signal?.aborted) throw error;
    throw new Problem(SILENT);
  }
  if (!answer.ok) throw new Problem(await fieldsOf(answer));
  return answer;
}

/** @param {Response} answer @returns {Promise<ProblemFields>} */
async function fieldsOf(answer) {
  if (answer.status === 401) session.onUnknown();
  try {
    const found = await answer.json();
    const { status = answer.status, title = answer.statusText, detail = found.message ?? "" } = found;
    return { ...found, status, title, detail };
  } catch {
    return { title: answer.statusText, status: answer.status, code: "unreadable", detail: "the answer is not a problem document" };
  }
}

/**
 * @param {string} path
 * @param {Query} [query]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function get(path, query, signal) {
  return (await call(address(path, query), { signal })).json();
}

/** @param {string} path @param {AbortSignal} [signal] @returns {Promise<string>} */
export async function text(path, signal) {
  return (await call(address(path), { signal })).text();
}

/** @param {string} method @param {string} path @param {any} [body] @returns {Promise<any>} */
export async function send(method, path, body) {
  const how = body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  return (await call(address(path), { method, ...how })).json();
}

/**
 * Read an answer line by line while it comes in.
 * @param {string} path
 * @param {Query} query
 * @param {string} accept
 * @param {AbortSignal | undefined} signal
 * @returns {AsyncGenerator<string>}
 */
export async function* lines(path, query, accept, signal) {
  const answer = await call(address(path, query), { signal, headers: { Accept: accept } });
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (reader) {
    const { done, value } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop() ?? "";
    yield* parts;
  }
  if (rest) yield rest;
}

/**
 * Follow an operation: its lines of progress, and in the end itself.
 * @param {string} ns
 * @param {string} op
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<{event: string, data: any}>}
 */
export async function* follow(ns, op, signal) {
  let event = "";
  for await (const raw of lines(`/ns/${part(ns)}/operations/${part(op)}/events`, {}, "text/event-stream", signal)) {
    const line = raw.trimEnd();
    if (line.startsWith("event:")) event = line.slice(6).trim();
    if (line.startsWith("data:")) yield { event, data: JSON.parse(line.slice(5)) };
  }
}

/** @param {string} name a segment of a path, with any characters */
export const part = (name) => encodeURIComponent(name);

/** @param {{ns: string, id: string}} thing @returns {string} the path of an object */
export const objectPath = ({ ns, id }) => `/ns/${part(ns)}/objects/${part(id)}`;
