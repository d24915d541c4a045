// The tree of locks: the paths that are held or awaited, with the paths between them.

import { h } from "../core/dom.js";

/** @import {Lock, Operation} from "../core/types.js" */
/** @typedef {Lock & {by: Operation | null}} Held */

/** @type {Record<string, string>} */
const MODES = {
  IS: "means to read below",
  IX: "means to change below",
  S: "reads",
  SIX: "reads, and changes below",
  X: "changes",
};

/** @param {string} path @returns {string[]} it, and all that lie above it */
function upward(path) {
  const parts = path.split("/").filter(Boolean);
  return ["/", ...parts.map((_, number) => `/${parts.slice(0, number + 1).join("/")}`)];
}

/**
 * @param {Held[]} locks
 * @param {(lock: Held) => HTMLElement} holder
 */
export function lockTree(locks, holder) {
  const paths = [...new Set(locks.flatMap((lock) => upward(lock.path)))].sort();
  return h(
    "ul",
    null,
    paths.map((path) => {
      const mine = locks.filter((lock) => lock.path === path);
      const deep = path.split("/").filter(Boolean).length;
      return h(
        "li",
        { style: { "padding-left": `${deep * 20}px` } },
        h("span", { class: "path" }, path === "/" ? "/" : `/${path.split("/").at(-1)}`),
        mine.map((lock) => row(lock, holder)),
      );
    }),
  );
}

/** @param {Held} lock @param {(lock: Held) => HTMLElement} holder */
function row(lock, holder) {
  return h(
    "span",
    { class: lock.waiting ? "lock waiting" : "lock" },
    h("span", { class: "mode", title: MODES[lock.mode] ?? "" }, lock.mode),
    lock.waiting ? "waits:" : "held:",
    holder(lock),
  );
}
