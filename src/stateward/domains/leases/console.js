// Leases: a calendar with hosts as rows. Click a bar to see its lease.

import { actionButtons, allowedActions } from "/console/ui/object-actions.js";
import { get, part } from "/console/core/api.js";
import { fill, h, svg } from "/console/core/dom.js";
import { hasOwnApi } from "/console/core/domains.js";
import { liveObjects, nameOf, pick } from "/console/core/live-objects.js";
import { card, code, empty, errorText, heading, note, plainList, quiet, restNote, select, table } from "/console/ui/components.js";
import { objectLink } from "/console/core/links.js";
import { SHAPES, stateBadge, toneOf } from "/console/ui/states.js";
import { ago, moment, seconds, span } from "/console/core/time.js";
import { countOf } from "/console/core/store.js";
import { createButtons } from "/console/ui/create-buttons.js";

/** @import {ActionForm, Context, CreateForm, Domain, ObjectView} from "/console/core/types.js" */
/** @typedef {{lease: ObjectView, start: number, end: number}} Booking */
/** @typedef {{name: string, host: ObjectView | null, bookings: Booking[]}} Row */

const HOUR_S = 3_600;
const WIDTH_PX = 1_200;
const LABEL_PX = 130;
const ROW_PX = 34;

const SPANS = /** @type {[string, string][]} */ ([
  ["", "everything planned"],
  ["1", "one hour"],
  ["6", "six hours"],
  ["24", "one day"],
  ["72", "three days"],
  ["168", "one week"],
  ["720", "thirty days"],
]);
const TO_COME = ["PENDING", "ACTIVE", "STARTING", "CREATING", "UPDATING"];

const MAX_LISTED = 200;
const chosen = { hours: "", lease: "" };

/** @param {Context} context */
async function show(context) {
  const place = h("div", { class: "gantt", tabindex: "0", role: "group", "aria-label": "Calendar of leases" });
  const detail = h("div", null);
  const list = h("div", null);
  /** @type {ObjectView[]} */
  let shown = [];
  let again = () => {};
  const choose = (/** @type {ObjectView} */ lease) => {
    chosen.lease = `${lease.ns}/${lease.id}`;
    draw();
    showLease(detail, lease, context.signal, () => again());
  };
  const draw = () => {
    const leases = shown.filter((one) => one.kind === "leases.lease");
    const rows = rowsOf(shown);
    const held = /** @type {HTMLElement | null} */ (place.querySelector(":focus"))?.dataset.bar;
    fill(
      place,
      rows.length
        ? calendar(rows, spanOf(leases), choose)
        : empty(
            "No leases and no hosts yet.",
            "Register hosts and create a lease with the buttons above, or over ",
            code("/blazar/v1"),
            ".",
          ),
    );
    if (held)
      [.../** @type {NodeListOf<HTMLElement>} */ (place.querySelectorAll(".bar"))]
        .find((bar) => bar.dataset.bar === held)
        ?.focus();
    fill(
      list,
      leases.length
        ? [
            table(
              "Leases",
              ["lease", "state", "starts", "ends", "duration", "hosts"],
              leases.slice(0, MAX_LISTED).map((one) => row(one, rows)),
            ),
            restNote(Math.min(leases.length, MAX_LISTED), countOf("leases.lease"), { kind: "leases.lease" }),
          ]
        : note("No leases."),
    );
  };
  const spans = select(SPANS, chosen.hours, (value) => ((chosen.hours = value), draw()), "Span of the calendar");
  fill(
    context.main,
    heading("Leases", "who has which host, and when", ...createButtons("leases", () => again())),
    card("Calendar", ["hosts are rows; the dashed line is now", h("span", { class: "tools" }, spans)], place, detail),
    card("All leases", "", list),
  );
  again = await liveObjects(context, ["leases.lease", "leases.host"], (things) => {
    shown = things;
    draw();
    const one = things.find((other) => `${other.ns}/${other.id}` === chosen.lease);
    if (one) showLease(detail, one, context.signal, () => again());
    else fill(detail);
  });
  context.every(30, draw);
}

/** @param {ObjectView[]} leases @returns {number} how many seconds the calendar shows: what was chosen, or what is planned */
function spanOf(leases) {
  const last = Math.max(0, ...leases.filter((one) => TO_COME.includes(one.state)).map((one) => endOf(one) ?? 0));
  const ahead = (last - Date.now() / 1000) / HOUR_S;
  const fits = SPANS.map(([hours]) => Number(hours)).find((hours) => hours && hours * 0.8 >= ahead);
  return (Number(chosen.hours) || fits || 720) * HOUR_S;
}

/** @param {ObjectView} lease @returns {number | undefined} */
function endOf(lease) {
  const end = pick(lease.spec, ["end", "end_date"]);
  return end === undefined ? undefined : seconds(end);
}

/** @param {ObjectView[]} things @returns {Row[]} */
function rowsOf(things) {
  const leases = new Map(things.filter((one) => one.kind === "leases.lease").map((one) => [one.id, one]));
  /** @type {Set<string>} */
  const placed = new Set();
  /** @type {Row[]} */
  const rows = things
    .filter((one) => one.kind === "leases.host")
    .sort((one, other) => one.id.localeCompare(other.id, undefined, { numeric: true }))
    .map((host) => {
      const bookings = [...(pick(host.seen, ["bookings"]) ?? [])].flatMap(
        (/** @type {any[]} */ [name, , start, end]) => {
          const lease = leases.get(name);
          placed.add(name);
          return lease ? [{ lease, start: seconds(start), end: seconds(end) }] : [];
        },
      );
      return { name: nameOf(host), host, bookings };
    });
  for (const lease of leases.values()) {
    const start = pick(lease.spec, ["start", "start_date"]);
    const end = pick(lease.spec, ["end", "end_date"]);
    if (placed.has(lease.id) || start === undefined || end === undefined) continue;
    rows.push({
      name: `(${nameOf(lease)})`,
      host: null,
      bookings: [{ lease, start: seconds(start), end: seconds(end) }],
    });
  }
  return rows;
}

/** @param {Row[]} rows @param {number} length @param {(lease: ObjectView) => void} onChosen */
function calendar(rows, length, onChosen) {
  const now = Date.now() / 1000;
  const step = length / 12;
  const from = Math.floor((now - length / 6) / step) * step;
  const x = (/** @type {number} */ at) => LABEL_PX + ((at - from) / length) * (WIDTH_PX - LABEL_PX);
  const tall = 30 + rows.length * ROW_PX + 6;
  const ticks = Array.from({ length: 12 }, (_, number) => from + number * step);
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDTH_PX} ${tall}` },
    rows.map((_, number) =>
      number % 2 ? null : svg("rect", { class: "stripe", x: 0, y: 28 + number * ROW_PX, width: WIDTH_PX, height: ROW_PX }),
    ),
    ticks.flatMap((at) => [
      svg("line", { class: "rule", x1: x(at), x2: x(at), y1: 22, y2: tall }),
      svg("text", { class: "tick", x: x(at) + 3, y: 16 }, tick(at, length)),
    ]),
    rows.flatMap((row, number) => [
      hostName(row, 28 + number * ROW_PX),
      ...row.bookings.map((one) => bar(one, 28 + number * ROW_PX, x, onChosen)),
    ]),
    svg("line", { class: "now", x1: x(now), x2: x(now), y1: 22, y2: tall }),
  );
}

/** @param {number} at @param {number} length */
function tick(at, length) {
  const date = new Date(at * 1000);
  const day = moment(at).slice(5, 10);
  const time = `${String(date.getHours()).padStart(2, "0")}:${String(date.getMinutes()).padStart(2, "0")}`;
  return length > 100 * HOUR_S ? day : length < 20 * HOUR_S ? time : `${day} ${time}`;
}

/** @param {Row} row @param {number} y */
function hostName(row, y) {
  const name = svg("text", { x: 20, y: y + 22 }, row.name);
  if (!row.host) return svg("g", null, name);
  const tone = toneOf(row.host.state, row.host.state_class);
  const mark = svg("path", {
    class: `tone-${tone}`,
    d: SHAPES[tone],
    transform: `translate(5 ${y + 13})`,
    style: { fill: "var(--tone)" },
  });
  return svg(
    "a",
    { href: objectLink(row.host.ns, row.host.id) },
    mark,
    name,
    svg("title", null, `${row.name}: ${row.host.state}`),
  );
}

/** @param {Booking} one @param {number} y @param {(at: number) => number} x @param {(lease: ObjectView) => void} onChosen */
function bar(one, y, x, onChosen) {
  const left = Math.max(LABEL_PX, x(one.start));
  const right = Math.min(WIDTH_PX, x(one.end));
  if (right <= left) return null;
  const key = `${one.lease.ns}/${one.lease.id}`;
  const fits = right - left > nameOf(one.lease).length * 7 + 26;
  const tone = toneOf(one.lease.state, one.lease.state_class);
  const inset = Math.min(8, (right - left - 10) / 2);
  return svg(
    "g",
    {
      class: `bar tone-${tone}${key === chosen.lease ? " chosen" : ""}`,
      "data-bar": `${key} ${y}`,
      role: "button",
      tabindex: "0",
      "aria-label": `${nameOf(one.lease)}, ${one.lease.state}, ${moment(one.start)} to ${moment(one.end)}`,
      onclick: () => onChosen(one.lease),
      onkeydown: (/** @type {KeyboardEvent} */ event) =>
        event.key === "Enter" || event.key === " " ? onChosen(one.lease) : null,
    },
    svg("rect", { x: left, y: y + 5, width: right - left, height: ROW_PX - 10, rx: 6 }),
    svg("path", { d: SHAPES[tone], transform: `translate(${left + inset} ${y + 13})` }),
    fits ? svg("text", { x: left + 24, y: y + 22 }, nameOf(one.lease)) : null,
    svg("title", null, `${nameOf(one.lease)} · ${one.lease.state}\n${moment(one.start)} – ${moment(one.end)}`),
  );
}

/** @param {ObjectView} lease @param {Row[]} rows */
function row(lease, rows) {
  const start = pick(lease.spec, ["start", "start_date"]);
  const end = endOf(lease);
  const hosts = rows
    .filter((one) => one.host && one.bookings.some((booking) => booking.lease === lease))
    .map((one) => one.name);
  return [
    leaseAnchor(lease),
    stateBadge(lease),
    start === undefined ? "" : moment(start),
    end === undefined ? "" : `${moment(end)}, ${ago(end)}`,
    start === undefined || end === undefined ? "" : span(seconds(end) - seconds(start)),
    hosts.join(", "),
  ];
}

/** @param {ObjectView} lease */
function leaseAnchor(lease) {
  return h("a", { href: objectLink(lease.ns, lease.id), class: "object" }, nameOf(lease));
}

// --- one lease -------------------------------------------------------------------------------------------------------

/** Show a lease, with the details of the domain's own API if this server has it. @param {HTMLElement} place @param {ObjectView} lease @param {AbortSignal} signal @param {() => void} then */
async function showLease(place, lease, signal, then) {
  try {
    const [own, actions] = await Promise.all([
      hasOwnApi(lease.kind) ? get(leasePath(lease), {}, signal) : null,
      allowedActions(lease, signal),
    ]);
    const buttons = h("div", { class: "actions" }, actionButtons(lease, actions, then));
    fill(place, leaseDetails(lease, own?.lease ?? null), buttons);
  } catch {
    fill(place); // the lease is gone, or the server is away
  }
}

/** @param {ObjectView} lease @param {any} own */
function leaseDetails(lease, own) {
  const reservations = own?.reservations ?? pick(lease.spec, ["reservations"]) ?? [];
  return h(
    "div",
    { class: "lease", role: "status" },
    h(
      "p",
      { class: "row" },
      leaseAnchor(lease),
      stateBadge(lease),
      own?.degraded ? h("span", { class: "error-text" }, "some reserved resources are missing") : null,
      own?.user_id ? quiet(`for ${own.user_id}`) : null,
      errorText(lease.error),
    ),
    plainList([...reservations].map(reservation)),
    own ? plainList(own.events.map(leaseEvent)) : null,
  );
}

/** @param {any} one */
function reservation(one) {
  const details = one.details ?? { min: one.min, max: one.max, amount: one.amount, vcpus: one.vcpus };
  const wants = Object.entries(details)
    .filter(([, value]) => value !== undefined && value !== null && value !== "")
    .map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`);
  return h(
    "li",
    null,
    h("b", null, one.resource_type ?? ""),
    quiet(wants.join(", ")),
    one.status ? `${one.status}: ${(one.hosts ?? []).join(", ") || "no host"}` : null,
    one.missing_resources ? h("span", { class: "error-text" }, "hosts are missing") : null,
    errorText(one.error),
  );
}

/** @param {{event_type: string, status: string, time: string}} one */
function leaseEvent(one) {
  return h("li", null, quiet(one.event_type.replaceAll("_", " ")), moment(`${one.time}Z`), one.status.toLowerCase());
}

// --- actions --------------------------------------------------------------------------------------------------------

/** @param {ObjectView} thing */
const leasePath = (thing) => `/ns/${part(thing.ns)}/blazar/v1/leases/${part(thing.id)}`;

/** @param {number} at @returns {string} for a field of time */
function localTime(at) {
  const date = new Date((at || Date.now() / 1000) * 1000);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** @param {string} local @returns {string} in UTC, as reservations are written */
function utcMinute(local) {
  return new Date(local).toISOString().slice(0, 16).replace("T", " ");
}

/** @type {Record<string, Record<string, ActionForm>>} */
const ACTIONS = {
  "leases.lease": {
    update: {
      fields: (thing) => [
        { name: "name", label: "name", value: String(pick(thing.spec, ["name"]) ?? "") },
        { name: "end_date", label: "ends", type: "time", value: localTime(Number(pick(thing.spec, ["end"]))) },
      ],
      call: (thing, _, values) => ["PUT", leasePath(thing), { name: values.name, end_date: utcMinute(values.end_date ?? "") }],
    },
    delete: { call: (thing) => ["DELETE", leasePath(thing)] },
  },
  "leases.host": {
    fail: { asksAlways: true, call: (thing) => ["POST", `/ns/${part(thing.ns)}/blazar/v1/os-hosts/${part(nameOf(thing))}/fail`] },
  },
};

// --- create forms ---------------------------------------------------------------------------------------------------

/** @param {ObjectView} lease @returns {string[]} the hosts of all its reservations */
const hostsOf = (lease) => Object.values(lease.seen.reservations ?? {}).flatMap((one) => Object.keys(one.hosts ?? {}));

/** @type {CreateForm[]} */
const CREATE_FORMS = [
  {
    name: "lease",
    fields: () => [
      { name: "name", label: "name", hint: "gpu-night" },
      { name: "start_date", label: "starts (empty: now)", type: "time", optional: true },
      { name: "end_date", label: "ends", type: "time", value: localTime(Date.now() / 1000 + 3_600) },
      { name: "min", label: "minimum of hosts", type: "number", value: "1" },
      { name: "max", label: "maximum of hosts", type: "number", value: "1" },
      { name: "properties", label: "required properties", optional: true, hint: '[">=", "$vcpus", "8"]', sent: ["resource_properties"] },
    ],
    call: (ns, values) => [
      "POST",
      `/ns/${part(ns)}/blazar/v1/leases`,
      {
        name: values.name,
        start_date: values.start_date ? utcMinute(values.start_date) : "now",
        end_date: utcMinute(values.end_date ?? ""),
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
    command: (_, { name = "", start_date: start, end_date: end = "", min, max, properties }) => ({
      command: "lease create",
      options: [
        ["--start", start ? utcMinute(start) : undefined],
        ["--end", utcMinute(end)],
        ["--hosts", min === max ? min : `${min}-${max}`],
        ["--where", properties],
      ],
      names: [name],
    }),
    planned: (_, __, lease) => [`It fits: ${hostsOf(lease).join(", ")} would be reserved.`],
  },
  {
    name: "host",
    fields: () => [
      { name: "name", label: "name", hint: "rack-1" },
      { name: "vcpus", label: "vCPUs", type: "number", value: "8" },
      { name: "memory_mb", label: "memory (MB)", type: "number", value: "16384" },
    ],
    call: (ns, { name, vcpus, memory_mb }) => [
      "POST",
      `/ns/${part(ns)}/blazar/v1/os-hosts`,
      { name, vcpus: Number(vcpus), memory_mb: Number(memory_mb) },
    ],
    command: (_, { name = "", vcpus, memory_mb }) => ({
      command: "lease host add",
      options: [["-p", `vcpus=${vcpus}`], ["-p", `memory_mb=${memory_mb}`]],
      names: [name],
    }),
  },
];

/** @type {Domain} */
export default {
  name: "leases",
  nav: "Leases",
  hotkey: "l",
  tour: ["Who has which host when", "The calendar of leases: hosts are rows. Click a bar to see the lease."],
  view: { title: "Leases", show },
  actions: ACTIONS,
  createForms: CREATE_FORMS,
};
