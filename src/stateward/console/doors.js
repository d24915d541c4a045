// Actions in the words of their domain: what a machine's or a group's user means is often more than the object's own
// row, and needs arguments. Where a domain does not answer here itself, the objects' own actions are asked for.

import { get, part } from "./api.js";
import { inTurn } from "./form.js";
import { nameOf, pick } from "./living.js";
import { store } from "./store.js";

/** @import {Field, Options, Values} from "./form.js" */
/** @import {Thing} from "./types.js" */

/** @typedef {[string, string, any?]} Call method, path, body */

/**
 * @typedef {object} Door
 * @property {(thing: Thing) => Field[] | Promise<Field[]>} [fields] what is asked for first
 * @property {(thing: Thing, facts: string[], values: Values) => Call} call
 */

/** @param {string} kind @returns {boolean} whether the domain of a kind answers here in its own words */
export function speaks(kind) {
  return store.me?.domains?.includes(kind.split(".", 1)[0] ?? "") ?? false;
}

/** @param {Thing} thing @param {string} action @returns {Door | null} */
export function doorOf(thing, action) {
  return speaks(thing.kind) ? (DOORS[thing.kind]?.[action] ?? null) : null;
}

/** @param {Thing} thing @returns {string[]} what can be asked for besides the actions of its table */
export function extras(thing) {
  return speaks(thing.kind) ? (EXTRAS[thing.kind] ?? []) : [];
}

// --- mci -------------------------------------------------------------------------------------------------------------

/** @param {Thing} thing */
const mci = (thing) => `/tumblebug/ns/${part(thing.ns)}/mci/${part(thing.id)}`;

/** @param {string} action @returns {Door} */
const onMci = (action) => ({
  call: (thing, facts) => ["POST", `${mci(thing)}?action=${action}${facts.includes("force") ? "&force=true" : ""}`],
});

/** @param {string} action @returns {Door} */
const onVm = (action) => ({
  call: (thing, facts) => {
    const home = mci({ ...thing, id: thing.parent ?? "" });
    const force = facts.includes("force") ? "&force=true" : "";
    return ["POST", `${home}/vm/${part(String(pick(thing.spec, ["name"]) ?? thing.id))}?action=${action}${force}`];
  },
});

/** @param {"numVMsToAdd" | "numVMsToRemove"} way @returns {Door} */
const scale = (way) => ({
  fields: async (thing) => [
    { name: "group", label: "subgroup", type: "choice", options: await subgroups(thing) },
    { name: way, label: way === "numVMsToAdd" ? "VMs to add" : "VMs to remove", type: "number", value: "1" },
  ],
  call: (thing, _, values) => ["POST", `${mci(thing)}/subgroup/${part(values.group ?? "")}`, { [way]: values[way] }],
});

/** @param {Thing} thing @returns {Promise<Options>} */
async function subgroups(thing) {
  const found = await get(`${mci(thing)}/subgroup`);
  return found.output.map((/** @type {string} */ one) => [one, one]);
}

/** @returns {Promise<Field[]>} the fields of a subgroup */
export async function groupFields() {
  const [specs, images] = await Promise.all([
    get("/tumblebug/ns/system/resources/spec"),
    get("/tumblebug/ns/system/resources/image", { option: "id" }),
  ]);
  /** @type {Options} */
  const options = specs.spec.map((/** @type {any} */ one) => [
    one.id,
    `${one.providerName}/${one.regionName} · ${one.cspSpecName} · ${one.vCPU} vCPU, ${one.memoryGiB} GiB, $${one.costPerHour}/h`,
  ]);
  const names = /** @type {string[]} */ ([...new Set(images.output)]);
  return [
    { name: "group", label: "subgroup", value: "web" },
    { name: "subGroupSize", label: "VMs", type: "number", value: "2" },
    { name: "commonSpec", label: "where, and which size", type: "choice", options },
    { name: "commonImage", label: "image", type: "choice", options: names.map((one) => [one, one]) },
  ];
}

/** @param {Values} values @param {number} [turn] */
export function groupOf(values, turn = 1) {
  const said = (/** @type {string} */ name) => values[inTurn(name, turn)];
  return {
    name: said("group"),
    subGroupSize: said("subGroupSize"),
    commonSpec: said("commonSpec"),
    commonImage: said("commonImage"),
  };
}

/** @param {Values} values @returns {ReturnType<typeof groupOf>[]} all subgroups that were filled in */
export function groupsOf(values) {
  const groups = [];
  for (let turn = 1; inTurn("group", turn) in values; turn += 1) groups.push(groupOf(values, turn));
  return groups;
}

// --- the others ------------------------------------------------------------------------------------------------------

/** @param {Thing} thing */
const cloudlet = (thing) => `/api/v1/edge/ns/${part(thing.ns)}/cloudlets/${part(thing.id)}`;

/** @param {string} ns @param {string} kind @returns {Promise<Options>} */
export async function choices(ns, kind) {
  const found = await get(`/ns/${part(ns)}/objects`, { kind, limit: 1_000 });
  return found.items.map((/** @type {Thing} */ one) => [
    one.id,
    nameOf(one) === one.id ? one.id : `${nameOf(one)} (${one.id})`,
  ]);
}

/** @param {string} path @returns {(thing: Thing) => string} */
const ovc = (path) => (thing) => `/api/v1/ovc/${part(thing.ns)}/${path}/${part(thing.id)}`;
const machine = ovc("machines");

/** @param {string} way @param {(thing: Thing) => Promise<Options>} options @returns {Door} */
const withDisk = (way, options) => ({
  fields: async (thing) => [{ name: "disk", label: "disk", type: "choice", options: await options(thing) }],
  call: (thing, _, values) => ["POST", `${machine(thing)}/${way}`, { disk: values.disk }],
});

/** @param {Thing} thing @returns {Promise<Options>} */
async function itsDisks(thing) {
  const found = await get(`${machine(thing)}/disks`);
  return found.map((/** @type {any} */ one) => [one.id, `${one.name} (${one.id})`]);
}

/** @param {Thing} thing */
const lease = (thing) => `/ns/${part(thing.ns)}/blazar/v1/leases/${part(thing.id)}`;

/** @param {Thing} thing @returns {string} */
const system = (thing) => `/api/v1/systems/${part(thing.ns)}/${part(thing.id)}`;

/** @type {Field} */
const PATIENCE = {
  name: "wait",
  label: "seconds to wait for locks",
  type: "number",
  least: 0,
  optional: true,
  hint: "refused at once if others hold them",
};

/** @param {Values} values @returns {number | null} */
const patience = (values) => (values.wait ? Number(values.wait) : null);

/** @type {Record<string, Record<string, Door>>} */
const DOORS = {
  "mci.mci": {
    ...Object.fromEntries(
      ["suspend", "resume", "reboot", "terminate", "refine", "reconcile", "continue", "withdraw"].map((one) => [
        one,
        onMci(one),
      ]),
    ),
    "scale out": scale("numVMsToAdd"),
    "scale in": scale("numVMsToRemove"),
    "add subgroup": {
      fields: groupFields,
      call: (thing, _, values) => ["POST", `${mci(thing)}/subGroupDynamic`, groupOf(values)],
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
      call: (thing, _, values) => ["DELETE", `${mci(thing)}${values.option ? `?option=${values.option}` : ""}`],
    },
  },
  "mci.vm": Object.fromEntries(
    ["suspend", "resume", "reboot", "terminate", "reconcile"].map((one) => [one, onVm(one)]),
  ),
  "edge.cloudlet": {
    upgrade: {
      fields: (thing) => [
        { name: "version", label: "version", hint: `another than ${pick(thing.seen, ["version"]) ?? "now"}` },
        { name: "within", label: "seconds that the new agent has to come up", type: "number", value: "60" },
      ],
      call: (thing, _, values) => [
        "POST",
        `${cloudlet(thing)}/upgrade`,
        { version: values.version, within: Number(values.within) },
      ],
    },
    settle: { call: (thing) => ["POST", `${cloudlet(thing)}/fix`] },
    delete: { call: (thing) => ["DELETE", cloudlet(thing)] },
  },
  "edge.clusterinst": {
    update: {
      fields: (thing) => [
        { name: "nodes", label: "nodes", type: "number", value: String(pick(thing.spec, ["nodes"]) ?? 1) },
      ],
      call: (thing, _, values) => {
        const [where = "", name = ""] = thing.id.split(":");
        const path = `${cloudlet({ ...thing, id: where })}/clusterinsts/${part(name)}`;
        return ["PATCH", path, { nodes: Number(values.nodes) }];
      },
    },
  },
  "ovc.vm": {
    "add disk": {
      fields: () => [
        { name: "name", label: "name", value: "data" },
        { name: "gib", label: "GiB", type: "number", value: "1" },
      ],
      call: (thing, _, values) => ["POST", `${machine(thing)}/disks`, { name: values.name, gib: Number(values.gib) }],
    },
    "attach disk": withDisk("attach", (thing) => choices(thing.ns, "ovc.disk")),
    "detach disk": withDisk("detach", itsDisks),
    clone: {
      fields: (thing) => [{ name: "name", label: "name", value: `${pick(thing.spec, ["name"]) ?? thing.id} again` }],
      call: (thing, _, values) => ["POST", `${machine(thing)}/clone`, { name: values.name }],
    },
    migrate: {
      fields: async (thing) => [
        {
          name: "node",
          label: "to the node",
          type: "choice",
          options: [["", "that fits best"], ...(await choices(thing.ns, "ovc.node"))],
          optional: true,
        },
      ],
      call: (thing, _, values) => ["POST", `${machine(thing)}/migrate`, { node: values.node || null }],
    },
  },
  "ovc.node": {
    maintenance: {
      fields: () => [
        {
          name: "vmaction",
          label: "its VMs",
          type: "choice",
          options: [
            ["move", "move to other nodes"],
            ["stop", "are stopped"],
          ],
        },
      ],
      call: (thing, _, values) => ["POST", `${ovc("nodes")(thing)}/maintenance`, { vmaction: values.vmaction }],
    },
  },
  "leases.lease": {
    update: {
      fields: (thing) => [
        { name: "name", label: "name", value: String(pick(thing.spec, ["name"]) ?? "") },
        { name: "end_date", label: "ends", type: "time", value: localTime(Number(pick(thing.spec, ["end"]))) },
      ],
      call: (thing, _, values) => ["PUT", lease(thing), { name: values.name, end_date: minute(values.end_date ?? "") }],
    },
    delete: { call: (thing) => ["DELETE", lease(thing)] },
  },
  "systems.system": {
    deploy: {
      fields: () => [
        { name: "path", label: "at the path", value: "/" },
        {
          name: "definition",
          label: "definition (YAML)",
          type: "long",
          hint: "services:\n  web:\n    command: run v1",
        },
        PATIENCE,
      ],
      call: (thing, _, values) => [
        "POST",
        `${system(thing)}/deploys`,
        { path: values.path, definition: values.definition, wait: patience(values) },
      ],
    },
    "roll back": {
      fields: () => [{ name: "path", label: "the last deploy of", value: "/" }, PATIENCE],
      call: (thing, _, values) => ["POST", `${system(thing)}/rollback`, { path: values.path, wait: patience(values) }],
    },
    teardown: {
      fields: () => [PATIENCE],
      call: (thing, _, values) => ["POST", `${system(thing)}/teardowns`, { wait: patience(values) }],
    },
    delete: { call: (thing) => ["DELETE", system(thing)] },
  },
};

/** @type {Record<string, string[]>} */
const EXTRAS = {
  "mci.mci": ["add subgroup"],
  "ovc.vm": ["clone"],
  "systems.system": ["deploy", "roll back", "teardown"],
};

/** @param {number} at @returns {string} for a field of time */
export function localTime(at) {
  const date = new Date((at || Date.now() / 1000) * 1000);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** @param {string} local @returns {string} in UTC, as reservations are written */
export function minute(local) {
  return new Date(local).toISOString().slice(0, 16).replace("T", " ");
}
