// OpenvCloud objects in their tree, and the recycle bin: what is in it, for how long still, and back out of it.

import { get, part } from "/console/core/api.js";
import { act } from "/console/ui/object-actions.js";
import { fill, h } from "/console/core/dom.js";
import { groupBy, liveObjects, nameOf, pick } from "/console/core/live-objects.js";
import { card, code, empty, heading, meter, objectAnchor, objectLine, quiet, relativeTime, restNote, stateSummary, table, wordOptions } from "/console/ui/components.js";
import { allTimers } from "/console/core/pagination.js";
import { countOf, may, statesOf } from "/console/core/store.js";
import { seconds, span } from "/console/core/time.js";
import { createButtons } from "/console/ui/create-buttons.js";
import { objectOptions } from "/console/ui/form.js";
import { stateBadge } from "/console/ui/states.js";
import { numberText } from "/console/core/numbers.js";

/** @import {ActionForm, Context, CreateForm, Domain, DomainCommand, ObjectView, Timer} from "/console/core/types.js" */
/** @import {Options, Values} from "/console/ui/form.js" */

const KINDS = ["ovc.account", "ovc.cloudspace", "ovc.vm", "ovc.disk", "ovc.image", "ovc.node"];
const BINNED = ["DELETED", "TOBEDELETED"];
const DEFAULT_RETENTION_S = 7 * 86_400;
const URGENT_S = 86_400;

/** A tree of more objects is folded, and a branch lists so many. */
const LARGE_TREE = 200;

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
  /** @type {ObjectView[]} */
  let shown = [];
  const drawBin = () => fill(bin, recycled(shown, timers, again));
  let again = () => {};
  const readTimers = async () => {
    timers = await allTimers(1_000, context.signal);
    drawBin();
  };
  fill(
    context.main,
    heading("OpenvCloud", "accounts, cloudspaces, machines, disks", ...createButtons("ovc", () => again())),
    card("Recycle bin", "deleted objects can be restored until their time is over", bin),
    sums,
    card("Objects", "by owner", tree),
  );
  let binned = "";
  again = await liveObjects(context, KINDS, (things) => {
    shown = things;
    drawBin();
    const now = JSON.stringify(things.filter((one) => BINNED.includes(one.state)).map((one) => one.id));
    if (now !== binned) readTimers().catch(() => {});
    binned = now;
    const kinds = KINDS.filter(countOf);
    fill(
      sums,
      kinds.map((kind) => card(NAMES[kind] ?? kind, numberText(countOf(kind)), stateSummary(kind, statesOf(kind)))),
    );
    const total = KINDS.reduce((sum, kind) => sum + countOf(kind), 0);
    const known = new Set(things.map((one) => `${one.ns}/${one.id}`));
    const tops = things.filter((one) => !known.has(`${one.ns}/${one.parent}`));
    fill(
      tree,
      things.length
        ? [
            branch(
              tops,
              groupBy(things, (one) => `${one.ns}/${one.parent}`),
              things.length > LARGE_TREE ? unfolded : null,
            ),
            restNote(things.length, total, {}),
          ]
        : empty(
            "No objects yet.",
            "Register a node, create an account, a cloudspace and an image with the buttons above; then a machine. Or: ",
            code("stateward ovc --help"),
          ),
    );
  });
  context.every(10, readTimers);
}

// --- the bin ---------------------------------------------------------------------------------------------------------

/** @param {ObjectView[]} things @param {Timer[]} timers @param {() => void} again */
function recycled(things, timers, again) {
  const found = things.filter((one) => BINNED.includes(one.state));
  if (!found.length) return empty("The bin is empty.", "Objects that are deleted without force come here first.");
  return table(
    "Recycle bin",
    ["object", "state", "deleted", "time left", "", ""],
    found.map((one) => {
      const owner = binOwner(one, found);
      const timer = timers.find((other) => other.ns === one.ns && other.object === one.id);
      const left = timer ? seconds(timer.due) - Date.now() / 1000 : null;
      return [
        h("span", { class: "fine" }, objectAnchor(one.ns, one.id, nameOf(one)), quiet(kindName(one))),
        stateBadge(one),
        relativeTime(one.since),
        owner ? `as long as ${nameOf(owner)}` : timeLeft(left, timer),
        left === null ? "" : timeBar(left, kept(one, things), one.id),
        may("act") && !owner ? binButtons(one, again) : "",
      ];
    }),
  );
}

/** The object whose deletion deleted this one: it restores or destroys both. @param {ObjectView} one @param {ObjectView[]} found */
function binOwner(one, found) {
  const along = pick(one.seen, ["bin.along"]);
  return found.find((other) => other.ns === one.ns && other.id === along) ?? null;
}

/** @param {ObjectView} one */
function kindName(one) {
  return one.kind.replace("ovc.", "").replace("vm", "machine");
}

/** @param {number | null} left @param {Timer | undefined} timer */
function timeLeft(left, timer) {
  if (left === null) return "no time limit";
  return left > 0 ? `${span(left)}, then ${timer?.event}` : "over";
}

/** @param {ObjectView} one @param {ObjectView[]} things @returns {number} for how many seconds its account keeps what is deleted */
function kept(one, things) {
  const account = pick(one.spec, ["account"]);
  const found = things.find((other) => other.ns === one.ns && other.id === account);
  return Number(pick(found?.spec, ["retention"]) ?? DEFAULT_RETENTION_S) || DEFAULT_RETENTION_S;
}

/** @param {number} left @param {number} whole @param {string} id */
function timeBar(left, whole, id) {
  return meter(Math.max(0, left), Math.max(whole, left), `Time left for ${id}`, left < URGENT_S ? "leaving" : "good");
}

/** @param {ObjectView} one @param {() => void} again */
function binButtons(one, again) {
  return h(
    "span",
    { class: "row" },
    h("button", { onclick: () => act(one, "restore", [], [], again) }, "Restore"),
    h("button", { class: "danger", onclick: () => act(one, "destroy", [], [], again) }, "Destroy"),
  );
}

// --- the tree --------------------------------------------------------------------------------------------------------

/** The branches of a large tree that were unfolded. @type {Set<string>} */
const unfolded = new Set();

/** @param {ObjectView[]} some @param {Map<string, ObjectView[]>} below @param {Set<string> | null} open of a large tree: what is unfolded @returns {HTMLElement} */
function branch(some, below, open) {
  const sorted = [...some].sort(byName);
  const items = (open ? sorted.slice(0, LARGE_TREE) : sorted).map((one) => {
    const mine = below.get(`${one.ns}/${one.id}`) ?? [];
    const line = h("div", null, objectLine(one, [kindName(one), ...details(one)].join(" · "), nameOf(one)));
    if (!mine.length) return h("li", null, line);
    return h("li", null, line, open ? fold(one, mine, below, open) : branch(mine, below, open));
  });
  const rest = sorted.length - items.length;
  return h("ul", null, items, rest > 0 ? h("li", null, quiet(`and ${numberText(rest)} more`)) : null);
}

/** What is below an object, made when it is unfolded. @param {ObjectView} one @param {ObjectView[]} mine @param {Map<string, ObjectView[]>} below @param {Set<string>} open */
function fold(one, mine, below, open) {
  const key = `${one.ns}/${one.id}`;
  const place = h("div", null);
  const made = /** @type {HTMLDetailsElement} */ (
    h("details", { open: open.has(key) }, h("summary", null, `${numberText(mine.length)} below`), place)
  );
  made.addEventListener("toggle", () => {
    if (made.open) open.add(key);
    else open.delete(key);
    fill(place, made.open ? branch(mine, below, open) : null);
  });
  return made;
}

/** @param {ObjectView} one @param {ObjectView} other */
function byName(one, other) {
  const kinds = KINDS.indexOf(one.kind) - KINDS.indexOf(other.kind);
  return kinds || nameOf(one).localeCompare(nameOf(other), undefined, { numeric: true });
}

/** @param {ObjectView} one @returns {string[]} */
function details(one) {
  const size = pick(one.spec, ["size"]);
  const gib = pick(one.spec, ["gib"]);
  const node = pick(one.seen, ["node"]);
  const driver = one.kind === "ovc.node" ? pick(one.spec, ["driver"]) : null;
  return [typeof size === "string" ? size : "", gib ? `${gib} GiB` : "", node ? `on ${node}` : "", driver ?? ""].filter(
    Boolean,
  );
}

// --- actions --------------------------------------------------------------------------------------------------------

/** @param {string} path @returns {(thing: ObjectView) => string} */
const ovcPath = (path) => (thing) => `/api/v1/ovc/${part(thing.ns)}/${path}/${part(thing.id)}`;
const machinePath = ovcPath("machines");

/** @param {string} way @param {(thing: ObjectView) => Promise<Options>} options @returns {ActionForm} */
const withDisk = (way, options) => ({
  fields: async (thing) => [{ name: "disk", label: "disk", type: "choice", options: await options(thing) }],
  call: (thing, _, values) => ["POST", `${machinePath(thing)}/${way}`, { disk: values.disk }],
});

/** @param {ObjectView} thing @returns {Promise<Options>} */
async function itsDisks(thing) {
  const found = await get(`${machinePath(thing)}/disks`);
  return found.map((/** @type {any} */ one) => [one.id, `${one.name} (${one.id})`]);
}

/** @type {Record<string, Record<string, ActionForm>>} */
const ACTIONS = {
  "ovc.vm": {
    "add disk": {
      fields: () => [
        { name: "name", label: "name", value: "data" },
        { name: "gib", label: "size (GiB)", type: "number", value: "1" },
      ],
      call: (thing, _, values) => ["POST", `${machinePath(thing)}/disks`, { name: values.name, gib: Number(values.gib) }],
    },
    "attach disk": withDisk("attach", (thing) => objectOptions(thing.ns, "ovc.disk")),
    "detach disk": withDisk("detach", itsDisks),
    clone: {
      fields: (thing) => [{ name: "name", label: "name", value: `${pick(thing.spec, ["name"]) ?? thing.id} again` }],
      call: (thing, _, values) => ["POST", `${machinePath(thing)}/clone`, { name: values.name }],
    },
    migrate: {
      fields: async (thing) => [
        {
          name: "node",
          label: "node",
          type: "choice",
          options: [["", "best fit"], ...(await objectOptions(thing.ns, "ovc.node"))],
          optional: true,
        },
      ],
      call: (thing, _, values) => ["POST", `${machinePath(thing)}/migrate`, { node: values.node || null }],
    },
  },
  "ovc.node": {
    maintenance: {
      fields: () => [
        {
          name: "vmaction",
          label: "VMs",
          type: "choice",
          options: [["move", "move to other nodes"], ["stop", "stop"]],
        },
      ],
      call: (thing, _, values) => ["POST", `${ovcPath("nodes")(thing)}/maintenance`, { vmaction: values.vmaction }],
    },
  },
};

// --- create forms ---------------------------------------------------------------------------------------------------

/** The command that creates an object; its options have the names of fields. @param {string} what @param {Values} values @param {...string} options @returns {DomainCommand} */
const createCommand = (what, values, ...options) => ({
  command: `ovc create ${what}`,
  options: options.map((name) => [`--${name}`, values[name]]),
  names: [values.name ?? ""],
});

/** @type {CreateForm[]} */
const CREATE_FORMS = [
  {
    name: "machine",
    fields: async (ns) => [
      { name: "name", label: "name", hint: "web 1" },
      { name: "cloudspace", label: "cloudspace", type: "choice", options: await objectOptions(ns, "ovc.cloudspace") },
      { name: "image", label: "image", type: "choice", options: await objectOptions(ns, "ovc.image") },
      { name: "size", label: "size", value: "tiny" },
      { name: "gib", label: "disk (GiB)", type: "number", value: "1" },
    ],
    call: (ns, values) => ["POST", `/api/v1/ovc/${part(ns)}/machines`, { ...values, gib: Number(values.gib) }],
    command: (_, values) => createCommand("machine", values, "cloudspace", "image", "size", "gib"),
    planned: (_, { gib }) => [`With it, its boot disk of ${gib} GiB is created.`],
  },
  {
    name: "disk",
    fields: async (ns) => [
      { name: "name", label: "name", hint: "data" },
      { name: "account", label: "account", type: "choice", options: await objectOptions(ns, "ovc.account") },
      { name: "gib", label: "size (GiB)", type: "number", value: "1" },
    ],
    call: (ns, values) => ["POST", `/api/v1/ovc/${part(ns)}/disks`, { ...values, gib: Number(values.gib) }],
    command: (_, values) => createCommand("disk", values, "account", "gib"),
  },
  {
    name: "cloudspace",
    fields: async (ns) => [
      { name: "name", label: "name", hint: "production" },
      { name: "account", label: "account", type: "choice", options: await objectOptions(ns, "ovc.account") },
    ],
    call: (ns, values) => ["POST", `/api/v1/ovc/${part(ns)}/cloudspaces`, values],
    command: (_, values) => createCommand("cloudspace", values, "account"),
  },
  {
    name: "image",
    fields: async (ns) => [
      { name: "name", label: "name", hint: "counter" },
      { name: "account", label: "account", type: "choice", options: await objectOptions(ns, "ovc.account") },
      { name: "source", label: "source", value: "tick" },
    ],
    call: (ns, values) => ["POST", `/api/v1/ovc/${part(ns)}/images`, values],
    command: (_, values) => createCommand("image", values, "account", "source"),
  },
  {
    name: "account",
    fields: () => [
      { name: "name", label: "name", hint: "acme" },
      { name: "days", label: "days in the recycle bin", type: "number", value: "7", least: 0, sent: ["retention"] },
    ],
    call: (ns, { name, days }) => [
      "POST",
      `/api/v1/ovc/${part(ns)}/accounts`,
      { name, retention: Number(days) * 86_400 },
    ],
    command: (_, { days, ...values }) => createCommand("account", { ...values, retention: days ?? "" }, "retention"),
  },
  {
    name: "node",
    right: "govern",
    fields: () => [
      { name: "name", label: "name", hint: "node 1" },
      { name: "driver", label: "driver", type: "choice", options: wordOptions("simulated", "process", "qemu") },
    ],
    call: (ns, values) => ["POST", `/api/v1/ovc/${part(ns)}/nodes`, values],
    command: (_, values) => createCommand("node", values, "driver"),
  },
];

/** @type {Domain} */
export default {
  name: "ovc",
  nav: "OVC",
  hotkey: "v",
  view: { title: "OVC", show },
  actions: ACTIONS,
  extraActions: { "ovc.vm": ["clone"] },
  createForms: CREATE_FORMS,
};
