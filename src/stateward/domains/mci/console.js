// Multi-cloud infrastructures: each on one page by subgroup and region, with the status string that clients read.

import { get, part, send } from "/console/core/api.js";
import { showAllowedActions } from "/console/ui/object-actions.js";
import { placeOf } from "/console/fleet/cells.js";
import { fill, h } from "/console/core/dom.js";
import { countStates, groupBy, liveObjects, pick } from "/console/core/live-objects.js";
import { pollResource } from "/console/core/polled-resource.js";
import { card, code, empty, heading, note, quiet, stateSummary, wordOptions } from "/console/ui/components.js";
import { allObjects } from "/console/core/pagination.js";
import { objectLink } from "/console/core/links.js";
import { shape, stateBadge, toneOf } from "/console/ui/states.js";
import { tally } from "/console/core/store.js";
import { createButtons } from "/console/ui/create-buttons.js";
import { repeatedName } from "/console/ui/form.js";

/** @import {ActionForm, Context, CreateForm, Domain, ObjectView} from "/console/core/types.js" */
/** @import {Field, Options, Values} from "/console/ui/form.js" */

/** Of states that equally many VMs have, the first dominates; the server counts in the same order. */
const ORDER =
  "Failed Suspended Running Terminated Creating Suspending Resuming Rebooting Terminating Undefined".split(" ");

const MAX_MCIS = 100;

/** Actions of MCIs and of their VMs; they are shown even if they are not allowed. */
const USUAL = ["suspend", "resume", "reboot", "terminate"];

/** @typedef {Map<string, string>} Statuses the status string of each MCI */

/** @param {Context} context */
async function show(context) {
  const list = h("div", { class: "column" });
  let again = () => {};
  fill(
    context.main,
    heading(
      "Multi-cloud infrastructure",
      "groups of machines over providers and regions, controlled as one",
      ...createButtons("mci", () => again()),
    ),
    list,
  );
  /** @type {Map<string, HTMLElement>} */
  const buttons = new Map();
  /** @type {Statuses} */
  const statuses = new Map();
  again = await liveObjects(
    context,
    ["mci.mci", "mci.vm"],
    (things) => {
      const mcis = things.filter((one) => one.kind === "mci.mci");
      const vms = groupBy(
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
          ? note(
              `${loose.toLocaleString()} more VMs belong to no MCI; they are among the `,
              h("a", { href: "#/objects?kind=mci.vm" }, "objects"),
              ".",
            )
          : null,
      );
    },
    read,
  );
  pollResource(context, "mci", readStatuses, (found) => {
    statuses.clear();
    for (const [ns, all] of found) for (const [id, text] of all) statuses.set(`${ns}/${id}`, text);
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
  const mcis = await allObjects({ kind: "mci.mci" }, signal, MAX_MCIS);
  const vms = await Promise.all(mcis.map((one) => allObjects({ kind: "mci.vm", parent: one.id }, signal)));
  return [...mcis, ...vms.flat()];
}

/** @param {string} ns @returns {Promise<[string, string][]>} */
async function readStatuses(ns) {
  const found = await get(`/tumblebug/ns/${part(ns)}/mci`, { option: "status", vm: "none" });
  return found.mci.map((/** @type {any} */ one) => [one.id, one.status]);
}

/** @param {ObjectView} one @param {ObjectView[]} vms @param {Map<string, HTMLElement>} buttons @param {Statuses} statuses @param {AbortSignal} signal */
function mci(one, vms, buttons, statuses, signal) {
  const counts = countStates(vms);
  const key = `${one.ns}/${one.id}`;
  const actions = buttons.get(key) ?? h("div", { class: "actions" });
  buttons.set(key, actions);
  showAllowedActions(actions, one, signal, () => {}, USUAL);
  const made = card(
    one.id,
    [stateBadge(one), h("span", null, one.ns), h("a", { href: objectLink(one.ns, one.id) }, "details")],
    h("p", { class: "status-text" }, statuses.get(key) ?? statusText(one.state, counts, vms.length)),
    stateSummary("mci.vm", counts),
    vms.length ? matrix(vms) : note("It has no VMs."),
    actions,
    one.error ? h("p", { class: "error-text" }, one.error) : null,
  );
  made.dataset.mci = one.id;
  made.dataset.ns = one.ns;
  return made;
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

/** @param {ObjectView[]} vms */
function matrix(vms) {
  const groups = groupBy(vms, (one) => String(pick(one.spec, ["group", "subgroup", "subGroupId"]) ?? "vms"));
  const regions = [...groupBy(vms, region).keys()].sort();
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
      const sum = h("span", { class: "sum" }, statusText("", countStates(mine), mine.length));
      return h("tr", null, h("th", { scope: "row" }, h("b", null, name), sum), cells);
    });
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "VMs" },
    h("table", { class: "matrix" }, h("thead", null, head), h("tbody", null, rows)),
  );
}

/** @param {ObjectView} one */
function region(one) {
  return placeOf(one.spec) || String(pick(one.spec, ["connection"]) ?? "elsewhere");
}

/** @param {ObjectView} one */
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
    quiet(one.state),
    address ? h("span", { class: "quiet address" }, address) : null,
  );
}

// --- actions --------------------------------------------------------------------------------------------------------

/** @param {ObjectView} thing */
const mciPath = (thing) => `/tumblebug/ns/${part(thing.ns)}/mci/${part(thing.id)}`;

/** @param {string} action @returns {ActionForm} */
const onMci = (action) => ({
  call: (thing, facts) => ["POST", `${mciPath(thing)}?action=${action}${facts.includes("force") ? "&force=true" : ""}`],
});

/** @param {string} action @returns {ActionForm} */
const onVm = (action) => ({
  call: (thing, facts) => {
    const home = mciPath({ ...thing, id: thing.parent ?? "" });
    const force = facts.includes("force") ? "&force=true" : "";
    return ["POST", `${home}/vm/${part(String(pick(thing.spec, ["name"]) ?? thing.id))}?action=${action}${force}`];
  },
});

/** @param {"numVMsToAdd" | "numVMsToRemove"} way @returns {ActionForm} */
const scale = (way) => ({
  fields: async (thing) => [
    { name: "group", label: "subgroup", type: "choice", options: await subgroups(thing) },
    { name: way, label: way === "numVMsToAdd" ? "VMs to add" : "VMs to remove", type: "number", value: "1" },
  ],
  call: (thing, _, values) => ["POST", `${mciPath(thing)}/subgroup/${part(values.group ?? "")}`, { [way]: values[way] }],
});

/** @param {ObjectView} thing @returns {Promise<Options>} */
async function subgroups(thing) {
  const found = await get(`${mciPath(thing)}/subgroup`);
  return wordOptions(...found.output);
}

/** @returns {Promise<Field[]>} the fields of a subgroup */
async function groupFields() {
  const [specs, images] = await Promise.all([
    get("/tumblebug/ns/system/resources/spec"),
    get("/tumblebug/ns/system/resources/image", { option: "id" }),
  ]);
  /** @type {Options} */
  const options = specs.spec.map((/** @type {any} */ one) => [
    one.id,
    `${one.providerName}/${one.regionName} · ${one.cspSpecName} · ${one.vCPU} vCPU, ${one.memoryGiB} GiB, $${one.costPerHour}/h`,
  ]);
  return [
    { name: "group", label: "subgroup", value: "web" },
    { name: "subGroupSize", label: "VMs", type: "number", value: "2" },
    { name: "commonSpec", label: "where, and which size", type: "choice", options },
    { name: "commonImage", label: "image", type: "choice", options: wordOptions(...new Set(images.output)) },
  ];
}

/** @param {Values} values @param {number} [turn] */
function groupOf(values, turn = 1) {
  const [name, subGroupSize, commonSpec, commonImage] = ["group", "subGroupSize", "commonSpec", "commonImage"].map(
    (field) => values[repeatedName(field, turn)],
  );
  return { name, subGroupSize, commonSpec, commonImage };
}

/** @param {Values} values @returns {ReturnType<typeof groupOf>[]} all subgroups that were filled in */
function groupsOf(values) {
  const groups = [];
  for (let turn = 1; repeatedName("group", turn) in values; turn += 1) groups.push(groupOf(values, turn));
  return groups;
}

/** @type {Record<string, Record<string, ActionForm>>} */
const ACTIONS = {
  "mci.mci": {
    ...Object.fromEntries(
      [...USUAL, "refine", "reconcile", "continue", "withdraw"].map((one) => [one, onMci(one)]),
    ),
    "scale out": scale("numVMsToAdd"),
    "scale in": scale("numVMsToRemove"),
    "add subgroup": {
      fields: groupFields,
      call: (thing, _, values) => ["POST", `${mciPath(thing)}/subGroupDynamic`, groupOf(values)],
    },
    delete: {
      fields: () => [
        {
          name: "option",
          label: "its VMs",
          type: "choice",
          value: "terminate",
          options: [
            ["terminate", "are terminated first"],
            ["", "must be terminated already"],
            ["force", "are forgotten, wherever they are"],
          ],
          optional: true,
        },
      ],
      call: (thing, _, values) => ["DELETE", `${mciPath(thing)}${values.option ? `?option=${values.option}` : ""}`],
    },
  },
  "mci.vm": Object.fromEntries([...USUAL, "reconcile"].map((one) => [one, onVm(one)])),
};

// --- create forms ---------------------------------------------------------------------------------------------------

/** Create the namespace in Tumblebug's API if it does not exist. @param {string} ns */
async function ensureNamespace(ns) {
  const known = await get("/tumblebug/ns", { option: "id" });
  if (!known.output.includes(ns)) await send("POST", "/tumblebug/ns", { name: ns });
}

/** @type {CreateForm[]} */
const CREATE_FORMS = [
  {
    name: "MCI",
    fields: async () => [
      { name: "name", label: "name", hint: "shop" },
      { name: "publicKey", label: "public key of who logs in", optional: true, hint: "ssh-ed25519 AAAA..." },
      ...(await groupFields()),
    ],
    call: (ns, values) => [
      "POST",
      `/tumblebug/ns/${part(ns)}/mciDynamic`,
      { name: values.name, publicKey: values.publicKey ?? "", vm: groupsOf(values) },
    ],
    prepare: ensureNamespace,
    repeat: { label: "Another subgroup", from: "group" },
  },
];

/** @type {Domain} */
export default {
  name: "mci",
  nav: "MCI",
  hotkey: "m",
  tour: ["Machines on many clouds", "One page for each group of machines: subgroups and regions, and the status string that clients read."],
  view: { title: "MCI", show },
  actions: ACTIONS,
  extraActions: { "mci.mci": ["add subgroup"] },
  createForms: CREATE_FORMS,
};
