// OpenvCloud objects in their tree, and the recycle bin: what is in it, for how long still, and back out of it.

import { get, part } from "../api.js";
import { act } from "../actions.js";
import { fill, h } from "../dom.js";
import { counted, groupedBy, living, nameOf, pick } from "../living.js";
import { card, code, confirm, empty, heading, legend, meter, objectAnchor, rollUp, table } from "../parts.js";
import { readable } from "../reading.js";
import { badge } from "../states.js";
import { may } from "../store.js";
import { ago, seconds, span } from "../time.js";
import { makers } from "../wishes.js";

/** @import {Context, Thing, Timer} from "../types.js" */

const KINDS = ["ovc.account", "ovc.cloudspace", "ovc.vm", "ovc.disk", "ovc.image", "ovc.node"];
const BINNED = ["DELETED", "TOBEDELETED"];
const KEPT = 7 * 86_400;
const SOON = 86_400;

/** @type {Record<string, string>} */
const NAMES = {
  "ovc.account": "Accounts",
  "ovc.cloudspace": "Cloudspaces",
  "ovc.vm": "Machines",
  "ovc.disk": "Disks",
  "ovc.image": "Images",
  "ovc.node": "Nodes",
};

/** @param {Context} context */
async function show(context) {
  const bin = h("div", null);
  const tree = h("div", { class: "tree" });
  const sums = h("div", { class: "grid" });
  /** @type {Timer[]} */
  let timers = [];
  /** @type {Thing[]} */
  let shown = [];
  const drawBin = () => fill(bin, recycled(shown, timers, again));
  let again = () => {};
  const readTimers = async () => {
    const pages = await Promise.all(
      readable().map((ns) => get(`/ns/${part(ns)}/timers`, { limit: 1_000 }, context.signal)),
    );
    timers = pages.flat();
    drawBin();
  };
  fill(
    context.main,
    heading("OpenvCloud", "accounts, cloudspaces, machines, disks", ...makers("ovc", () => again())),
    card("Recycle bin", "what was deleted can be restored until its time is over", bin),
    sums,
    card("Objects", "by where they belong", tree),
  );
  let binned = "";
  again = await living(context, KINDS, (things) => {
    shown = things;
    drawBin();
    const now = JSON.stringify(things.filter((one) => BINNED.includes(one.state)).map((one) => one.id));
    if (now !== binned) readTimers().catch(() => {});
    binned = now;
    const kinds = groupedBy(things, (one) => one.kind);
    fill(
      sums,
      [...kinds].map(([kind, some]) =>
        card(NAMES[kind] ?? kind, `${some.length}`, rollUp(kind, counted(some)), legend(kind, counted(some))),
      ),
    );
    const known = new Set(things.map((one) => `${one.ns}/${one.id}`));
    const tops = things.filter((one) => !known.has(`${one.ns}/${one.parent}`));
    fill(
      tree,
      things.length
        ? branch(
            tops,
            groupedBy(things, (one) => `${one.ns}/${one.parent}`),
          )
        : empty(
            "There is nothing yet.",
            "Register a node, make an account, a cloudspace and an image with the buttons above; then a machine. Or: ",
            code("stateward ovc --help"),
          ),
    );
  });
  context.every(10, readTimers);
}

// --- the bin ---------------------------------------------------------------------------------------------------------

/** @param {Thing[]} things @param {Timer[]} timers @param {() => void} again */
function recycled(things, timers, again) {
  const found = things.filter((one) => BINNED.includes(one.state));
  if (!found.length) return empty("The bin is empty.", "What is deleted without force goes here first.");
  return table(
    "Recycle bin",
    ["object", "state", "deleted", "time left", "", ""],
    found.map((one) => {
      const with_ = goesWith(one, found);
      const timer = timers.find((other) => other.ns === one.ns && other.object === one.id);
      const left = timer ? seconds(timer.due) - Date.now() / 1000 : null;
      return [
        h(
          "span",
          { class: "fine" },
          objectAnchor(one.ns, one.id, nameOf(one)),
          h("span", { class: "quiet" }, what(one)),
        ),
        badge(one.state, one.state_class),
        ago(one.since),
        with_ ? `as long as ${nameOf(with_)}` : timeLeft(left, timer),
        left === null ? "" : timeBar(left, kept(one, things), one.id),
        may("act") && !with_ ? ways(one, again) : "",
      ];
    }),
  );
}

/** What went down with another comes back, or goes for good, with it. @param {Thing} one @param {Thing[]} found */
function goesWith(one, found) {
  const along = pick(one.seen, ["bin.along"]);
  return found.find((other) => other.ns === one.ns && other.id === along) ?? null;
}

/** @param {Thing} one */
function what(one) {
  return one.kind.replace("ovc.", "").replace("vm", "machine");
}

/** @param {number | null} left @param {Timer | undefined} timer */
function timeLeft(left, timer) {
  if (left === null) return "until somebody destroys it";
  return left > 0 ? `${span(left)}, then ${timer?.event}` : "over";
}

/** @param {Thing} one @param {Thing[]} things @returns {number} for how many seconds its account keeps what is deleted */
function kept(one, things) {
  const account = pick(one.spec, ["account"]);
  const found = things.find((other) => other.ns === one.ns && other.id === account);
  return Number(pick(found?.spec, ["retention"]) ?? KEPT) || KEPT;
}

/** @param {number} left @param {number} whole @param {string} id */
function timeBar(left, whole, id) {
  return meter(Math.max(0, left), Math.max(whole, left), `Time left for ${id}`, left < SOON ? "leaving" : "good");
}

/** @param {Thing} one @param {() => void} again */
function ways(one, again) {
  return h(
    "span",
    { class: "row" },
    h("button", { onclick: () => act(one, "restore", [], [], again) }, "Restore"),
    h("button", { class: "danger", onclick: () => destroy(one, again) }, "Destroy"),
  );
}

/** @param {Thing} one @param {() => void} again */
async function destroy(one, again) {
  if (await confirm(`Destroy ${nameOf(one)} for good?`, "Destroy")) await act(one, "destroy", [], [], again);
}

// --- the tree --------------------------------------------------------------------------------------------------------

/** @param {Thing[]} some @param {Map<string, Thing[]>} below @returns {HTMLElement} */
function branch(some, below) {
  return h(
    "ul",
    null,
    [...some].sort(byName).map((one) => {
      const mine = below.get(`${one.ns}/${one.id}`) ?? [];
      return h(
        "li",
        null,
        h(
          "div",
          null,
          objectAnchor(one.ns, one.id, nameOf(one)),
          badge(one.state, one.state_class),
          h("span", { class: "quiet" }, [what(one), ...details(one)].join(" · ")),
          one.error ? h("span", { class: "error-text" }, one.error) : null,
        ),
        mine.length ? branch(mine, below) : null,
      );
    }),
  );
}

/** @param {Thing} one @param {Thing} other */
function byName(one, other) {
  const kinds = KINDS.indexOf(one.kind) - KINDS.indexOf(other.kind);
  return kinds || nameOf(one).localeCompare(nameOf(other), undefined, { numeric: true });
}

/** @param {Thing} one @returns {string[]} */
function details(one) {
  const size = pick(one.spec, ["size"]);
  const gib = pick(one.spec, ["gib"]);
  const node = pick(one.seen, ["node"]);
  const driver = one.kind === "ovc.node" ? pick(one.spec, ["driver"]) : null;
  return [typeof size === "string" ? size : "", gib ? `${gib} GiB` : "", node ? `on ${node}` : "", driver ?? ""].filter(
    Boolean,
  );
}

export default { title: "OVC", show };
