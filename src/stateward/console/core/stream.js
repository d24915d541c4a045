// The stream: one WebSocket for the page. It reconnects by itself, from the last sequence number that it saw.

import { session } from "./api.js";
import { askAgain, outage } from "./outage.js";
import { connected, listen, store, takeEntries, takeSnapshot } from "./store.js";

const CLOSE_UNAUTHORIZED = 4401;
const RECONNECT_MIN_MS = 250;
const RECONNECT_MAX_MS = 5_000;
const SILENCE_MS = 35_000;
const WATCH_MS = 2_000;

/** @type {WebSocket | null} */
let socket = null;
let pause = RECONNECT_MIN_MS;
let wanted = false;
let retry = 0;
let heard = 0;

/** Open the stream, and keep it open. */
export function openStream() {
  wanted = true;
  clearTimeout(retry);
  heard = Date.now();
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
  socket?.close();
  socket = null;
  connected("out");
}

function firstMessage() {
  return store.seq > 0 ? { after: store.seq } : {};
}

/** @param {WebSocket} mine @param {any} message */
function onMessage(mine, message) {
  if (mine !== socket) return;
  heard = Date.now();
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
  if (!outage.since) askAgain();
  retry = window.setTimeout(openStream, pause * (0.75 + Math.random() / 2));
  pause = Math.min(pause * 2, RECONNECT_MAX_MS);
}

/** A connection that the computer has slept through is dead, though nobody says so: give it up, and open another one. */
function giveUpSilent() {
  if (!socket || !wanted || Date.now() - heard < SILENCE_MS) return;
  const silent = socket;
  closed(silent, 0);
  socket = null;
  silent.close();
}

setInterval(giveUpSilent, WATCH_MS);
listen("back", () => {
  if (wanted && store.connection !== "live") openStream();
});
