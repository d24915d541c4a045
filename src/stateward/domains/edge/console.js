// Edge: cloudlets with their agents and versions, how far an upgrade is, and what runs on them.

import { actionButton } from "/console/ui/object-actions.js";
import { get, isOutage, part } from "/console/core/api.js";
import { fill, h } from "/console/core/dom.js";
import { hasOwnApi } from "/console/core/domains.js";
import { countObjects, countsBy, rowsBy } from "/console/core/counts.js";
import { groupBy, liveObjects, pick } from "/console/core/live-objects.js";
import { allRows } from "/console/core/pagination.js";
import { pollResource } from "/console/core/polled-resource.js";
import { card, code, empty, heading, meter, note, objectAnchor, objectLine, plainList, quiet, relativeTime, restNote, shortenIds, stateSummary, table, wordOptions } from "/console/ui/components.js";
import { shape, stateBadge } from "/console/ui/states.js";
import { chosenNamespaces, countOf, may } from "/console/core/store.js";
import { keepRead } from "/console/core/live-reading.js";
import { createButtons } from "/console/ui/create-buttons.js";
import { outputCards } from "/console/ui/log-view.js";
import { objectOptions } from "/console/ui/form.js";
import { counted, numberText } from "/console/core/numbers.js";
import { ago } from "/console/core/time.js";

/** @import {ActionForm, Context, CreateForm, Domain, JournalEntry, ObjectView} from "/console/core/types.js" */
/** @import {Field} from "/console/ui/form.js" */
/** @typedef {{version: string, settled: boolean, orders: number}} Agent as its controller sees it */
/** @typedef {Map<string, Map<string, Map<string, number>>>} Below the number of what runs on each cloudlet, by kind and state */
/** @typedef {{cpu: number | null, mem: number | null, connections: number | null, healthy: boolean | null}} Load of an instance, as its agent measured it */
/** @typedef {{name: string, reason: string, since: number}} Alert */
/** @typedef {{part: string, port: number, address: string, host_port: number}} Port of an app that its host publishes */
/** @typedef {{names: string[], count: number}} Orphans the first by name, and the number of all */
/** @typedef {{agents: Map<string, Agent>, below: Below, orphans: Map<string, Orphans>, rejected: Map<string, number>, loads: Map<string, Load>, capacities: Map<string, Capacity>}} EdgeStatus */
/** @typedef {{cores: number | null, memory: number | null, used_cores: number, used_memory: number}} Capacity of a cloudlet; null is no limit */

const MAX_SHOWN = 12;
const MAX_CLOUDLETS = 100;
const MAX_PORTS = 3;
const HELD_GONE_AFTER_S = 120; // as the server counts
const KINDS = ["edge.cloudlet", "edge.clusterinst", "edge.appinst"];

/** @type {Record<string, [number, string]>} how far an upgrade is, of four steps */
const STEPS = {
  UpdateRequested: [1, "the agent was asked"],
  Updating: [2, "the new agent starts"],
  Init: [3, "the new agent waits for the first message"],
  InitOk: [4, "the new agent sends its inventory"],
};

/** @param {Context} context */
async function show(context) {
  const list = h("div", { class: "column" });
  /** @type {EdgeStatus} */
  const status = { agents: new Map(), below: new Map(), orphans: new Map(), rejected: new Map(), loads: new Map(), capacities: new Map() };
  /** @type {ObjectView[]} */
  let shown = [];
  let again = () => {};
  const draw = () =>
    fill(list, page(shown, status, () => again()));
  fill(
    context.main,
    heading("Edge", "cloudlets, their agents, clusters and apps", ...createButtons("edge", () => again())),
    list,
  );
  again = await liveObjects(context, KINDS, (things) => {
    shown = things;
    draw();
  });
  keepRead(context, (entry) => KINDS.includes(entry.kind), async () => {
    status.below = await countBelow(context.signal);
    draw();
  });
  pollResource(context, "edge", readOwn, (all) => {
    for (const one of [status.agents, status.orphans, status.rejected, status.loads, status.capacities]) one.clear();
    for (const [ns, [office, cloudlets, ...instances]] of all) {
      for (const one of instances.flat()) if (one.load) status.loads.set(`${ns}/${one.id}`, one.load);
      for (const one of office.agents) status.agents.set(`${ns}/${one.cloudlet}`, one);
      for (const one of cloudlets) {
        status.orphans.set(`${ns}/${one.id}`, { names: one.conditions.orphans, count: one.conditions.orphan_count });
        if (one.capacity) status.capacities.set(`${ns}/${one.id}`, one.capacity);
      }
      for (const [why, count] of Object.entries(office.rejected)) status.rejected.set(why, Number(count));
    }
    draw();
  });
}

/** @param {string} ns @returns {Promise<[any, any[], any[], any[]]>} */
async function readOwn(ns) {
  const base = `/api/v1/edge/ns/${part(ns)}`;
  return Promise.all([
    get(`${base}/agents`),
    allRows(`${base}/cloudlets`),
    allRows(`${base}/clusterinsts`),
    allRows(`${base}/appinsts`),
  ]);
}

/** Count what runs on the cloudlets, by kind and state. @param {AbortSignal} signal @returns {Promise<Below>} */
async function countBelow(signal) {
  /** @type {Below} */
  const below = new Map();
  for (const ns of chosenNamespaces()) {
    for (const kind of ["edge.clusterinst", "edge.appinst"]) {
      const { rows } = await countObjects(ns, ["parent", "state"], { kind }, signal);
      for (const [parent, some] of rowsBy(rows, 0)) {
        const key = `${ns}/${parent}`;
        const present = some.filter((row) => row.values[1] !== "NotPresent");
        if (present.length) below.set(key, (below.get(key) ?? new Map()).set(kind, countsBy(present, 1)));
      }
    }
  }
  return below;
}

/** @param {ObjectView[]} things @param {EdgeStatus} status @param {() => void} again */
function page(things, status, again) {
  const cloudlets = things.filter((one) => one.kind === "edge.cloudlet");
  if (!cloudlets.length)
    return empty(
      "No cloudlets yet.",
      "Create one with the button above, or: ",
      code("stateward edge cloudlet create oslo"),
    );
  const below = groupBy(
    things.filter((one) => one.kind !== "edge.cloudlet" && one.state !== "NotPresent"),
    (one) => `${one.ns}/${cloudletOf(one, things)}`,
  );
  const listed = cloudlets.slice(0, MAX_CLOUDLETS);
  return [
    card(
      "Cloudlets",
      versions(cloudlets),
      table(
        "Cloudlets",
        ["cloudlet", "state", "agent", "version", "upgrade", "instances", "since", ""],
        listed.map((one) => row(one, status, again)),
      ),
      restNote(listed.length, countOf("edge.cloudlet"), { kind: "edge.cloudlet" }),
      rejections(status.rejected),
    ),
    h("div", { class: "grid" }, listed.map((one) => runs(one, below.get(`${one.ns}/${one.id}`) ?? [], status))),
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
  const first = countOf("edge.cloudlet") > cloudlets.length ? `of the first ${numberText(cloudlets.length)}: ` : "";
  return words.length ? first + words.join(" · ") : "no agent has reported its version";
}

/** @param {ObjectView} one @param {EdgeStatus} status @param {() => void} again */
function row(one, status, again) {
  const connection = status.agents.get(`${one.ns}/${one.id}`) ?? null;
  const mine = version(one);
  const target = wanted(one);
  const moving = one.state in STEPS || one.state === "UpdateError";
  return [
    objectAnchor(one.ns, one.id),
    stateBadge(one),
    agent(one, connection, status.orphans.get(`${one.ns}/${one.id}`) ?? { names: [], count: 0 }),
    moving && mine && target && mine !== target ? `${mine} → ${target}` : mine || target || "?",
    upgrade(one, mine),
    counts(status.below.get(`${one.ns}/${one.id}`)),
    relativeTime(one.since),
    h(
      "span",
      { class: "row" },
      actionButton(one, "upgrade", ["Ready", "UpdateError", "Maintenance"].includes(one.state), again),
      actionButton(one, "maintain", ["Ready", "Offline"].includes(one.state), again),
      actionButton(one, "resume", one.state === "Maintenance", again),
      actionButton(one, "settle", one.state === "UpdateError" && may("govern") && hasOwnApi(one.kind), again),
    ),
  ];
}

/** @param {Map<string, Map<string, number>> | undefined} below the numbers of what runs there */
function counts(below) {
  if (!below) return quiet("none");
  const [clusters = 0, apps = 0] = ["edge.clusterinst", "edge.appinst"].map((kind) =>
    [...(below.get(kind)?.values() ?? [])].reduce((sum, count) => sum + count, 0),
  );
  return `${counted(clusters, "cluster")}, ${counted(apps, "app")}`;
}

/** @param {ObjectView} one @param {Agent | null} connection @param {Orphans} orphans */
function agent(one, connection, orphans) {
  const serving = one.state !== "Offline" && Number(pick(one.seen, ["serving"]) ?? (one.state === "Ready" ? 1 : 0)) > 0;
  const controller = shortenIds(String(pick(one.seen, ["controller"]) ?? ""));
  const words = serving ? [`connected${controller ? ` to ${controller}` : ""}`] : ["not connected"];
  if (connection) words.push(connection.settled ? counted(connection.orders, "order") : "settles");
  if (orphans.count) words.push(counted(orphans.count, "orphan"));
  const others = orphans.count - orphans.names.length;
  const names = [...orphans.names, ...(others > 0 ? [`and ${counted(others, "other")}`] : [])].join(", ");
  const held = /** @type {any[]} */ (pick(one.seen, ["held"]) ?? []);
  if (held.some(({ dialled }) => Date.now() / 1000 - dialled < HELD_GONE_AFTER_S)) words.push("another agent is held until a handover");
  return h("span", { class: "fine", title: names }, shape(serving ? "good" : "unknown"), words.join(", "));
}

/** @param {ObjectView} one @param {string} mine */
function upgrade(one, mine) {
  const [step, text] = (mine || one.state.startsWith("Up") ? STEPS[one.state] : null) ?? [0, ""];
  if (step)
    return h("span", { class: "steps-of" }, meter(step, 4, `Upgrade of ${one.id}`, "moving"), `${step} of 4: ${text}`);
  if (one.state === "UpdateError") return h("span", { class: "error-text" }, one.error ?? "failed");
  return mine ? "none under way" : quiet("no agent has connected");
}

/** @param {Load | null | undefined} load as it was measured last @returns {string} */
function loadText(load) {
  if (!load) return "";
  const words = [
    load.cpu === null ? "" : `${load.cpu.toFixed(2)} cores`,
    load.mem === null ? "" : `${Math.round(load.mem / 2 ** 20)} MiB`,
    load.connections ? counted(load.connections, "connection") : "",
    load.healthy === null ? "" : load.healthy ? "healthy" : "unhealthy",
  ];
  return words.filter(Boolean).join(", ");
}

/** The alerts of an instance or a cloudlet. @param {ObjectView} thing */
function alerts(thing) {
  const found = /** @type {Alert[]} */ (pick(thing.seen, ["alerts"]) ?? []);
  return found.map((one) =>
    h("span", { class: "error-text fine", title: ago(one.since) }, `${one.name}: ${one.reason}`),
  );
}

/** @param {Port} one */
const portText = (one) => `${one.part}: ${one.port} at ${one.address}:${one.host_port}`;

/** Where the published ports of an app are reached. @param {ObjectView} thing @returns {string} */
function portsText(thing) {
  const found = /** @type {Port[]} */ (pick(thing.seen, ["ports"]) ?? []);
  const shown = found.slice(0, MAX_PORTS).map(portText);
  return [...shown, found.length > shown.length ? `${found.length - shown.length} more` : ""].filter(Boolean).join(", ");
}

/** What clusters take of what a cloudlet has. @param {string} name @param {Capacity | undefined} capacity */
function capacityMeters(name, capacity) {
  if (!capacity) return null;
  const { cores, memory } = capacity;
  const mib = (/** @type {number} */ bytes) => Math.round(bytes / 2 ** 20);
  return h(
    "div",
    { class: "steps-of" },
    cores ? [meter(capacity.used_cores, cores, `Cores of ${name}`), `${capacity.used_cores} of ${cores} cores`] : null,
    memory
      ? [meter(capacity.used_memory, memory, `Memory of ${name}`), `${mib(capacity.used_memory)} of ${mib(memory)} MiB`]
      : null,
  );
}

/** @param {ObjectView} one @param {ObjectView[]} listed @param {EdgeStatus} status */
function runs(one, listed, { below, loads, capacities }) {
  const kinds = groupBy(listed, (thing) => thing.kind);
  const numbers = below.get(`${one.ns}/${one.id}`);
  const nameOf = (/** @type {ObjectView} */ thing) => thing.id.slice(thing.id.indexOf(":") + 1);
  const parts = [...kinds].map(([kind, some]) =>
    h(
      "div",
      { class: "column" },
      h("h3", null, kind === "edge.clusterinst" ? "Clusters" : "Apps"),
      stateSummary(kind, numbers?.get(kind) ?? new Map()),
      plainList(
        some.slice(0, MAX_SHOWN).map((thing) =>
          h("li", null, objectLine(thing, [size(thing), loadText(loads.get(`${thing.ns}/${thing.id}`)), portsText(thing)].filter(Boolean).join(", "), nameOf(thing)), alerts(thing)),
        ),
      ),
    ),
  );
  return card(one.id, [stateBadge(one)], alerts(one), capacityMeters(one.id, capacities.get(`${one.ns}/${one.id}`)), parts.length ? parts : note("No clusters or apps."));
}

/** @param {ObjectView} thing */
function size(thing) {
  const nodes = Number(pick(thing.spec, ["nodes"]) ?? 0);
  if (thing.kind === "edge.clusterinst" && nodes) return counted(nodes, "node");
  return String(pick(thing.spec, ["app"]) ?? "");
}

// --- actions --------------------------------------------------------------------------------------------------------

/** @param {ObjectView} thing */
const cloudletPath = (thing) => `/api/v1/edge/ns/${part(thing.ns)}/cloudlets/${part(thing.id)}`;

/** The policies of a cloudlet. @param {any} [missing] @param {any} [orphans] the present ones @returns {Field[]} */
const policyFields = (missing, orphans) => [
  { name: "missing", label: "missing instances", type: "choice", value: missing, options: wordOptions("recreate", "leave") },
  { name: "orphans", label: "orphans", type: "choice", value: orphans, options: wordOptions("report", "remove") },
];

/** @type {Record<string, Record<string, ActionForm>>} */
const ACTIONS = {
  "edge.cloudlet": {
    upgrade: {
      fields: (thing) => [
        { name: "version", label: "version", hint: `other than ${pick(thing.seen, ["version"]) ?? "now"}` },
        { name: "within", label: "seconds for the new agent to connect", type: "number", value: "60" },
      ],
      call: (thing, _, values) => [
        "POST",
        `${cloudletPath(thing)}/upgrade`,
        { version: values.version, within: Number(values.within) },
      ],
    },
    change: {
      fields: (thing) => policyFields(pick(thing.spec, ["missing"]), pick(thing.spec, ["orphans"])),
      call: (thing, _, values) => ["PATCH", cloudletPath(thing), values],
      preview: (_, values) => ({ action: "change", args: { change: values } }),
    },
    maintain: { call: (thing) => ["POST", `${cloudletPath(thing)}/maintain`] },
    resume: { call: (thing) => ["POST", `${cloudletPath(thing)}/resume`] },
    fix: { call: (thing) => ["POST", `${cloudletPath(thing)}/fix`] },
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

// --- load and health ------------------------------------------------------------------------------------------------

/** @typedef {{node: string, up: boolean, cpu: number | null, mem: number | null}} NodeLoad */

/** The path of a cloudlet or an instance in the domain's own API. @param {ObjectView} thing */
function ownPath(thing) {
  const [cloudlet = "", ...inner] = thing.id.split(":");
  const names = ["clusterinsts", "appinsts"].flatMap((name, nth) => (inner[nth] ? [name, part(inner[nth])] : []));
  return [cloudletPath({ ...thing, id: cloudlet }), ...names].join("/");
}

/** What the agent tells of a cloudlet or an instance: alerts, load, health, published ports. @param {ObjectView} thing @param {Context} context */
function healthCard(thing, context) {
  const about = h("div", { class: "column" });
  const path = ownPath(thing);
  const concerns = (/** @type {JournalEntry} */ entry) =>
    entry.ns === thing.ns && `${thing.id}:`.startsWith(`${entry.object}:`); // its cloudlet, too: without an agent, loads are unknown
  keepRead(context, concerns, async () => {
    const found = await get(path, {}, context.signal).catch(nothingIfGone);
    if (found && !context.signal.aborted) fill(about, healthLines(thing, found));
  });
  return [card("Health and load", "as its agent has told last", about)];
}

/** @param {unknown} error */
function nothingIfGone(error) {
  if (isOutage(error)) throw error;
  return null;
}

/** @param {ObjectView} thing @param {any} found its view in the domain's own API */
function healthLines(thing, found) {
  const raised = /** @type {{name: string, reason: string}[]} */ (found.conditions.alerts);
  const nodes = /** @type {NodeLoad[]} */ (found.load?.nodes ?? []);
  const isInstance = thing.kind !== "edge.cloudlet";
  return [
    raised.length
      ? raised.map((one) => h("span", { class: "error-text" }, `${one.name}: ${one.reason}`))
      : note("No alerts."),
    isInstance ? h("span", null, loadText(found.load) || "load unknown") : null,
    nodes.map((one) => h("span", { class: "fine" }, `node ${one.node}: ${one.up ? loadText({ ...one, connections: null, healthy: null }) || "load unknown" : "down"}`)),
    found.ports.map((/** @type {Port} */ one) => h("span", { class: "fine" }, portText(one))),
    capacityMeters(thing.id, found.capacity ?? undefined),
  ];
}

// --- logs and commands ----------------------------------------------------------------------------------------------

/** The output of an app instance, which its agent reads. @param {ObjectView} thing @param {Context} context */
function appOutput(thing, context) {
  const [cloudlet = "", cluster = "", app = ""] = thing.id.split(":");
  const path = ownPath(thing);
  const names = [`${cloudlet}/${cluster}/${app}`];
  return outputCards(context, {
    ns: thing.ns,
    name: thing.id,
    noun: "part",
    read: async ({ part: chosen, after, most }, signal) => {
      const found = await get(`${path}/logs`, { part: chosen, after, most }, signal);
      return found.map((/** @type {any} */ { part: name, text, next }) => ({ name, text, next }));
    },
    command: (chosen) => ({ command: "edge appinst logs --follow", options: [["--part", chosen]], names }),
    exec: {
      otherwise: "its first part",
      call: ({ argv, part: chosen, timeout }) => ["POST", `${path}/exec`, { argv, part: chosen, within: timeout }],
      outcome: ({ status, written, omitted }) => ({
        status,
        stdout: written,
        stderr: "",
        left: omitted ? `${counted(omitted, "byte")} of output before that are not shown.` : "",
      }),
      command: ({ argv, part: chosen, timeout }) => ({
        command: "edge appinst exec",
        options: [["--part", chosen], ["--within", timeout]],
        names,
        words: argv,
      }),
    },
  });
}

// --- create forms ---------------------------------------------------------------------------------------------------

/** @param {string} id of an app's record @returns {string} its name */
const appName = (id) => id.slice(id.indexOf(".") + 1);

/** @type {CreateForm[]} */
const CREATE_FORMS = [
  {
    name: "cloudlet",
    fields: () => [
      { name: "name", label: "name", hint: "oslo" },
      ...policyFields(),
    ],
    call: (ns, values) => ["POST", `/api/v1/edge/ns/${part(ns)}/cloudlets`, values],
    command: (_, { name = "", missing, orphans }) => ({
      command: "edge cloudlet create",
      options: [["--missing", missing], ["--orphans", orphans]],
      names: [name],
    }),
    planned: () => ["It waits there until an agent connects."],
  },
  {
    name: "cluster",
    fields: async (ns) => [
      { name: "cloudlet", label: "cloudlet", type: "choice", options: await objectOptions(ns, "edge.cloudlet") },
      { name: "name", label: "name", hint: "k8s" },
      { name: "nodes", label: "nodes", type: "number", value: "1" },
    ],
    call: (ns, { cloudlet = "", name, nodes }) => [
      "POST",
      `/api/v1/edge/ns/${part(ns)}/cloudlets/${part(cloudlet)}/clusterinsts`,
      { name, nodes: Number(nodes) },
    ],
    command: (_, { cloudlet, name, nodes }) => ({
      command: "edge clusterinst create",
      options: [["--nodes", nodes]],
      names: [`${cloudlet}/${name}`],
    }),
    planned: (_, { cloudlet, nodes }) => [`The agent of ${cloudlet} then starts ${counted(Number(nodes), "node")}.`],
  },
  {
    name: "app instance",
    fields: async (ns) => [
      { name: "cluster", label: "cluster", type: "choice", options: await objectOptions(ns, "edge.clusterinst") },
      { name: "app", label: "app", type: "choice", options: await objectOptions(ns, "edge.app") },
    ],
    call: (ns, { cluster = "", app = "" }) => {
      const [where = "", name = ""] = cluster.split(":");
      const path = `/api/v1/edge/ns/${part(ns)}/cloudlets/${part(where)}/clusterinsts/${part(name)}/appinsts`;
      return ["POST", path, { app: appName(app) }];
    },
    command: (_, { cluster = "", app = "" }) => ({
      command: "edge appinst create",
      names: [`${cluster.replace(":", "/")}/${appName(app)}`],
    }),
    planned: (_, { cluster = "" }) => [`The agent of ${cluster.split(":")[0]} then starts it.`],
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
  panels: {
    "edge.cloudlet": healthCard,
    "edge.clusterinst": healthCard,
    "edge.appinst": (thing, context) => [...healthCard(thing, context), ...appOutput(thing, context)],
  },
};
