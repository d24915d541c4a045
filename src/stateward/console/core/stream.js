// The stream: one WebSocket for the page. It reconnects by itself, from the last sequence number that it saw.

import { session, token } from "./api.js";
import { connected, store, takeEntries, takeSnapshot } from "./store.js";

const CLOSE_UNAUTHORIZED = 4401;
const RECONNECT_MIN_MS = 250;
const RECONNECT_MAX_MS = 5_000;
const SILENCE_MS = 45_000;

/** @type {WebSocket | null} */
let socket = null;
let pause = RECONNECT_MIN_MS;
let wanted = false;
let retry = 0;
let watchdog = 0;

/** Open the stream, and keep it open. */
export function openStream() {
  wanted = true;
  clearTimeout(retry);
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const mine = (socket = new WebSocket(`${scheme}://${location.host}/api/v1/stream`));
  mine.onopen = () => mine.send(JSON.stringify(firstMessage()));
  mine.onmessage = (event) => onMessage(mine, JSON.parse(event.data));
  mine.onclose = (event) => closed(mine, event.code);
}

/** Close the stream for good. */
export function closeStream() {
  wanted = false;
  clearTimeout(retry);
  clearTimeout(watchdog);
  socket?.close();
  socket = null;
  connected("out");
}

function firstMessage() {
  return store.seq > 0 ? { token: token(), after: store.seq } : { token: token() };
}

/** @param {WebSocket} mine @param {any} message */
function onMessage(mine, message) {
  if (mine !== socket) return;
  clearTimeout(watchdog);
  watchdog = window.setTimeout(() => mine.close(), SILENCE_MS);
  pause = RECONNECT_MIN_MS;
  if (message.snapshot) takeSnapshot(message.snapshot);
  else takeEntries(message.lines, message.seq);
  connected("live");
}

/** @param {WebSocket} mine @param {number} code */
function closed(mine, code) {
  if (mine !== socket || !wanted) return;
  if (code === CLOSE_UNAUTHORIZED) {
    session.onUnknown();
    return;
  }
  connected("away");
  retry = window.setTimeout(openStream, pause * (0.75 + Math.random() / 2));
  pause = Math.min(pause * 2, RECONNECT_MAX_MS);
}

window.addEventListener("online", () => {
  if (wanted && store.connection !== "live") openStream();
});
