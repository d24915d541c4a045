// Edge: cloudlets with their agents and versions, how far an upgrade is, and what runs on them.

import { actionButton } from "/console/ui/object-actions.js";
import { get, part } from "/console/core/api.js";
import { fill, h } from "/console/core/dom.js";
import { hasOwnApi } from "/console/core/domains.js";
import { countStates, groupBy, liveObjects, pick } from "/console/core/live-objects.js";
import { pollResource } from "/console/core/polled-resource.js";
import { card, code, empty, heading, meter, note, objectAnchor, objectLine, plainList, quiet, shortenIds, stateSummary, table, wordOptions } from "/console/ui/components.js";
import { shape, stateBadge } from "/console/ui/states.js";
import { may } from "/console/core/store.js";
import { ago } from "/console/core/time.js";
import { createButtons } from "/console/ui/create-buttons.js";
import { objectOptions } from "/console/ui/form.js";

/** @import {ActionForm, Context, CreateForm, Domain, ObjectView} from "/console/core/types.js" */
/** @typedef {{version: string, settled: boolean, orders: number}} Agent as its controller sees it */
/** @typedef {{agents: Map<string, Agent>, orphans: Map<string, string[]>, rejected: Map<string, number>}} EdgeStatus */

const MAX_SHOWN = 12;
const KINDS = ["edge.cloudlet", "edge.clusterinst", "edge.appinst"];

/** @type {Record<string, [number, string]>} how far an upgrade is, of four steps */
const STEPS = {
  UpdateRequested: [1, "the agent was asked"],
  Updating: [2, "the new agent comes up"],
  Init: [3, "the new agent waits for the first message"],
  InitOk: [4, "the new agent sends its inventory"],
};

/** @param {Context} context */
async function show(context) {
  const list = h("div", { class: "column" });
  /** @type {EdgeStatus} */
  const status = { agents: new Map(), orphans: new Map(), rejected: new Map() };
  /** @type {ObjectView[]} */
  let shown = [];
  let again = () => {};
  const draw = () =>
    fill(list, page(shown, status, () => again()));
  fill(
    context.main,
    heading("Edge", "cloudlets, their agents, and what runs there", ...createButtons("edge", () => again())),
    list,
  );
  again = await liveObjects(context, KINDS, (things) => {
    shown = things;
    draw();
  });
  pollResource(context, "edge", readOwn, (all) => {
    for (const one of [status.agents, status.orphans, status.rejected]) one.clear();
    for (const [ns, [office, cloudlets]] of all) {
      for (const one of office.agents) status.agents.set(`${ns}/${one.cloudlet}`, one);
      for (const one of cloudlets) status.orphans.set(`${ns}/${one.id}`, one.conditions.orphans);
      for (const [why, count] of Object.entries(office.rejected)) status.rejected.set(why, Number(count));
    }
    draw();
  });
}

/** @param {string} ns @returns {Promise<[any, any[]]>} */
async function readOwn(ns) {
  const base = `/api/v1/edge/ns/${part(ns)}`;
  return Promise.all([get(`${base}/agents`), get(`${base}/cloudlets`)]);
}

/** @param {ObjectView[]} things @param {EdgeStatus} status @param {() => void} again */
function page(things, status, again) {
  const cloudlets = things.filter((one) => one.kind === "edge.cloudlet");
  if (!cloudlets.length)
    return empty(
      "There is no cloudlet yet.",
      "Make one with the button above, or: ",
      code("stateward edge cloudlet create oslo"),
    );
  const below = groupBy(
    things.filter((one) => one.kind !== "edge.cloudlet" && one.state !== "NotPresent"),
    (one) => `${one.ns}/${cloudletOf(one, things)}`,
  );
  return [
    card(
      "Cloudlets",
      versions(cloudlets),
      table(
        "Cloudlets",
        ["cloudlet", "state", "agent", "version", "upgrade", "runs there", "since", ""],
        cloudlets.map((one) => row(one, below.get(`${one.ns}/${one.id}`) ?? [], status, again)),
      ),
      rejections(status.rejected),
    ),
    h("div", { class: "grid" }, cloudlets.map((one) => runs(one, below.get(`${one.ns}/${one.id}`) ?? []))),
  ];
}

/** @param {Map<string, number>} rejected */
function rejections(rejected) {
  if (!rejected.size) return null;
  const words = [...rejected].map(([why, count]) => `${count} ${why}`).join(", ");
  return note(`Rejected reports of agents: ${words}.`);
}

/** @param {ObjectView} one @param {ObjectView[]} things @returns {string} the cloudlet that something runs on */
function cloudletOf(one, things) {
  const above = things.find((other) => other.ns === one.ns && other.id === one.parent);
  if (above && above.kind !== "edge.cloudlet") return cloudletOf(above, things);
  return above?.id ?? String(pick(one.spec, ["cloudlet", "region"]) ?? "");
}

/** @param {ObjectView} one */
function version(one) {
  return String(pick(one.seen, ["version", "agent.version"]) ?? "");
}

/** @param {ObjectView} one */
function wanted(one) {
  return String(pick(one.seen, ["target"]) ?? pick(one.spec, ["version", "target_version"]) ?? "");
}

/** @param {ObjectView[]} cloudlets */
function versions(cloudlets) {
  const known = groupBy(cloudlets.filter((one) => version(one)), version);
  const words = [...known].map(([name, some]) => `${some.length} at version ${name}`);
  return words.join(" · ") || "no agent has reported its version";
}

/** @param {ObjectView} one @param {ObjectView[]} below @param {EdgeStatus} status @param {() => void} again */
function row(one, below, status, again) {
  const connection = status.agents.get(`${one.ns}/${one.id}`) ?? null;
  const mine = version(one);
  const target = wanted(one);
  const moving = one.state in STEPS || one.state === "UpdateError";
  return [
    objectAnchor(one.ns, one.id),
    stateBadge(one),
    agent(one, connection, status.orphans.get(`${one.ns}/${one.id}`) ?? []),
    moving && mine && target && mine !== target ? `${mine} → ${target}` : mine || target || "?",
    upgrade(one, mine),
    below.length ? counts(below) : quiet("nothing"),
    ago(one.since),
    h(
      "span",
      { class: "row" },
      actionButton(one, "upgrade", ["Ready", "UpdateError"].includes(one.state), again),
      actionButton(one, "settle", one.state === "UpdateError" && may("govern") && hasOwnApi(one.kind), again),
    ),
  ];
}

/** @param {ObjectView[]} below */
function counts(below) {
  const clusters = below.filter((one) => one.kind === "edge.clusterinst").length;
  const apps = below.length - clusters;
  return `${clusters} cluster${clusters === 1 ? "" : "s"}, ${apps} app${apps === 1 ? "" : "s"}`;
}

/** @param {ObjectView} one @param {Agent | null} connection @param {string[]} orphans */
function agent(one, connection, orphans) {
  const serving = one.state !== "Offline" && Number(pick(one.seen, ["serving"]) ?? (one.state === "Ready" ? 1 : 0)) > 0;
  const controller = shortenIds(String(pick(one.seen, ["controller"]) ?? ""));
  const words = serving ? [`connected${controller ? ` to ${controller}` : ""}`] : ["not connected"];
  if (connection) words.push(connection.settled ? `${connection.orders} orders` : "settles");
  if (orphans.length) words.push(`${orphans.length} orphans`);
  const held = /** @type {any[]} */ (pick(one.seen, ["held"]) ?? []);
  if (held.length) words.push("another agent is held until a handover");
  return h("span", { class: "fine", title: orphans.join(", ") }, shape(serving ? "good" : "unknown"), words.join(", "));
}

/** @param {ObjectView} one @param {string} mine */
function upgrade(one, mine) {
  const [step, text] = (mine || one.state.startsWith("Up") ? STEPS[one.state] : null) ?? [0, ""];
  if (step)
    return h("span", { class: "steps-of" }, meter(step, 4, `Upgrade of ${one.id}`, "moving"), `${step} of 4: ${text}`);
  if (one.state === "UpdateError") return h("span", { class: "error-text" }, one.error ?? "failed");
  return mine ? "none under way" : quiet("no agent has connected");
}

/** @param {ObjectView} one @param {ObjectView[]} below */
function runs(one, below) {
  const kinds = groupBy(below, (thing) => thing.kind);
  const nameOf = (/** @type {ObjectView} */ thing) => thing.id.slice(thing.id.indexOf(":") + 1);
  const parts = [...kinds].map(([kind, some]) =>
    h(
      "div",
      { class: "column" },
      h("h3", null, kind === "edge.clusterinst" ? "Clusters" : "Apps"),
      stateSummary(kind, countStates(some)),
      plainList(some.slice(0, MAX_SHOWN).map((thing) => h("li", null, objectLine(thing, size(thing), nameOf(thing))))),
    ),
  );
  return card(one.id, [stateBadge(one)], parts.length ? parts : note("Nothing runs there."));
}

/** @param {ObjectView} thing */
function size(thing) {
  const nodes = Number(pick(thing.spec, ["nodes"]) ?? 0);
  if (thing.kind === "edge.clusterinst" && nodes) return `${nodes} node${nodes === 1 ? "" : "s"}`;
  return String(pick(thing.spec, ["app"]) ?? "");
}

// --- actions --------------------------------------------------------------------------------------------------------

/** @param {ObjectView} thing */
const cloudletPath = (thing) => `/api/v1/edge/ns/${part(thing.ns)}/cloudlets/${part(thing.id)}`;

/** @type {Record<string, Record<string, ActionForm>>} */
const ACTIONS = {
  "edge.cloudlet": {
    upgrade: {
      fields: (thing) => [
        { name: "version", label: "version", hint: `another than ${pick(thing.seen, ["version"]) ?? "now"}` },
        { name: "within", label: "seconds that the new agent has to come up", type: "number", value: "60" },
      ],
      call: (thing, _, values) => [
        "POST",
        `${cloudletPath(thing)}/upgrade`,
        { version: values.version, within: Number(values.within) },
      ],
    },
    settle: { call: (thing) => ["POST", `${cloudletPath(thing)}/fix`] },
    delete: { call: (thing) => ["DELETE", cloudletPath(thing)] },
  },
  "edge.clusterinst": {
    update: {
      fields: (thing) => [
        { name: "nodes", label: "nodes", type: "number", value: String(pick(thing.spec, ["nodes"]) ?? 1) },
      ],
      call: (thing, _, values) => {
        const [where = "", name = ""] = thing.id.split(":");
        const path = `${cloudletPath({ ...thing, id: where })}/clusterinsts/${part(name)}`;
        return ["PATCH", path, { nodes: Number(values.nodes) }];
      },
    },
  },
};

// --- create forms ---------------------------------------------------------------------------------------------------

/** @type {CreateForm[]} */
const CREATE_FORMS = [
  {
    name: "cloudlet",
    fields: () => [
      { name: "name", label: "name", hint: "oslo" },
      { name: "missing", label: "missing instances", type: "choice", options: wordOptions("recreate", "leave") },
      { name: "orphans", label: "orphans", type: "choice", options: wordOptions("report", "remove") },
    ],
    call: (ns, values) => ["POST", `/api/v1/edge/ns/${part(ns)}/cloudlets`, values],
  },
  {
    name: "cluster",
    fields: async (ns) => [
      { name: "cloudlet", label: "on the cloudlet", type: "choice", options: await objectOptions(ns, "edge.cloudlet") },
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
      { name: "cluster", label: "in the cluster", type: "choice", options: await objectOptions(ns, "edge.clusterinst") },
      { name: "app", label: "app", type: "choice", options: await objectOptions(ns, "edge.app") },
    ],
    call: (ns, { cluster = "", app = "" }) => {
      const [where = "", name = ""] = cluster.split(":");
      const path = `/api/v1/edge/ns/${part(ns)}/cloudlets/${part(where)}/clusterinsts/${part(name)}/appinsts`;
      return ["POST", path, { app: app.split(":").at(-1) }];
    },
  },
];

/** @type {Domain} */
export default {
  name: "edge",
  nav: "Edge",
  hotkey: "e",
  view: { title: "Edge", show },
  actions: ACTIONS,
  createForms: CREATE_FORMS,
};
