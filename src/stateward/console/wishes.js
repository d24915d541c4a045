// What can be made in the page, and what has to be said about it: the domains' things in their own words, and any
// object of any kind.

import { get, part, Problem, send } from "./api.js";
import { choices, groupFields, groupsOf, localTime, minute } from "./doors.js";
import { askFor } from "./form.js";
import { h } from "./dom.js";
import { showProblem, toast } from "./problems.js";
import { ALL, may, namespaces, store } from "./store.js";

/** @import {Field, Repeat, Values} from "./form.js" */
/** @import {Call} from "./doors.js" */

/**
 * @typedef {object} Wish
 * @property {string} name what is made
 * @property {string} [right] that it needs, if not that to act
 * @property {(ns: string) => Field[] | Promise<Field[]>} fields
 * @property {(ns: string, values: Values) => Call} call
 * @property {(ns: string) => Promise<void>} [first] what must be there before
 * @property {Repeat} [repeat] what can be filled in several times
 */

/** @type {Record<string, Wish[]>} */
const WISHES = {
  mci: [
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
      first: opened,
      repeat: { label: "Another subgroup", from: "group" },
    },
  ],
  edge: [
    {
      name: "cloudlet",
      fields: () => [
        { name: "name", label: "name", hint: "oslo" },
        { name: "missing", label: "what is missing there", type: "choice", options: both("recreate", "leave") },
        { name: "orphans", label: "what nobody knows of", type: "choice", options: both("report", "remove") },
      ],
      call: (ns, values) => ["POST", `/api/v1/edge/ns/${part(ns)}/cloudlets`, values],
    },
    {
      name: "cluster",
      fields: async (ns) => [
        { name: "cloudlet", label: "on the cloudlet", type: "choice", options: await choices(ns, "edge.cloudlet") },
        { name: "name", label: "name", hint: "k8s" },
        { name: "nodes", label: "nodes", type: "number", value: "1" },
      ],
      call: (ns, { cloudlet = "", name, nodes }) => [
        "POST",
        `/api/v1/edge/ns/${part(ns)}/cloudlets/${part(cloudlet)}/clusterinsts`,
        { name, nodes: Number(nodes) },
      ],
    },
    {
      name: "app instance",
      fields: async (ns) => [
        { name: "cluster", label: "in the cluster", type: "choice", options: await choices(ns, "edge.clusterinst") },
        { name: "app", label: "app", type: "choice", options: await choices(ns, "edge.app") },
      ],
      call: (ns, { cluster = "", app = "" }) => {
        const [where = "", name = ""] = cluster.split(":");
        const path = `/api/v1/edge/ns/${part(ns)}/cloudlets/${part(where)}/clusterinsts/${part(name)}/appinsts`;
        return ["POST", path, { app: app.split(":").at(-1) }];
      },
    },
  ],
  ovc: [
    {
      name: "machine",
      fields: async (ns) => [
        { name: "name", label: "name", hint: "web 1" },
        { name: "cloudspace", label: "cloudspace", type: "choice", options: await choices(ns, "ovc.cloudspace") },
        { name: "image", label: "image", type: "choice", options: await choices(ns, "ovc.image") },
        { name: "size", label: "size", value: "tiny" },
        { name: "gib", label: "GiB of its disk", type: "number", value: "1" },
      ],
      call: (ns, values) => ["POST", `/api/v1/ovc/${part(ns)}/machines`, { ...values, gib: Number(values.gib) }],
    },
    {
      name: "disk",
      fields: async (ns) => [
        { name: "name", label: "name", hint: "data" },
        { name: "account", label: "account", type: "choice", options: await choices(ns, "ovc.account") },
        { name: "gib", label: "GiB", type: "number", value: "1" },
      ],
      call: (ns, values) => ["POST", `/api/v1/ovc/${part(ns)}/disks`, { ...values, gib: Number(values.gib) }],
    },
    {
      name: "cloudspace",
      fields: async (ns) => [
        { name: "name", label: "name", hint: "production" },
        { name: "account", label: "account", type: "choice", options: await choices(ns, "ovc.account") },
      ],
      call: (ns, values) => ["POST", `/api/v1/ovc/${part(ns)}/cloudspaces`, values],
    },
    {
      name: "image",
      fields: async (ns) => [
        { name: "name", label: "name", hint: "counter" },
        { name: "account", label: "account", type: "choice", options: await choices(ns, "ovc.account") },
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
        { name: "driver", label: "its machines", type: "choice", options: both("simulated", "process", "qemu") },
      ],
      call: (ns, values) => ["POST", `/api/v1/ovc/${part(ns)}/nodes`, values],
    },
  ],
  leases: [
    {
      name: "lease",
      fields: () => [
        { name: "name", label: "name", hint: "gpu-night" },
        { name: "start_date", label: "begins (now, if empty)", type: "time", optional: true },
        { name: "end_date", label: "ends", type: "time", value: localTime(Date.now() / 1000 + 3_600) },
        { name: "min", label: "hosts at least", type: "number", value: "1" },
        { name: "max", label: "hosts at most", type: "number", value: "1" },
        { name: "properties", label: "of these properties", optional: true, hint: '[">=", "$vcpus", "8"]' },
      ],
      call: (ns, values) => [
        "POST",
        `/ns/${part(ns)}/blazar/v1/leases`,
        {
          name: values.name,
          start_date: values.start_date ? minute(values.start_date) : "now",
          end_date: minute(values.end_date ?? ""),
          reservations: [
            {
              resource_type: "physical:host",
              min: Number(values.min),
              max: Number(values.max),
              resource_properties: values.properties,
              hypervisor_properties: "",
            },
          ],
          events: [],
        },
      ],
    },
    {
      name: "host",
      fields: () => [
        { name: "name", label: "name", hint: "rack-1" },
        { name: "vcpus", label: "vCPUs", type: "number", value: "8" },
        { name: "memory_mb", label: "memory, in MB", type: "number", value: "16384" },
      ],
      call: (ns, { name, vcpus, memory_mb }) => [
        "POST",
        `/ns/${part(ns)}/blazar/v1/os-hosts`,
        { name, vcpus: Number(vcpus), memory_mb: Number(memory_mb) },
      ],
    },
  ],
  systems: [
    {
      name: "system",
      fields: () => [
        { name: "name", label: "name", hint: "billing" },
        { name: "backend", label: "its services run", value: "local", options: both("local", "simulated") },
      ],
      call: (ns, values) => ["POST", `/api/v1/systems/${part(ns)}`, values],
    },
  ],
};

/** @param {...string} words @returns {[string, string][]} */
function both(...words) {
  return words.map((word) => [word, word]);
}

/** A namespace has to be there for groups of machines. @param {string} ns */
async function opened(ns) {
  const known = await get("/tumblebug/ns", { option: "id" });
  if (!known.output.includes(ns)) await send("POST", "/tumblebug/ns", { name: ns });
}

/** @returns {string} the namespace that is proposed */
function proposed() {
  if (store.ns !== ALL) return store.ns;
  const known = namespaces().filter((ns) => !ns.startsWith("("));
  return known.includes("default") ? "default" : (known[0] ?? "default");
}

/** Buttons that make something of a domain. @param {string} domain @param {() => void} then */
export function makers(domain, then) {
  if (!store.me?.domains?.includes(domain)) return [maker(anything(domain), then)];
  return (WISHES[domain] ?? []).map((wish) => maker(wish, then));
}

/** A button that makes any object. @param {string} kind @param {() => void} then */
export function anyMaker(kind, then) {
  return maker(anything(kind), then);
}

/** @param {Wish} wish @param {() => void} then */
function maker(wish, then) {
  if (!may(wish.right ?? "act")) return null;
  return h("button", { onclick: () => wishFor(wish, then), "data-makes": wish.name }, `New ${wish.name}`);
}

/** @param {Wish} wish @param {() => void} then */
async function wishFor(wish, then) {
  const ns = proposed();
  try {
    const fields = await wish.fields(ns);
    const known = namespaces().filter((one) => !one.startsWith("("));
    /** @type {Field} */
    const where = { name: "ns", label: "namespace", value: ns, options: known.map((one) => [one, one]) };
    const submit = async (/** @type {Values} */ { ns: chosen = ns, ...values }) => {
      await wish.first?.(chosen);
      await send(...wish.call(chosen, values));
      toast(`The ${wish.name} is on its way.`, "good");
      then();
    };
    const others = async (/** @type {string} */ chosen) => wish.fields(chosen);
    askFor(`New ${wish.name}`, "", [where, ...fields], "Make it", submit, others, wish.repeat);
  } catch (error) {
    showProblem(error);
  }
}

// --- any object ------------------------------------------------------------------------------------------------------

/** @param {string} wanted a kind, or the beginning of one @returns {Wish} */
function anything(wanted) {
  const kinds = [...store.kinds.keys()].filter((kind) => kind.startsWith(wanted)).sort();
  return {
    name: "object",
    fields: () => [
      { name: "kind", label: "kind", type: "choice", options: kinds.map((kind) => [kind, kind]), value: wanted },
      { name: "id", label: "id", hint: "web-1" },
      {
        name: "action",
        label: "with the action",
        optional: true,
        hint: "the first of its table",
        options: births(kinds),
      },
      { name: "parent", label: "part of", optional: true },
      { name: "labels", label: "labels", optional: true, hint: "tier=web, team=shop" },
      { name: "spec", label: "spec (JSON)", type: "long", optional: true, hint: "{}" },
    ],
    call: (ns, values) => ["POST", `/ns/${part(ns)}/objects`, bodyOf(values)],
  };
}

/** @param {string[]} kinds @returns {[string, string][]} the actions by which objects come to be */
function births(kinds) {
  const rows = kinds.flatMap((kind) => {
    const found = store.kinds.get(kind);
    return (found?.rows ?? []).filter((row) => found && row.sources.includes(found.initial)).map((row) => row.event);
  });
  return [...new Set(rows)].sort().map((event) => [event, event]);
}

/** @param {Values} values */
function bodyOf({ kind, id, action, parent, labels = "", spec = "" }) {
  const pairs = labels
    .split(",")
    .map((one) => one.trim())
    .filter(Boolean)
    .map((one) => one.split("=", 2));
  return {
    kind,
    id,
    action: action || null,
    parent: parent || null,
    labels: Object.fromEntries(pairs.map(([name, value]) => [name, value ?? ""])),
    spec: parsed(spec, "spec"),
  };
}

/** @param {string} text @param {string} field @returns {any} */
export function parsed(text, field) {
  try {
    return text ? JSON.parse(text) : null;
  } catch (error) {
    throw new Problem({ title: "This is not JSON", status: 0, code: "page", detail: String(error), field });
  }
}
