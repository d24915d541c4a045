// OpenvCloud objects in their tree, and the recycle bin: what is in it, for how long still, and back out of it.

import { get, part } from "/console/core/api.js";
import { act } from "/console/ui/object-actions.js";
import { fill, h } from "/console/core/dom.js";
import { countStates, groupBy, liveObjects, nameOf, pick } from "/console/core/live-objects.js";
import { card, code, confirm, empty, heading, meter, objectAnchor, objectLine, quiet, stateSummary, table, wordOptions } from "/console/ui/components.js";
import { allTimers } from "/console/core/pagination.js";
import { may } from "/console/core/store.js";
import { ago, seconds, span } from "/console/core/time.js";
import { createButtons } from "/console/ui/create-buttons.js";
import { objectOptions } from "/console/ui/form.js";
import { stateBadge } from "/console/ui/states.js";

/** @import {ActionForm, Context, CreateForm, Domain, ObjectView, Timer} from "/console/core/types.js" */
/** @import {Options} from "/console/ui/form.js" */

const KINDS = ["ovc.account", "ovc.cloudspace", "ovc.vm", "ovc.disk", "ovc.image", "ovc.node"];
const BINNED = ["DELETED", "TOBEDELETED"];
const DEFAULT_RETENTION_S = 7 * 86_400;
const URGENT_S = 86_400;

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
    card("Recycle bin", "what was deleted can be restored until its time is over", bin),
    sums,
    card("Objects", "by where they belong", tree),
  );
  let binned = "";
  again = await liveObjects(context, KINDS, (things) => {
    shown = things;
    drawBin();
    const now = JSON.stringify(things.filter((one) => BINNED.includes(one.state)).map((one) => one.id));
    if (now !== binned) readTimers().catch(() => {});
    binned = now;
    const kinds = groupBy(things, (one) => one.kind);
    fill(
      sums,
      [...kinds].map(([kind, some]) =>
        card(NAMES[kind] ?? kind, `${some.length}`, stateSummary(kind, countStates(some))),
      ),
    );
    const known = new Set(things.map((one) => `${one.ns}/${one.id}`));
    const tops = things.filter((one) => !known.has(`${one.ns}/${one.parent}`));
    fill(
      tree,
      things.length
        ? branch(
            tops,
            groupBy(things, (one) => `${one.ns}/${one.parent}`),
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

/** @param {ObjectView[]} things @param {Timer[]} timers @param {() => void} again */
function recycled(things, timers, again) {
  const found = things.filter((one) => BINNED.includes(one.state));
  if (!found.length) return empty("The bin is empty.", "What is deleted without force goes here first.");
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
        ago(one.since),
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
  if (left === null) return "until somebody destroys it";
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
    h("button", { class: "danger", onclick: () => destroy(one, again) }, "Destroy"),
  );
}

/** @param {ObjectView} one @param {() => void} again */
async function destroy(one, again) {
  if (await confirm(`Destroy ${nameOf(one)} for good?`, "Destroy")) await act(one, "destroy", [], [], again);
}

// --- the tree --------------------------------------------------------------------------------------------------------

/** @param {ObjectView[]} some @param {Map<string, ObjectView[]>} below @returns {HTMLElement} */
function branch(some, below) {
  const items = [...some].sort(byName).map((one) => {
    const mine = below.get(`${one.ns}/${one.id}`) ?? [];
    const line = h("div", null, objectLine(one, [kindName(one), ...details(one)].join(" · "), nameOf(one)));
    return h("li", null, line, mine.length ? branch(mine, below) : null);
  });
  return h("ul", null, items);
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
        { name: "gib", label: "GiB", type: "number", value: "1" },
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
          label: "to the node",
          type: "choice",
          options: [["", "that fits best"], ...(await objectOptions(thing.ns, "ovc.node"))],
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
          label: "its VMs",
          type: "choice",
          options: [["move", "move to other nodes"], ["stop", "are stopped"]],
        },
      ],
      call: (thing, _, values) => ["POST", `${ovcPath("nodes")(thing)}/maintenance`, { vmaction: values.vmaction }],
    },
  },
};

// --- create forms ---------------------------------------------------------------------------------------------------

/** @type {CreateForm[]} */
const CREATE_FORMS = [
  {
    name: "machine",
    fields: async (ns) => [
      { name: "name", label: "name", hint: "web 1" },
      { name: "cloudspace", label: "cloudspace", type: "choice", options: await objectOptions(ns, "ovc.cloudspace") },
      { name: "image", label: "image", type: "choice", options: await objectOptions(ns, "ovc.image") },
      { name: "size", label: "size", value: "tiny" },
      { name: "gib", label: "GiB of its disk", type: "number", value: "1" },
    ],
    call: (ns, values) => ["POST", `/api/v1/ovc/${part(ns)}/machines`, { ...values, gib: Number(values.gib) }],
  },
  {
    name: "disk",
    fields: async (ns) => [
      { name: "name", label: "name", hint: "data" },
      { name: "account", label: "account", type: "choice", options: await objectOptions(ns, "ovc.account") },
      { name: "gib", label: "GiB", type: "number", value: "1" },
    ],
    call: (ns, values) => ["POST", `/api/v1/ovc/${part(ns)}/disks`, { ...values, gib: Number(values.gib) }],
  },
  {
    name: "cloudspace",
    fields: async (ns) => [
      { name: "name", label: "name", hint: "production" },
      { name: "account", label: "account", type: "choice", options: await objectOptions(ns, "ovc.account") },
    ],
    call: (ns, values) => ["POST", `/api/v1/ovc/${part(ns)}/cloudspaces`, values],
  },
  {
    name: "image",
    fields: async (ns) => [
      { name: "name", label: "name", hint: "counter" },
      { name: "account", label: "account", type: "choice", options: await objectOptions(ns, "ovc.account") },
      { name: "source", label: "from", value: "tick" },
    ],
    call: (ns, values) => ["POST", `/api/v1/ovc/${part(ns)}/images`, values],
  },
  {
    name: "account",
    fields: () => [
      { name: "name", label: "name", hint: "acme" },
      { name: "days", label: "days that deleted things are kept", type: "number", value: "7", least: 0 },
    ],
    call: (ns, { name, days }) => [
      "POST",
      `/api/v1/ovc/${part(ns)}/accounts`,
      { name, retention: Number(days) * 86_400 },
    ],
  },
  {
    name: "node",
    right: "govern",
    fields: () => [
      { name: "name", label: "name", hint: "node 1" },
      { name: "driver", label: "its machines", type: "choice", options: wordOptions("simulated", "process", "qemu") },
    ],
    call: (ns, values) => ["POST", `/api/v1/ovc/${part(ns)}/nodes`, values],
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
