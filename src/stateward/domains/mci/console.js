// Multi-cloud infrastructures: each on one page by subgroup and region, with the status string that clients read.

import { get, part, send } from "/console/core/api.js";
import { showAllowedActions } from "/console/ui/object-actions.js";
import { placeOf } from "/console/fleet/cells.js";
import { countObjects, countsBy, rowsBy, totalOf } from "/console/core/counts.js";
import { fill, fillIfChanged, h } from "/console/core/dom.js";
import { countStates, groupBy, liveObjects, nameOf, pick } from "/console/core/live-objects.js";
import { keepRead } from "/console/core/live-reading.js";
import { pollResource } from "/console/core/polled-resource.js";
import { card, code, empty, errorText, heading, note, objectAnchor, quiet, stateSummary, wordOptions } from "/console/ui/components.js";
import { allObjects, Pager } from "/console/core/pagination.js";
import { go, objectLink } from "/console/core/links.js";
import { shape, stateBadge, toneOf } from "/console/ui/states.js";
import { chosenNamespaces, classOf, tally } from "/console/core/store.js";
import { VirtualTable } from "/console/ui/virtual-table.js";
import { createButtons } from "/console/ui/create-buttons.js";
import { repeatedName } from "/console/ui/form.js";
import { counted, numberText } from "/console/core/numbers.js";
import { countWords } from "/console/ui/kind-words.js";

/** @import {CountRows} from "/console/core/counts.js" */
/** @import {ActionForm, Context, CreateForm, Domain, JournalEntry, ObjectView} from "/console/core/types.js" */
/** @import {Field, Options, Values} from "/console/ui/form.js" */

/** Of states that equally many VMs have, the first dominates; the server counts in the same order. */
const ORDER =
  "Failed Suspended Running Terminated Creating Suspending Resuming Rebooting Terminating Undefined".split(" ");

const MCIS_AT_ONCE = 50;
const OPEN_MCIS = 10;
const GROUPS_AT_ONCE = 100;

/** An MCI of so many VMs shows each of them; a larger one shows numbers, and lists of VMs to unfold. */
const SMALL_MCI = 40;

/** Actions of MCIs and of their VMs; they are shown even if they are not allowed. */
const USUAL = ["suspend", "resume", "reboot", "terminate"];

/** What VMs are counted by: the labels that an MCI gives to its VMs, and their state. */
const FIELDS = ["label.subgroup", "label.provider", "label.region", "state"];
const [SUBGROUP, PROVIDER, REGION, STATE] = [0, 1, 2, 3];

/** @param {Context} context */
async function show(context) {
  const list = h("div", { class: "column" });
  const more = h("div", { class: "column" });
  const nothing = h("div", null);
  let again = () => {};
  let wanted = MCIS_AT_ONCE;
  fill(
    context.main,
    heading(
      "Multi-cloud infrastructure",
      "groups of machines over providers and regions, controlled as one",
      ...createButtons("mci", () => again()),
    ),
    nothing,
    list,
    more,
  );
  /** @type {Map<string, MciCard>} */
  const cards = new Map();
  /** @type {Map<string, string>} the status string of each MCI */
  const statuses = new Map();
  const loose = note("");
  const draw = (/** @type {ObjectView[]} */ mcis) => {
    const keys = new Set(mcis.map(keyOf));
    for (const [key, card] of cards) {
      if (keys.has(key)) continue;
      card.element.remove();
      cards.delete(key);
    }
    mcis.forEach((one, number) => {
      const card = cards.get(keyOf(one)) ?? new MciCard(one, context, number < OPEN_MCIS);
      cards.set(keyOf(one), card);
      card.update(one, statuses.get(keyOf(one)));
      if (list.children[number] !== card.element) list.insertBefore(card.element, list.children[number] ?? null);
    });
    fill(
      nothing,
      mcis.length
        ? null
        : empty(
            "No MCIs yet.",
            "Create one with the button above, or with ",
            code("stateward mci create"),
            ".",
          ),
    );
    const total = [...(tally().get("mci.mci")?.values() ?? [])].reduce((sum, count) => sum + count, 0);
    const next = () => ((wanted += MCIS_AT_ONCE), again());
    const rest = h("button", { onclick: next }, `Show more of ${numberText(total)} MCIs`);
    fill(more, total > wanted ? rest : null, loose);
  };
  again = await liveObjects(context, ["mci.mci"], draw, (signal) => allObjects({ kind: "mci.mci" }, signal, wanted));
  pollResource(context, "mci", readStatuses, (found) => {
    statuses.clear();
    for (const [ns, all] of found) for (const [id, text] of all) statuses.set(`${ns}/${id}`, text);
    for (const [key, card] of cards) card.showStatus(statuses.get(key));
  });
  keepRead(
    context,
    (entry) => entry.kind === "mci.vm",
    () => Promise.all([...cards.values()].map((card) => card.read())),
  );
  context.every(10, async () => fill(loose, ...looseVms(await countLoose(context.signal))));
}

/** @param {{ns: string, id: string}} one */
const keyOf = (one) => `${one.ns}/${one.id}`;

/** @param {string} ns @returns {Promise<[string, string][]>} */
async function readStatuses(ns) {
  const found = await get(`/tumblebug/ns/${part(ns)}/mci`, { option: "status", vm: "none" });
  return found.mci.map((/** @type {any} */ one) => [one.id, one.status]);
}

/** @param {AbortSignal} signal @returns {Promise<number>} how many VMs belong to no MCI */
async function countLoose(signal) {
  const found = await Promise.all(
    chosenNamespaces().map((ns) => countObjects(ns, ["parent"], { kind: "mci.vm" }, signal)),
  );
  return totalOf(found.flatMap((one) => rowsBy(one.rows, 0).get(null) ?? []));
}

/** @param {number} count */
function looseVms(count) {
  if (!count) return [];
  const words = count === 1 ? "1 VM belongs to no MCI; it is" : `${counted(count, "VM")} belong to no MCI; they are`;
  return [`${words} among the `, h("a", { href: "#/objects?kind=mci.vm" }, "objects"), "."];
}

/** An MCI: its status, its VMs by state, and below by subgroup and region. It stays in the page while its numbers change. */
class MciCard {
  /** @param {ObjectView} one @param {Context} context @param {boolean} open */
  constructor(one, context, open) {
    this.one = one;
    this.context = context;
    this.status = h("span", { class: "status-text" });
    this.about = h("span", { class: "about" });
    this.states = h("div", { class: "column" });
    this.vms = h("div", { class: "column" });
    this.actions = h("div", { class: "actions" });
    this.error = h("p", { class: "error-text" });
    this.groups = new GroupList(this.vms, context, one, SUBGROUP, "");
    this.fold = h(
      "details",
      { open, ontoggle: () => this.read().catch(() => {}) },
      h("summary", null, this.status),
      h("div", { class: "column" }, this.states, this.vms, this.actions, this.error),
    );
    /** @type {CountRows | null} */
    this.rows = null;
    this.hasStatus = false;
    this.element = card(one.id, [this.about], this.fold);
    Object.assign(this.element.dataset, { mci: one.id, ns: one.ns });
  }

  get open() {
    return /** @type {HTMLDetailsElement} */ (this.fold).open;
  }

  /** @param {ObjectView} one @param {string | undefined} status */
  update(one, status) {
    this.one = one;
    fillIfChanged(this.about, [one.state, one.ns], () => [
      stateBadge(one),
      ` ${one.ns} `,
      h("a", { href: objectLink(one.ns, one.id) }, "details"),
    ]);
    fill(this.error, one.error);
    this.showStatus(status);
    if (this.open) showAllowedActions(this.actions, one, this.context.signal, () => {}, USUAL);
  }

  /** @param {string | undefined} text as clients read it; without the API of the domain, it is made of the counts */
  showStatus(text) {
    const shown = text ?? (this.rows ? statusText(this.one.state, countsBy(this.rows, STATE), totalOf(this.rows)) : this.one.state);
    if (this.status.textContent !== shown) this.status.textContent = shown;
    this.hasStatus = text !== undefined;
  }

  /** Count the VMs, if anybody looks. */
  async read() {
    if (!this.open) return;
    const { ns, id } = this.one;
    const mine = { kind: "mci.vm", parent: id };
    const { rows, total } = await countObjects(ns, FIELDS, mine, this.context.signal);
    this.rows = rows;
    const vms = total <= SMALL_MCI ? await get(`/ns/${part(ns)}/objects`, { ...mine, limit: SMALL_MCI }, this.context.signal) : null;
    if (!this.hasStatus) this.showStatus(undefined);
    fillIfChanged(this.states, [...countsBy(rows, STATE)], () => stateSummary("mci.vm", countsBy(rows, STATE)));
    if (vms === null) this.groups.show(rows);
    else {
      this.groups.clear();
      fillIfChanged(this.vms, vms.items, () => (total ? matrix(vms.items) : note("No VMs.")));
    }
    showAllowedActions(this.actions, this.one, this.context.signal, () => {}, USUAL);
  }
}

/** The subgroups of an MCI or the regions of a subgroup, with their numbers; each is unfolded to what is in it. */
class GroupList {
  /**
   * @param {HTMLElement} place
   * @param {Context} context
   * @param {ObjectView} mci
   * @param {number} field SUBGROUP or REGION
   * @param {string | null} subgroup of the regions
   */
  constructor(place, context, mci, field, subgroup) {
    this.place = place;
    this.context = context;
    this.mci = mci;
    this.field = field;
    this.subgroup = subgroup;
    this.wanted = GROUPS_AT_ONCE;
    /** @type {CountRows} */
    this.rows = [];
    this.list = h("ul", { class: "groups" });
    this.more = h("div", null);
    /** @type {Map<string, Group>} */
    this.groups = new Map();
  }

  /** @param {CountRows} rows */
  show(rows) {
    this.rows = rows;
    const found = [...(this.field === SUBGROUP ? rowsBy(rows, SUBGROUP) : rowsByPlace(rows))];
    const shown = found.slice(0, this.wanted);
    const names = new Set(shown.map(([name]) => name ?? ""));
    for (const [name, group] of this.groups) {
      if (names.has(name)) continue;
      group.element.remove();
      this.groups.delete(name);
    }
    shown.forEach(([value, some], number) => {
      const name = value ?? "";
      const group = this.groups.get(name) ?? new Group(this, value, some);
      this.groups.set(name, group);
      group.update(some);
      if (this.list.children[number] !== group.element)
        this.list.insertBefore(group.element, this.list.children[number] ?? null);
    });
    const next = () => ((this.wanted += GROUPS_AT_ONCE), this.show(this.rows));
    const rest = found.length - shown.length;
    fillIfChanged(this.more, rest, () => (rest > 0 ? h("button", { onclick: next }, `Show more (${numberText(rest)})`) : []));
    if (!this.list.isConnected) fill(this.place, this.list, this.more);
  }

  clear() {
    this.groups.clear();
    fill(this.list);
    this.list.remove();
  }
}

/** @param {CountRows} rows @returns {Map<string, CountRows>} by provider and region */
function rowsByPlace(rows) {
  /** @type {Map<string, CountRows>} */
  const places = new Map();
  for (const row of rows) {
    const name = [row.values[PROVIDER], row.values[REGION]].filter(Boolean).join("/");
    places.set(name, [...(places.get(name) ?? []), row]);
  }
  return places;
}

/** A subgroup or a region in one line, to unfold. */
class Group {
  /** @param {GroupList} home @param {string | null} value @param {CountRows} rows */
  constructor(home, value, rows) {
    this.home = home;
    this.value = value;
    this.rows = rows;
    this.total = h("span", { class: "quiet total" });
    this.states = h("span", { class: "states" });
    this.below = h("div", { class: "below" });
    /** @type {GroupList | undefined} */
    this.regions = undefined;
    /** @type {ReturnType<typeof vmTable> | undefined} */
    this.table = undefined;
    const unnamed = home.field === SUBGROUP ? "no subgroup" : "elsewhere";
    this.fold = h(
      "details",
      { ontoggle: () => this.unfold() },
      h("summary", null, h("b", null, value || unnamed), this.total, this.states),
      this.below,
    );
    this.element = h("li", { "data-group": value ?? "" }, this.fold);
  }

  /** @param {CountRows} rows */
  update(rows) {
    this.rows = rows;
    const counts = countsBy(rows, STATE);
    fillIfChanged(this.total, totalOf(rows), () => counted(totalOf(rows), "VM"));
    fillIfChanged(this.states, [...counts], () => stateSummary("mci.vm", counts));
    this.unfold();
  }

  unfold() {
    if (!(/** @type {HTMLDetailsElement} */ (this.fold).open)) {
      fill(this.below);
      this.regions = this.table = undefined;
    } else if (this.home.field === SUBGROUP) {
      this.regions ??= new GroupList(this.below, this.home.context, this.home.mci, REGION, this.value);
      this.regions.show(this.rows);
    } else this.showVms();
  }

  showVms() {
    const { mci, context, subgroup } = this.home;
    const [provider, region] = [PROVIDER, REGION].map((place) => this.rows[0]?.values[place] ?? null);
    const labels = { subgroup: subgroup ?? null, provider: provider ?? null, region: region ?? null };
    this.table ??= vmTable(mci, labels, context);
    if (!this.table.element.isConnected) fill(this.below, this.table.element);
    this.table.expect(totalOf(this.rows));
  }
}

/**
 * The VMs of a subgroup in a region, of which only those that are seen are in the page.
 * @param {ObjectView} mci @param {Record<string, string | null>} labels null for VMs that do not have it @param {Context} context
 */
function vmTable(mci, labels, context) {
  const label = Object.entries(labels).flatMap(([name, value]) => (value === null ? [] : [`${name}=${value}`]));
  const lacking = Object.keys(labels).filter((name) => labels[name] === null);
  const newPager = () => new Pager([mci.ns], { kind: "mci.vm", parent: mci.id, label });
  let pager = newPager();
  let expected = -1;
  const table = new VirtualTable({
    name: `VMs of ${mci.id}`,
    columns: [
      { name: "VM", width: "minmax(0, 2fr)", cell: (/** @type {ObjectView} */ one) => objectAnchor(one.ns, one.id, nameOf(one)) },
      { name: "state", width: "minmax(0, 1fr)", cell: stateBadge },
      { name: "address", width: "minmax(90px, 1fr)", cell: (one) => String(pick(one.seen, ["public_ip"]) ?? "") },
      { name: "error", width: "minmax(120px, 2fr)", cell: (one) => errorText(one.error) },
    ],
    keyOf,
    onOpen: (one) => go(objectLink(one.ns, one.id)),
    more: async () => {
      if (pager.done) return null;
      const page = await pager.next(context.signal);
      return page.filter((one) => lacking.every((name) => one.labels[name] === undefined));
    },
    foot: () => counted(expected, "VM"),
  });
  context.on("entries", (/** @type {JournalEntry[]} */ entries) => {
    for (const entry of entries) {
      if (entry.kind !== "mci.vm" || entry.target === null) continue;
      table.change(`${entry.ns}/${entry.object}`, (one) =>
        Object.assign(one, { state: entry.target, state_class: classOf(entry.kind, entry.target ?? ""), error: entry.reason }),
      );
    }
  });
  return {
    element: table.element,
    /** Read the VMs again if there are more or fewer of them than before. @param {number} total */
    expect: (total) => {
      if (total === expected) return;
      expected = total;
      pager = newPager();
      table.clear();
    },
  };
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
    { class: "scroll", tabindex: "0", role: "group", "aria-label": "VMs" },
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

/** @param {string} action @param {"numVMsToAdd" | "numVMsToRemove"} way @returns {ActionForm} */
const scale = (action, way) => ({
  fields: async (thing) => [
    { name: "group", label: "subgroup", type: "choice", options: await subgroups(thing) },
    { name: way, label: way === "numVMsToAdd" ? "VMs to add" : "VMs to remove", type: "number", value: "1" },
  ],
  call: (thing, _, values) => ["POST", `${mciPath(thing)}/subgroup/${part(values.group ?? "")}`, { [way]: values[way] }],
  preview: (_, values) => ({ action, args: { group: values.group, count: Number(values[way]) } }),
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
    { name: "group", label: "subgroup", value: "web", sent: ["name"] },
    { name: "subGroupSize", label: "VMs", type: "number", value: "2" },
    { name: "commonSpec", label: "region and size", type: "choice", options, sent: ["specId"] },
    { name: "commonImage", label: "image", type: "choice", options: wordOptions(...new Set(images.output)), sent: ["imageId"] },
  ];
}

/** @param {Values} values @param {number} [turn] */
function groupOf(values, turn = 1) {
  const [name, size, specId, imageId] = ["group", "subGroupSize", "commonSpec", "commonImage"].map(
    (field) => values[repeatedName(field, turn)],
  );
  return { name, subGroupSize: Number(size), specId, imageId };
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
    continue: onMci("continue"),
    withdraw: onMci("withdraw"),
    "scale out": scale("scale out", "numVMsToAdd"),
    "scale in": scale("scale in", "numVMsToRemove"),
    "add subgroup": {
      fields: groupFields,
      call: (thing, _, values) => ["POST", `${mciPath(thing)}/subGroupDynamic`, groupOf(values)],
    },
    delete: {
      fields: () => [
        {
          name: "option",
          label: "VMs",
          type: "choice",
          value: "terminate",
          options: [
            ["terminate", "terminate them first"],
            ["", "refuse unless all are terminated"],
            ["force", "delete the records only; machines may remain"],
          ],
          optional: true,
        },
      ],
      call: (thing, _, values) => ["DELETE", `${mciPath(thing)}${values.option ? `?option=${values.option}` : ""}`],
      preview: (_, { option }) => ({ action: "delete", facts: option ? [`option=${option}`] : [] }),
    },
  },
};

// --- create forms ---------------------------------------------------------------------------------------------------

/** @type {string[]} the namespaces that Tumblebug's API knows, when they were last read */
let knownNamespaces = [];

/** @param {string} ns @returns {Promise<boolean>} whether Tumblebug's API knows a namespace */
async function hasNamespace(ns) {
  knownNamespaces = (await get("/tumblebug/ns", { option: "id" })).output;
  return knownNamespaces.includes(ns);
}

/** Create the namespace in Tumblebug's API if it does not exist. @param {string} ns */
async function ensureNamespace(ns) {
  if (!(await hasNamespace(ns))) await send("POST", "/tumblebug/ns", { name: ns });
}

/** What the form of an MCI sends. @param {Values} values */
const mciBody = (values) => ({ name: values.name, publicKey: values.publicKey ?? "", subGroups: groupsOf(values) });

/** How many VMs the form of an MCI asks for, in words. @param {Values} values */
function wantedText(values) {
  const groups = groupsOf(values);
  const vms = groups.reduce((sum, one) => sum + one.subGroupSize, 0);
  return `${countWords("mci.vm", vms)} in ${counted(groups.length, "subgroup")}`;
}

/** What the review of an MCI adds to its plan. @param {string} ns @param {Values} values */
async function reviewText(ns, values) {
  const found = await send("POST", `/tumblebug/ns/${part(ns)}/mciDynamicReview`, mciBody(values));
  const doubts = found.vmReviews.filter((/** @type {any} */ one) => one.status !== "Ready");
  return [
    h("p", null, `Then its ${wantedText(values)} are created, with the networks, security groups and keys that they need, at ${found.estimatedCost}.`),
    ...doubts.map((/** @type {any} */ one) => h("p", { class: "error-text" }, `${one.vmName}: ${one.message}`)),
  ];
}

/** @type {CreateForm[]} */
const CREATE_FORMS = [
  {
    name: "MCI",
    fields: async (ns) => [
      { name: "name", label: "name", hint: "shop" },
      { name: "publicKey", label: "public key for logins", optional: true, hint: "ssh-ed25519 AAAA..." },
      ...(await Promise.all([groupFields(), hasNamespace(ns)]))[0],
    ],
    call: (ns, values) => ["POST", `/tumblebug/ns/${part(ns)}/mciDynamic`, mciBody(values)],
    command: (ns, values) => ({
      command: "mci create",
      document: mciBody(values),
      ...(knownNamespaces.includes(ns) ? {} : { after: ["mci", "namespace", "create", ns] }),
    }),
    whyNoPlan: async (ns, values) =>
      (await hasNamespace(ns))
        ? ""
        : `The namespace ${ns} does not exist yet. It is created first, and then the MCI ${values.name} with ${wantedText(values)}. Whether the MCI would be accepted can be told once its namespace exists.`,
    planned: (ns, values) => reviewText(ns, values),
    prepare: ensureNamespace,
    repeat: { label: "Add a subgroup", from: "group" },
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
  nouns: { "mci.mci": ["MCI", "MCIs"], "mci.vm": ["VM", "VMs"], "mci.sshkey": ["SSH key", "SSH keys"], "mci.vnet": ["network", "networks"] },
  extraActions: { "mci.mci": ["add subgroup"] },
  createForms: CREATE_FORMS,
};
