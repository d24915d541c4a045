// Systems: the tree of services with their states, and the tree of locks: who holds what, and who waits.

import { actionButton, showAllowedActions } from "/console/ui/object-actions.js";
import { get, part, send } from "/console/core/api.js";
import { fill, fillIfChanged, h, throttle } from "/console/core/dom.js";
import { hasOwnApi } from "/console/core/domains.js";
import { liveObjects, pick } from "/console/core/live-objects.js";
import { allRows } from "/console/core/pagination.js";
import { pollResource } from "/console/core/polled-resource.js";
import { may } from "/console/core/store.js";
import { card, code, confirm, empty, errorText, heading, meter, note, objectAnchor, objectLine, plainList, quiet, relativeTime, shortId, table, wordOptions } from "/console/ui/components.js";
import { shape, stateBadge, toneOf } from "/console/ui/states.js";
import { ago, seconds, span } from "/console/core/time.js";
import { outputCards } from "/console/ui/log-view.js";
import { createButtons } from "/console/ui/create-buttons.js";
import { attempt, toast } from "/console/ui/problems.js";
import { counted, numberText } from "/console/core/numbers.js";

/** @import {ActionForm, Context, CreateForm, Domain, JournalEntry, Lock, Operation, ObjectView} from "/console/core/types.js" */
/** @import {Field, Values} from "/console/ui/form.js" */
/** @import {LogExcerpt} from "/console/ui/log-view.js" */
/** @typedef {Lock & {by: Operation | null}} Held a lock with the operation that holds it or waits for it */
/** @typedef {{name: string, phase: string, ready: boolean, restarts: number, node: string | null, why: string}} Instance */
/** @typedef {{locks: HTMLElement, actions: HTMLElement, jobs: HTMLElement}} SystemPlaces what is not drawn again with its system */
/** @typedef {{name: string, used_slots: number, used_cpu: number, used_memory: number}} Node what is used of it */
/** @typedef {{id: string, version: number, key: string, changed: string, used_by: string[]}} Secret without its value */
/** @typedef {{instances: [string, Instance[]][], nodes: Node[], secrets: Secret[]}} Resources of a namespace */

const SECRET = "systems.secret";
const NODE = "systems.node";
const JOB = "systems.job";
const RUN = "systems.jobrun";
const KINDS = ["systems.system", "systems.service", "systems.nodepool", "systems.deploy", "systems.teardown", SECRET, JOB, RUN, NODE];
const CHANGES = ["systems.deploy", "systems.teardown"];
const MAX_CHANGES = 12;
const MAX_RUNS = 3;
const DEBOUNCE_MS = 100;
const MAX_OPERATIONS = 500;

/** @type {Record<string, string>} what a lock lets its holder do */
const MODES = {
  IS: "intends to read below",
  IX: "intends to change below",
  S: "reads",
  SIX: "reads, and intends to change below",
  X: "changes",
};

/** @param {Context} context */
async function show(context) {
  const list = h("div", { class: "column" });
  const nodePlace = h("div", { class: "column" });
  const secretPlace = h("div", { class: "column" });
  /** @type {Map<string, SystemPlaces>} */
  const places = new Map();
  /** @type {Map<string, Promise<Operation>>} */
  const operations = new Map();
  /** @type {Map<string, Instance[]>} */
  const instances = new Map();
  /** @type {Map<string, Node>} by namespace and name */
  const nodes = new Map();
  /** @type {Map<string, Secret>} by namespace and id */
  const secrets = new Map();
  /** @type {ObjectView[]} */
  let shown = [];
  let again = () => {};
  const systems = () => shown.filter((one) => one.kind === "systems.system");
  const draw = () => {
    fill(
      list,
      systems().length
        ? systems().map((one) => system(one, shown, instances, places, () => again()))
        : empty(
            "No systems yet.",
            "Create one with the button above, then deploy to it. Or: ",
            code("stateward system create billing --file billing.yaml"),
          ),
    );
    const [hosts, values] = [NODE, SECRET].map((kind) => shown.filter((one) => one.kind === kind));
    fillIfChanged(nodePlace, [hosts, [...nodes]], () => nodeCard(hosts ?? [], nodes, () => again()));
    fillIfChanged(secretPlace, [values, [...secrets], minute()], () => secretCard(values ?? [], secrets, () => again()));
  };
  fill(
    context.main,
    heading("Systems", "trees of services, changed under intention locks", ...createButtons("systems", () => again())),
    list,
    nodePlace,
    secretPlace,
  );
  again = await liveObjects(context, KINDS, (things) => {
    shown = things;
    draw();
    for (const one of systems()) {
      const place = places.get(`${one.ns}/${one.id}`)?.actions;
      if (place) showAllowedActions(place, one, context.signal, () => again());
    }
  });
  pollResource(
    context,
    "systems",
    (ns) => readResources(ns, shown.filter((one) => one.ns === ns)),
    (found) => {
      for (const one of [instances, nodes, secrets]) one.clear();
      for (const [ns, resources] of found) {
        for (const [id, all] of resources.instances) instances.set(id, all);
        for (const one of resources.nodes) nodes.set(`${ns}/${one.name}`, one);
        for (const one of resources.secrets) secrets.set(`${ns}/${one.id}`, one);
      }
      draw();
    },
  );
  const readLocks = () => Promise.all(systems().map((one) => showLocks(one, places, operations, context.signal)));
  const soon = throttle(DEBOUNCE_MS, () => void readLocks().catch(() => {}));
  context.on("entries", (/** @type {JournalEntry[]} */ entries) => {
    if (entries.some((entry) => CHANGES.includes(entry.kind))) soon();
  });
  context.every(2, readLocks);
}

/** What only the API of the domain tells about the objects of a namespace. @param {string} ns @param {ObjectView[]} mine @returns {Promise<Resources>} */
async function readResources(ns, mine) {
  const has = (/** @type {string} */ kind) => mine.some((one) => one.kind === kind);
  const [nodes, secrets, ...systems] = await Promise.all([
    has(NODE) ? allRows(nodePath(ns), "name") : [],
    has(SECRET) ? get(secretPath(ns)) : [],
    ...mine.filter((one) => one.kind === "systems.system").map((one) => get(systemPath(one), { instances: "true" })),
  ]);
  const services = systems.flatMap((one) => one.services);
  return { nodes, secrets, instances: services.map((one) => [`${ns}/${one.id}`, one.instances ?? []]) };
}

/** The minute of now: times are told anew when it is over. */
const minute = () => Math.floor(Date.now() / 60_000);

/** @param {ObjectView} one @param {ObjectView[]} things @param {Map<string, Instance[]>} instances @param {Map<string, SystemPlaces>} places @param {() => void} again */
function system(one, things, instances, places, again) {
  const key = `${one.ns}/${one.id}`;
  const place = places.get(key) ?? {
    locks: h("div", { class: "locks-tree" }, note("…")),
    actions: h("div", { class: "actions" }),
    jobs: h("div", { class: "column" }),
  };
  places.set(key, place);
  const mine = things.filter((other) => other.ns === one.ns && belongs(other, one, things));
  const changes = mine.filter((other) => CHANGES.includes(other.kind));
  const [jobs, runs] = [JOB, RUN].map((kind) => mine.filter((other) => other.kind === kind));
  fillIfChanged(place.jobs, [jobs, runs, minute()], () => jobCard(one.id, jobs ?? [], runs ?? [], again));
  const parts = mine.filter((other) => other !== one && ![...CHANGES, JOB, RUN].includes(other.kind));
  return h(
    "div",
    { class: "columns", "data-system": one.id },
    h(
      "div",
      { class: "column" },
      card(
        one.id,
        [stateBadge(one), h("span", null, one.ns), h("span", null, `on ${pick(one.spec, ["backend"]) ?? "?"}`)],
        parts.length
          ? h("div", { class: "tree" }, tree(parts, one.id, instances))
          : note("No services deployed yet."),
        one.error ? h("p", { class: "error-text" }, one.error) : null,
        place.actions,
      ),
      place.jobs,
    ),
    h(
      "div",
      { class: "column" },
      card(`Locks of ${one.id}`, "who holds what, who waits", place.locks),
      changes.length
        ? card(`Changes of ${one.id}`, "newest first", plainList(newest(changes).map(change)))
        : null,
    ),
  );
}

/** The jobs of a system, with their last runs. @param {string} system @param {ObjectView[]} jobs @param {ObjectView[]} runs @param {() => void} again */
function jobCard(system, jobs, runs, again) {
  if (!jobs.length) return null;
  const row = (/** @type {ObjectView} */ job) => {
    const own = newest(runs.filter((run) => run.parent === job.id)).slice(0, MAX_RUNS);
    return [
      objectAnchor(job.ns, job.id, pathOf(job, system).join("/")),
      [stateBadge(job), errorText(job.error)],
      String(pick(job.spec, ["job.schedule", "job.hook"]) ?? "on request"),
      nextRun(job),
      own.length ? plainList(own.map((run) => runLine(run, again))) : quiet("none"),
      h(
        "span",
        { class: "buttons" },
        actionButton(job, "run", job.state !== "deleting", again),
        actionButton(job, "suspend", job.state === "active", again),
        actionButton(job, "resume", job.state === "suspended", again),
      ),
    ];
  };
  const columns = ["job", "state", "schedule", "next", "last runs", ""];
  return card(`Jobs of ${system}`, "with their last runs", table(`Jobs of ${system}`, columns, jobs.map(row)));
}

/** @param {ObjectView} run @param {() => void} again */
function runLine(run, again) {
  const isOpen = run.state_class === "transitional";
  return h("li", null, stateBadge(run), objectAnchor(run.ns, run.id, ago(run.created)), errorText(run.error), actionButton(run, "cancel", isOpen, again));
}

/** @param {ObjectView} job */
function nextRun(job) {
  const next = pick(job.seen, ["next"]);
  return typeof next === "number" ? relativeTime(new Date(next * 1000).toISOString()) : quiet("none");
}

/** The hosts of services, what each of them has, and what is used of it. @param {ObjectView[]} hosts @param {Map<string, Node>} nodes @param {() => void} again */
function nodeCard(hosts, nodes, again) {
  if (!hosts.length) return null;
  const row = (/** @type {ObjectView} */ one) => {
    const { connected, version, address, containers, slots, cpu, memory } = one.seen ?? {};
    const used = nodes.get(`${one.ns}/${one.id}`);
    const labels = Object.entries(pick(one.spec, ["labels"]) ?? {}).map(([name, value]) => `${name}=${value}`);
    return [
      objectAnchor(one.ns, one.id),
      one.ns,
      [stateBadge(one), errorText(one.error), ...nodeAlerts(one)],
      connected ? `version ${version || "?"} at ${address || "?"}${containers ? ", runs containers" : ""}` : quiet("not connected"),
      share(used?.used_slots, slots, `Slots of ${one.id}`),
      share(used?.used_cpu, cpu, `Cores of ${one.id}`),
      share(used?.used_memory, memory, `Memory of ${one.id}`, " MiB"),
      labels.length ? labels.join(", ") : quiet("none"),
      h(
        "span",
        { class: "buttons" },
        actionButton(one, "drain", ["ready", "cordoned"].includes(one.state), again),
        actionButton(one, "uncordon", ["draining", "cordoned"].includes(one.state), again),
        actionButton(one, "delete", one.state !== "draining", again),
      ),
    ];
  };
  const columns = ["node", "namespace", "state", "agent", "slots", "cores", "memory", "labels", ""];
  return card("Nodes", "hosts whose agents run instances, and what is used of them", table("Nodes", columns, hosts.map(row)));
}

/** The alerts of a node. @param {ObjectView} node */
function nodeAlerts(node) {
  const found = /** @type {{name: string, reason: string, since: number}[]} */ (pick(node.seen, ["alerts"]) ?? []);
  return found.map((one) =>
    h("span", { class: "error-text fine", title: ago(one.since) }, `${one.name}: ${one.reason}`),
  );
}

/** How much of something is used. @param {number | undefined} used @param {number | undefined} whole @param {string} name @param {string} [unit] */
function share(used, whole, name, unit = "") {
  if (!whole) return quiet("unknown");
  if (used === undefined) return `${numberText(whole)}${unit}`;
  const text = `${numberText(used)} of ${numberText(whole)}${unit}, ${numberText(Math.max(0, whole - used))} free`;
  return h("span", { class: "share" }, meter(used, whole, name), text);
}

/** The names and versions of secrets; nothing shows their values. @param {ObjectView[]} objects @param {Map<string, Secret>} secrets @param {() => void} again */
function secretCard(objects, secrets, again) {
  if (!objects.length) return null;
  const row = (/** @type {ObjectView} */ one) => {
    const secret = secrets.get(`${one.ns}/${one.id}`);
    return [
      objectAnchor(one.ns, one.id, one.id.slice(one.id.indexOf("+") + 1)),
      one.ns,
      String(pick(one.spec, ["version"]) ?? "?"),
      secret ? relativeTime(secret.changed) : "",
      secret ? code(secret.key) : "",
      secret?.used_by.length ? secret.used_by.join(", ") : quiet("none"),
      h("span", { class: "buttons" }, actionButton(one, "update", true, again), actionButton(one, "delete", true, again)),
    ];
  };
  const spaces = may("govern") && hasOwnApi(SECRET) ? [...new Set(objects.map((one) => one.ns))] : [];
  const columns = ["secret", "namespace", "version", "changed", "key", "used by", ""];
  return card(
    "Secrets",
    "which only instances can read",
    table("Secrets", columns, objects.map(row)),
    h("div", { class: "actions" }, spaces.map((ns) => h("button", { onclick: () => attempt(() => rotateKey(ns)) }, `Rotate the key of ${ns}…`))),
  );
}

/** Encrypt all secrets of a namespace with the first key, if the user confirms it. @param {string} ns */
async function rotateKey(ns) {
  const about = note("Put the new key first into the key file of all servers before. The values stay, and no instance is replaced. As a command: ", code(`stateward system secret rotate -n ${ns}`));
  if (!(await confirm(`Encrypt all secrets of ${ns} with the first key?`, "Rotate the key", [about]))) return;
  const asked = await send("POST", `/api/v1/systems/${part(ns)}/-/secret-rotation`);
  toast(h("span", null, "The key is being rotated: ", objectAnchor(ns, asked.id, "see how it goes")), "good");
}

/** @param {ObjectView} other @param {ObjectView} one @param {ObjectView[]} things @returns {boolean} whether it is a part of a system, however deep */
function belongs(other, one, things) {
  if (other.id === one.id || other.parent === one.id || pick(other.spec, ["system"]) === one.id) return true;
  const above = things.find((thing) => thing.ns === other.ns && thing.id === other.parent);
  return above !== undefined && above !== other && belongs(above, one, things);
}

/** @param {ObjectView[]} changes */
function newest(changes) {
  return [...changes].sort((one, other) => seconds(other.created) - seconds(one.created)).slice(0, MAX_CHANGES);
}

/** @param {ObjectView} one */
const change = (one) => h("li", null, objectLine(one, `${pick(one.spec, ["path"]) ?? ""} ${ago(one.created)}`));

// --- the tree --------------------------------------------------------------------------------------------------------

/** @typedef {{name: string, thing: ObjectView | null, below: Map<string, Branch>}} Branch */

/** @param {ObjectView} one @param {string} system @returns {string[]} its place in the tree: the path of a service, or its name */
function pathOf(one, system) {
  const path = pick(one.spec, ["path"]);
  const name = one.id.startsWith(system) ? one.id.slice(system.length + 1) : one.id;
  return (typeof path === "string" ? path.split("/") : name.split(".")).filter(Boolean);
}

/** @param {ObjectView[]} parts @param {string} system @param {Map<string, Instance[]>} instances */
function tree(parts, system, instances) {
  /** @type {Branch} */
  const root = { name: "", thing: null, below: new Map() };
  for (const one of parts) {
    let branch = root;
    for (const name of pathOf(one, system)) {
      const next = branch.below.get(name) ?? { name, thing: null, below: new Map() };
      branch.below.set(name, next);
      branch = next;
    }
    branch.thing = one;
  }
  return branchList(root, instances);
}

/** @param {Branch} branch @param {Map<string, Instance[]>} instances @returns {HTMLElement} */
function branchList(branch, instances) {
  const sorted = [...branch.below.values()].sort((one, other) => one.name.localeCompare(other.name));
  return h(
    "ul",
    null,
    sorted.map((one) =>
      h("li", null, h("div", null, branchLine(one, instances)), one.below.size ? branchList(one, instances) : null),
    ),
  );
}

/** @param {Branch} branch @param {Map<string, Instance[]>} instances */
function branchLine({ name, thing }, instances) {
  if (!thing) return h("span", { class: "folder" }, `${name}/`);
  const some = instances.get(`${thing.ns}/${thing.id}`);
  return [
    objectAnchor(thing.ns, thing.id, name),
    stateBadge(thing),
    some ? instanceShapes(some) : null,
    quiet(thing.kind === "systems.service" ? size(thing, some) : "node pool"),
    errorText(thing.error),
  ];
}

/** Each instance as its shape. @param {Instance[]} some */
function instanceShapes(some) {
  const words = some.map(
    (one) => `${one.name}: ${one.phase}${one.ready ? ", ready" : ""}${one.why ? `, ${one.why}` : ""}`,
  );
  return h(
    "span",
    { class: "instances", role: "img", "aria-label": words.join("; ") || "no instance", title: words.join("\n") },
    some.slice(0, 24).map((one) => shape(one.ready ? "good" : toneOf(one.phase, "transitional"))),
  );
}

/** @param {ObjectView} one @param {Instance[] | undefined} some */
function size(one, some) {
  const want = pick(one.spec, ["service.instances", "instances", "replicas"]) ?? (some ? 1 : undefined);
  const have = some ? some.filter((instance) => instance.ready).length : pick(one.seen, ["ready", "instances"]);
  const restarts = (some ?? []).reduce((sum, instance) => sum + instance.restarts, 0);
  const words = want === undefined ? [] : [`${typeof have === "number" ? have : "?"} of ${want} instances`];
  if (restarts) words.push(counted(restarts, "restart"));
  const address = pick(one.spec, ["service.address"]);
  const port = address === 0 ? pick(one.spec, ["assigned_port"]) : address;
  if (port) words.push(`at 127.0.0.1:${port}`);
  return words.join(" · ");
}

// --- locks -----------------------------------------------------------------------------------------------------------

/** @param {ObjectView} one @param {Map<string, SystemPlaces>} places @param {Map<string, Promise<Operation>>} operations @param {AbortSignal} signal */
async function showLocks(one, places, operations, signal) {
  const place = places.get(`${one.ns}/${one.id}`)?.locks;
  if (!place) return;
  const found = await get(`/ns/${part(one.ns)}/locks/${part(one.id)}`, {}, signal);
  /** @type {Held[]} */
  const held = await Promise.all(
    found.map(async (/** @type {any} */ lock) => ({
      ...lock,
      by: await operation(one.ns, lock.op, operations, signal),
    })),
  );
  fill(
    place,
    held.length
      ? lockTree(held, one.ns)
      : note("No locks: any part can be changed."),
  );
}

/** @param {string} ns @param {string} op @param {Map<string, Promise<Operation>>} operations @param {AbortSignal} signal */
function operation(ns, op, operations, signal) {
  if (operations.size > MAX_OPERATIONS) operations.clear();
  const asked = operations.get(op) ?? get(`/ns/${part(ns)}/operations/${part(op)}`, {}, signal);
  operations.set(op, asked);
  return asked.catch(() => (operations.delete(op), null));
}

/** The paths that are held or awaited, with the paths above them. @param {Held[]} locks @param {string} ns */
function lockTree(locks, ns) {
  const paths = [...new Set(locks.flatMap((lock) => upward(lock.path)))].sort();
  const items = paths.map((path) => {
    const parts = path.split("/").filter(Boolean);
    const mine = locks.filter((lock) => lock.path === path);
    const name = h("span", { class: "path" }, `/${parts.at(-1) ?? ""}`);
    return h("li", { style: { "padding-left": `${parts.length * 20}px` } }, name, mine.map((lock) => lockRow(lock, ns)));
  });
  return h("ul", null, items);
}

/** @param {string} path @returns {string[]} it, and all paths above it */
function upward(path) {
  const parts = path.split("/").filter(Boolean);
  return ["/", ...parts.map((_, number) => `/${parts.slice(0, number + 1).join("/")}`)];
}

/** @param {Held} lock @param {string} ns */
function lockRow(lock, ns) {
  return h(
    "span",
    { class: lock.waiting ? "lock waiting" : "lock" },
    h("span", { class: "mode", title: MODES[lock.mode] ?? "" }, lock.mode),
    lock.waiting ? "waits:" : "held:",
    holder(lock, ns),
  );
}

/** @param {Held} lock @param {string} ns */
function holder({ by, op }, ns) {
  if (!by) return code(shortId(op));
  const since = span(Date.now() / 1000 - seconds(by.created));
  const work = quiet(`${by.action} by ${by.who || by.actor}, ${since}`);
  return h("span", { class: "row" }, objectAnchor(ns, by.object), work);
}

// --- actions --------------------------------------------------------------------------------------------------------

/** @param {ObjectView} thing @returns {string} */
const systemPath = (thing) => `/api/v1/systems/${part(thing.ns)}/${part(thing.id)}`;

/** The id of a job is that of its system, and its path with dots. @param {ObjectView} job @returns {[string, string]} the routes of its system, and its path */
function placeOfJob(job) {
  const [system = "", ...path] = job.id.split(".");
  return [`/api/v1/systems/${part(job.ns)}/${part(system)}`, `/${path.join("/")}`];
}

/** @type {Field} */
const LOCK_TIMEOUT = {
  name: "wait",
  label: "seconds to wait for locks",
  type: "number",
  least: 0,
  optional: true,
  hint: "empty: refused at once if others hold them",
};

/** @param {Values} values @returns {number | null} */
const lockTimeout = (values) => (values.wait ? Number(values.wait) : null);

/** @param {string} ns @param {string} [name] @returns {string} */
const secretPath = (ns, name) => `/api/v1/systems/${part(ns)}/-/secrets${name === undefined ? "" : `/${part(name)}`}`;

/** @param {string} ns @param {string} [name] @returns {string} */
const nodePath = (ns, name) => `/api/v1/systems/${part(ns)}/-/nodes${name === undefined ? "" : `/${part(name)}`}`;

/** @param {ObjectView} thing @returns {string} */
const ofSecret = (thing) => secretPath(thing.ns, thing.id.slice(thing.id.indexOf("+") + 1));

/** @type {Field} */
const SECRET_VALUE = { name: "value", label: "value", type: "secret", hint: "nothing will ever show it" };

/** @type {Record<string, Record<string, ActionForm>>} */
const ACTIONS = {
  [JOB]: {
    run: {
      dryRun: true,
      call: (thing) => {
        const [system, path] = placeOfJob(thing);
        return ["POST", `${system}/runs`, { path }];
      },
    },
  },
  [SECRET]: {
    update: {
      right: "govern",
      fields: () => [SECRET_VALUE],
      call: (thing, _, values) => ["PUT", ofSecret(thing), { value: values.value }],
    },
    delete: { right: "govern", dryRun: true, call: (thing) => ["DELETE", ofSecret(thing)] },
  },
  [NODE]: {
    drain: { right: "govern", dryRun: true, call: (thing) => ["POST", `${nodePath(thing.ns, thing.id)}/drain`] },
    uncordon: { right: "govern", call: (thing) => ["POST", `${nodePath(thing.ns, thing.id)}/uncordon`] },
    delete: { right: "govern", dryRun: true, call: (thing) => ["DELETE", nodePath(thing.ns, thing.id)] },
  },
  "systems.system": {
    deploy: {
      dryRun: true,
      right: "govern",
      fields: () => [
        { name: "path", label: "path", value: "/" },
        { name: "definition", label: "definition (YAML)", type: "long", hint: "services:\n  web:\n    command: run v1" },
        LOCK_TIMEOUT,
      ],
      call: (thing, _, values) => [
        "POST",
        `${systemPath(thing)}/deploys`,
        { path: values.path, definition: values.definition, wait: lockTimeout(values) },
      ],
    },
    "roll back": {
      dryRun: true,
      fields: () => [{ name: "path", label: "path of the last deploy", value: "/" }, LOCK_TIMEOUT],
      call: (thing, _, values) => ["POST", `${systemPath(thing)}/rollback`, { path: values.path, wait: lockTimeout(values) }],
    },
    teardown: {
      dryRun: true,
      fields: () => [LOCK_TIMEOUT],
      call: (thing, _, values) => ["POST", `${systemPath(thing)}/teardowns`, { wait: lockTimeout(values) }],
    },
    delete: {
      dryRun: true,
      call: (thing, facts) => ["DELETE", `${systemPath(thing)}${facts.includes("force") ? "?force=true" : ""}`],
    },
  },
};

// --- logs and commands ----------------------------------------------------------------------------------------------

/** @param {any[]} found @returns {LogExcerpt[]} */
const excerptsOf = (found) => found.map(({ instance, text, next }) => ({ name: instance, text, next }));

/** The output of a service, or of one instance. @param {ObjectView} thing @param {Context} context @param {string} [only] */
function serviceOutput(thing, context, only = "") {
  const [system = "", place = ""] = thing.id.split(":");
  const base = systemPath({ ...thing, id: system });
  const path = `/${place.replaceAll(".", "/")}`;
  return outputCards(context, {
    ns: thing.ns,
    name: thing.id,
    noun: "instance",
    read: async ({ part: instance, after, most }, signal) =>
      excerptsOf(await get(`${base}/logs`, { path, instance: only || instance, after, most }, signal)),
    command: (instance) => ({ command: "system logs --follow", options: [["--instance", only || instance]], names: [system, path] }),
    exec: {
      otherwise: only || "a ready instance",
      call: ({ argv, part: instance, timeout }) => ["POST", `${base}/exec`, { path, argv, instance: only || instance || null, timeout }],
      outcome: ({ exit_status: status, instance, stdout, stderr, truncated }) => ({
        status,
        part: instance,
        stdout,
        stderr,
        left: truncated ? "Some of the output is left out: it was too long." : "",
      }),
      command: ({ argv, part: instance, timeout }) => ({
        command: "system exec",
        options: [["--instance", only || instance], ["--timeout", timeout]],
        names: [`${system}${path}`],
        words: argv,
      }),
    },
  });
}

/** The output of a run of a job, or of one of its instances. @param {ObjectView} run @param {Context} context @param {string} [only] */
function runOutput(run, context, only = "") {
  const [system = ""] = run.id.split(".");
  return outputCards(context, {
    ns: run.ns,
    name: run.id,
    noun: "instance",
    isEnded: run.state_class === "final",
    read: async ({ part: instance, after, most }, signal) =>
      excerptsOf(await get(`${systemPath({ ...run, id: system })}/runs/${part(run.id)}/logs`, { instance: only || instance, after, most }, signal)),
    command: (instance) => ({ command: "system job logs", options: [["--instance", only || instance]], names: [system, run.id] }),
  });
}

/** The output of an instance on a node. Its id is that of its service, or of its run with a colon, and its name. @param {ObjectView} thing @param {Context} context */
function instanceOutput(thing, context) {
  const at = thing.id.lastIndexOf("~");
  const [owner, name] = [thing.id.slice(0, at), thing.id.slice(at + 1)];
  return owner.includes("@") ? runOutput({ ...thing, id: owner.replace(":", ".") }, context, name) : serviceOutput({ ...thing, id: owner }, context, name);
}

// --- create forms ---------------------------------------------------------------------------------------------------

/** @type {CreateForm[]} */
const CREATE_FORMS = [
  {
    name: "system",
    fields: () => [
      { name: "name", label: "name", hint: "billing" },
      { name: "backend", label: "backend", value: "local", options: wordOptions("local", "nodes", "simulated") },
    ],
    call: (ns, values) => ["POST", `/api/v1/systems/${part(ns)}`, values],
    command: (_, { name = "", backend }) => ({ command: "system create", options: [["--backend", backend]], names: [name] }),
    planned: () => ["It has no services until something is deployed to it."],
  },
  {
    name: "secret",
    right: "govern",
    fields: () => [{ name: "name", label: "name", hint: "db-password" }, SECRET_VALUE],
    call: (ns, { name, value }) => ["POST", secretPath(ns), { name, value }],
    command: (_, { name = "" }) => ({ command: "system secret create", names: [name] }),
    planned: () => ["Services of the namespace can name it in their definitions."],
  },
  {
    name: "node",
    right: "govern",
    fields: () => [{ name: "name", label: "name", hint: "host-1" }],
    call: (ns, { name }) => ["POST", nodePath(ns), { name }],
    command: (_, { name = "" }) => ({ command: "system node register", names: [name] }),
    planned: () => ["It takes instances when its agent has connected with a token that names it."],
  },
];

/** @type {Domain} */
export default {
  name: "systems",
  nav: "Systems",
  hotkey: "s",
  tour: ["Trees and locks", "Services in their tree, and who holds which lock, and who waits for it."],
  view: { title: "Systems", show },
  actions: ACTIONS,
  extraActions: { "systems.system": ["deploy", "roll back", "teardown"], [JOB]: ["run"] },
  createForms: CREATE_FORMS,
  panels: {
    "systems.service": (thing, context) => serviceOutput(thing, context),
    "systems.instance": instanceOutput,
    [RUN]: (thing, context) => runOutput(thing, context),
  },
};
