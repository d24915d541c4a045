// The client of the HTTP API. Every error is a Problem with the fields that the server sent.

/** @import {Call, Preview, ProblemFields} from "./types.js" */

const BASE = "/api/v1";
const STORAGE_KEY = "stateward-signed-in";
const PATIENCE_MS = 30_000;

/** The header of our own requests: a page of another origin cannot set it. */
const OWN = { "X-Stateward-Request": "1" };

/** The paths of the domains' own APIs, which are not all below ours. */
const DOMAIN_API = /^\/(api\/|tumblebug\/|ns\/[^/]+\/blazar\/)/;

/** Why a request was not done. */
export class Problem extends Error {
  /** @param {ProblemFields} fields */
  constructor(fields) {
    super(fields.detail);
    this.fields = fields;
    /** Whether a view has only wanted to read. */
    this.isLoad = false;
  }
}

/** Whether a status says that there is no server, or no database behind it. @param {number} status */
export const isUnavailable = (status) => [502, 503, 504].includes(status);

/** Why there is no useful answer. @param {number} status 0 if there is none at all */
export const whyAway = (status) => (status === 503 ? "the server cannot use its database" : "the server does not answer");

/** Whether something was not done because the server is away; it may succeed later. @param {unknown} error */
export function isOutage(error) {
  return error instanceof Problem && (error.fields.code === SILENT.code || isUnavailable(error.fields.status));
}

/** Report what went wrong in the page itself. When the server is away or refuses, a view stays as it is.
 * @param {unknown} error @param {AbortSignal} signal */
export function reportBug(error, signal) {
  if (!(error instanceof Problem) && !signal.aborted) reportError(error);
}

/** @type {ProblemFields} */
const SILENT = { title: "No answer", status: 0, code: "no_answer", detail: "the server does not answer", retry: true };

/** @type {ProblemFields} */
const UNREADABLE = { title: "Unreadable answer", status: 0, code: "unreadable", detail: "the response is not that of a Stateward server" };

/**
 * What happens when the server does not know the session (any more), and when it does not answer.
 * @type {{onUnknown: () => void, onSilence: (why: string, isLoad: boolean) => void}}
 */
export const session = { onUnknown: () => {}, onSilence: () => {} };

// The session is a cookie that no script can read. All tabs share a mark that there is one, so that a page knows whether
// to ask, and learns that another tab has signed out.

/** @returns {boolean} whether somebody has signed in with this browser */
export const isSignedIn = () => localStorage.getItem(STORAGE_KEY) !== null;

/** @param {string} token */
export async function signIn(token) {
  await send("POST", "/session", { token });
  localStorage.setItem(STORAGE_KEY, "yes");
}

/** End the session in all tabs. */
export async function signOut() {
  await send("DELETE", "/session");
  forgetSession();
}

/** The session is over. */
export const forgetSession = () => localStorage.removeItem(STORAGE_KEY);

/** Call a function when another tab signs in or out. @param {() => void} act */
export function onOtherTab(act) {
  window.addEventListener("storage", (event) => {
    if (event.key === STORAGE_KEY || event.key === null) act();
  });
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

/**
 * @template T
 * @param {string} where @param {RequestInit} how @param {(answer: Response) => Promise<T>} read
 * @returns {Promise<T>}
 */
async function call(where, how, read) {
  let fields = SILENT;
  try {
    const answer = await fetch(where, { ...how, headers: { ...OWN, ...how.headers } });
    if (answer.ok) return await read(answer);
    fields = await fieldsOf(answer);
  } catch (error) {
    if (how.signal?.aborted && how.signal.reason?.name !== "TimeoutError") throw error;
    if (error instanceof SyntaxError) fields = UNREADABLE;
  }
  throw failed(fields, how.method === undefined);
}

/** @param {ProblemFields} fields @param {boolean} isLoad */
function failed(fields, isLoad) {
  const problem = new Problem(fields);
  problem.isLoad = isLoad;
  if (isOutage(problem)) session.onSilence(whyAway(fields.status), isLoad);
  return problem;
}

/** Raise a problem if the server does not answer. @param {string} where any file of the page */
export async function reach(where) {
  await call(where, { cache: "no-store" }, async () => {});
}

/** @param {Response} answer @returns {Promise<ProblemFields>} */
async function fieldsOf(answer) {
  if (answer.status === 401) session.onUnknown();
  try {
    const found = await answer.json();
    const { status = answer.status, title = answer.statusText, detail = found.message ?? "" } = found;
    return { ...found, status, title, detail };
  } catch {
    if (isUnavailable(answer.status)) return { ...SILENT, detail: `the server does not answer (${answer.status} ${answer.statusText})` };
    return { ...UNREADABLE, title: answer.statusText, status: answer.status };
  }
}

/**
 * @param {string} path
 * @param {Query} [query]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function get(path, query, signal) {
  const timeout = AbortSignal.timeout(PATIENCE_MS);
  return call(address(path, query), { signal: signal ? AbortSignal.any([signal, timeout]) : timeout }, (answer) => answer.json());
}

/** @param {string} path @param {AbortSignal} [signal] @returns {Promise<string>} */
export async function text(path, signal) {
  return call(address(path), { signal }, (answer) => answer.text());
}

/** @param {string} method @param {string} path @param {any} [body] @param {Record<string, string>} [headers] @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function send(method, path, body, headers = {}, signal) {
  const how =
    body === undefined
      ? { headers }
      : { body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...headers } };
  return call(address(path), { method, signal, ...how }, async (answer) => (answer.status === 204 ? null : answer.json()));
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
  const answer = await call(address(path, query), { signal, headers: { Accept: accept } }, async (found) => found);
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (reader) {
    const { done, value } = await reader.read().catch((/** @type {unknown} */ error) => {
      throw signal?.aborted ? error : failed(SILENT, true); // the server went away amid its answer
    });
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

/** What a call of a domain's own API would do; nothing is written. @param {Call} call @returns {Promise<{dry_run: any[], preview: Preview}>} */
export const dryRun = ([method, path, body]) => send(method, path, body, { "X-Stateward-Dry-Run": "1" });
