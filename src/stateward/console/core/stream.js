// The stream: one WebSocket for the whole page. It comes back by itself, with the number that it saw last.

import { session, token } from "./api.js";
import { connected, store, takeLines, takeSnapshot } from "./store.js";

const NOT_KNOWN = 4401;
const SHORTEST = 250;
const LONGEST = 5_000;
const SILENCE = 45_000;

/** @type {WebSocket | null} */
let socket = null;
let pause = SHORTEST;
let wanted = false;
let retry = 0;
let watchdog = 0;

/** Open the stream, and keep it open. */
export function openStream() {
  wanted = true;
  clearTimeout(retry);
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const mine = (socket = new WebSocket(`${scheme}://${location.host}/api/v1/stream`));
  mine.onopen = () => mine.send(JSON.stringify(firstWord()));
  mine.onmessage = (message) => heard(mine, JSON.parse(message.data));
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

function firstWord() {
  return store.seq > 0 ? { token: token(), after: store.seq } : { token: token() };
}

/** @param {WebSocket} mine @param {any} word */
function heard(mine, word) {
  if (mine !== socket) return;
  clearTimeout(watchdog);
  watchdog = window.setTimeout(() => mine.close(), SILENCE);
  pause = SHORTEST;
  if (word.snapshot) takeSnapshot(word.snapshot);
  else takeLines(word.lines, word.seq);
  connected("live");
}

/** @param {WebSocket} mine @param {number} code */
function closed(mine, code) {
  if (mine !== socket || !wanted) return;
  if (code === NOT_KNOWN) {
    session.onUnknown();
    return;
  }
  connected("away");
  retry = window.setTimeout(openStream, pause * (0.75 + Math.random() / 2));
  pause = Math.min(pause * 2, LONGEST);
}

window.addEventListener("online", () => {
  if (wanted && store.connection !== "live") openStream();
});
