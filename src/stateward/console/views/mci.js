// Multi-cloud infrastructures: each on one page by subgroup and region, with the status string that clients read.

import { get, part } from "../api.js";
import { actionButtons } from "../actions.js";
import { placeOf } from "../cells.js";
import { fill, fillAnew, h } from "../dom.js";
import { counted, groupedBy, living, pick } from "../living.js";
import { ownWords } from "../own.js";
import { card, code, empty, heading, legend, rollUp } from "../parts.js";
import { all } from "../reading.js";
import { objectLink } from "../router.js";
import { badge, shape, toneOf } from "../states.js";
import { tally } from "../store.js";
import { makers } from "../wishes.js";

/** @import {Context, Possible, Thing} from "../types.js" */

/** Of states that equally many VMs have, the first dominates; the server counts in the same order. */
const ORDER = [
  "Failed",
  "Suspended",
  "Running",
  "Terminated",
  "Creating",
  "Suspending",
  "Resuming",
  "Rebooting",
  "Terminating",
  "Undefined",
];

const MOST = 100;

/** What is shown even while it is not allowed: the rest is seldom meant. */
const USUAL = ["suspend", "resume", "reboot", "terminate"];

/** @typedef {Map<string, string>} Statuses what the domain says of each MCI */

/** @param {Context} context */
async function show(context) {
  const list = h("div", { class: "column" });
  let again = () => {};
  fill(
    context.main,
    heading(
      "Multi-cloud infrastructure",
      "groups of machines over providers and regions, controlled as one",
      ...makers("mci", () => again()),
    ),
    list,
  );
  /** @type {Map<string, HTMLElement>} */
  const buttons = new Map();
  /** @type {Statuses} */
  const statuses = new Map();
  again = await living(
    context,
    ["mci.mci", "mci.vm"],
    (things) => {
      const mcis = things.filter((one) => one.kind === "mci.mci");
      const vms = groupedBy(
        things.filter((one) => one.kind === "mci.vm" && one.parent),
        (one) => `${one.ns}/${one.parent}`,
      );
      const total = [...(tally().get("mci.vm")?.values() ?? [])].reduce((sum, count) => sum + count, 0);
      const loose = total - things.filter((one) => one.kind === "mci.vm").length;
      fill(
        list,
        mcis.length
          ? mcis.map((one) => mci(one, vms.get(`${one.ns}/${one.id}`) ?? [], buttons, statuses, context.signal))
          : empty(
              "There is no MCI yet.",
              "Make one with the button above, with ",
              code("stateward mci create"),
              ", or look at the demo: ",
              code("stateward serve --demo"),
            ),
        loose > 0
          ? h(
              "p",
              { class: "quiet" },
              `${loose.toLocaleString()} more VMs belong to no MCI; they are among the `,
              h("a", { href: "#/objects?kind=mci.vm" }, "objects"),
              ".",
            )
          : null,
      );
    },
    read,
  );
  ownWords(context, "mci", readStatuses, (told) => {
    statuses.clear();
    for (const [ns, all] of told) for (const [id, text] of all) statuses.set(`${ns}/${id}`, text);
    for (const one of list.querySelectorAll("[data-mci]")) {
      const place = /** @type {HTMLElement} */ (one);
      const text = statuses.get(`${place.dataset.ns}/${place.dataset.mci}`);
      const shown = place.querySelector(".status-text");
      if (text && shown && shown.textContent !== text) shown.textContent = text;
    }
  });
}

/** @param {AbortSignal} signal */
async function read(signal) {
  const mcis = await all({ kind: "mci.mci" }, signal, MOST);
  const vms = await Promise.all(mcis.map((one) => all({ kind: "mci.vm", parent: one.id }, signal)));
  return [...mcis, ...vms.flat()];
}

/** @param {string} ns @returns {Promise<[string, string][]>} */
async function readStatuses(ns) {
  const found = await get(`/tumblebug/ns/${part(ns)}/mci`, { option: "status", vm: "none" });
  return found.mci.map((/** @type {any} */ one) => [one.id, one.status]);
}

/** @param {Thing} one @param {Thing[]} vms @param {Map<string, HTMLElement>} buttons @param {Statuses} statuses @param {AbortSignal} signal */
function mci(one, vms, buttons, statuses, signal) {
  const counts = counted(vms);
  const key = `${one.ns}/${one.id}`;
  const actions = buttons.get(key) ?? h("div", { class: "actions" });
  buttons.set(key, actions);
  showActions(one, actions, signal);
  const made = card(
    one.id,
    [
      badge(one.state, one.state_class),
      h("span", null, one.ns),
      h("a", { href: objectLink(one.ns, one.id) }, "details"),
    ],
    h("p", { class: "status-text" }, statuses.get(key) ?? statusText(one.state, counts, vms.length)),
    rollUp("mci.vm", counts),
    legend("mci.vm", counts),
    vms.length ? matrix(vms) : h("p", { class: "quiet" }, "It has no VMs."),
    actions,
    one.error ? h("p", { class: "error-text" }, one.error) : null,
  );
  made.dataset.mci = one.id;
  made.dataset.ns = one.ns;
  return made;
}

/** @param {Thing} one @param {HTMLElement} place @param {AbortSignal} signal */
async function showActions(one, place, signal) {
  if (place.dataset.state === one.state) return;
  place.dataset.state = one.state;
  try {
    const allowed = await get(`/ns/${part(one.ns)}/objects/${part(one.id)}/allowed`, {}, signal);
    const plain = allowed.actions.filter(
      (/** @type {Possible} */ way) => way.needs.length === 0 && (way.allowed || USUAL.includes(way.event)),
    );
    fillAnew(place, plain, () => actionButtons(one, plain, () => {}));
  } catch {
    delete place.dataset.state; // it has gone, or the server is away
  }
}

/**
 * The roll-up in the words of the domain, such as `Partial-Running:3 (R:3/5)`.
 * @param {string} state
 * @param {Map<string, number>} counts
 * @param {number} total
 */
export function statusText(state, counts, total) {
  if (!total) return ["Preparing", "Prepared", "Creating", "Failed"].includes(state) ? state : "Empty";
  const [most = "", count = 0] =
    [...counts].sort(([one, mine], [other, theirs]) => theirs - mine || ORDER.indexOf(one) - ORDER.indexOf(other))[0] ??
    [];
  return `${count < total ? "Partial-" : ""}${most}:${count} (R:${counts.get("Running") ?? 0}/${total})`;
}

/** @param {Thing[]} vms */
function matrix(vms) {
  const groups = groupedBy(vms, (one) => String(pick(one.spec, ["group", "subgroup", "subGroupId"]) ?? "vms"));
  const regions = [...groupedBy(vms, region).keys()].sort();
  const head = h(
    "tr",
    null,
    h("th", { scope: "col" }, "subgroup"),
    regions.map((one) => h("th", { scope: "col" }, one)),
  );
  const rows = [...groups]
    .sort(([one], [other]) => one.localeCompare(other))
    .map(([name, mine]) => {
      const cells = regions.map((where) =>
        h("td", null, h("div", { class: "vms" }, mine.filter((one) => region(one) === where).map(vm))),
      );
      const sum = h("span", { class: "sum" }, statusText("", counted(mine), mine.length));
      return h("tr", null, h("th", { scope: "row" }, h("b", null, name), sum), cells);
    });
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "VMs" },
    h("table", { class: "matrix" }, h("thead", null, head), h("tbody", null, rows)),
  );
}

/** @param {Thing} one */
function region(one) {
  return placeOf(one.spec) || String(pick(one.spec, ["connection"]) ?? "elsewhere");
}

/** @param {Thing} one */
function vm(one) {
  const name = String(pick(one.spec, ["name"]) ?? one.id);
  const address = pick(one.seen, ["public_ip"]);
  return h(
    "a",
    {
      class: "vm",
      href: objectLink(one.ns, one.id),
      title: `${one.id}: ${one.state}${one.error ? `\n${one.error}` : ""}`,
    },
    shape(toneOf(one.state, one.state_class)),
    name,
    h("span", { class: "quiet" }, one.state),
    address ? h("span", { class: "quiet address" }, address) : null,
  );
}

export default { title: "MCI", show };
