// Multi-cloud infrastructures: each on one page by subgroup and region, with the status string that clients read.

import { get, part } from "../api.js";
import { actionButtons } from "../actions.js";
import { placeOf } from "../cells.js";
import { fill, fillAnew, h } from "../dom.js";
import { counted, groupedBy, living, pick } from "../living.js";
import { card, code, empty, heading, legend, rollUp } from "../parts.js";
import { all } from "../reading.js";
import { objectLink } from "../router.js";
import { badge, shape, toneOf } from "../states.js";
import { tally } from "../store.js";

/** @import {Context, Thing} from "../types.js" */

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

/** @param {Context} context */
async function show(context) {
  const list = h("div", { class: "column" });
  fill(
    context.main,
    heading("Multi-cloud infrastructure", "groups of machines over providers and regions, controlled as one"),
    list,
  );
  /** @type {Map<string, HTMLElement>} */
  const buttons = new Map();
  await living(
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
          ? mcis.map((one) => mci(one, vms.get(`${one.ns}/${one.id}`) ?? [], buttons, context.signal))
          : empty(
              "There is no MCI yet.",
              "Make one over ",
              code("/tumblebug/ns/{ns}/mciDynamic"),
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
}

/** @param {AbortSignal} signal */
async function read(signal) {
  const mcis = await all({ kind: "mci.mci" }, signal, MOST);
  const vms = await Promise.all(mcis.map((one) => all({ kind: "mci.vm", parent: one.id }, signal)));
  return [...mcis, ...vms.flat()];
}

/** @param {Thing} one @param {Thing[]} vms @param {Map<string, HTMLElement>} buttons @param {AbortSignal} signal */
function mci(one, vms, buttons, signal) {
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
    h("p", { class: "status-text" }, statusText(one.state, counts, vms.length)),
    rollUp("mci.vm", counts),
    legend("mci.vm", counts),
    vms.length ? matrix(vms) : h("p", { class: "quiet" }, "It has no VMs."),
    actions,
    one.error ? h("p", { class: "error-text" }, one.error) : null,
  );
  made.dataset.mci = one.id;
  return made;
}

/** @param {Thing} one @param {HTMLElement} place @param {AbortSignal} signal */
async function showActions(one, place, signal) {
  if (place.dataset.state === one.state) return;
  place.dataset.state = one.state;
  try {
    const allowed = await get(`/ns/${part(one.ns)}/objects/${part(one.id)}/allowed`, {}, signal);
    const plain = allowed.actions.filter((/** @type {any} */ way) => way.needs.length === 0);
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
      return h("tr", null, h("th", { scope: "row" }, name), cells);
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
      title: `${one.id}: ${one.state}${address ? `, ${address}` : ""}${one.error ? `\n${one.error}` : ""}`,
    },
    shape(toneOf(one.state, one.state_class)),
    name,
    h("span", { class: "quiet" }, one.state),
  );
}

export default { title: "MCI", show };
