// DNS: zones with their records, what the server serves, and the zone file.

import { part, text } from "/console/core/api.js";
import { fill, h } from "/console/core/dom.js";
import { liveObjects } from "/console/core/live-objects.js";
import { card, code, empty, errorText, heading, objectAnchor, table, wordOptions } from "/console/ui/components.js";
import { createButtons } from "/console/ui/create-buttons.js";
import { showAllowedActions } from "/console/ui/object-actions.js";
import { attempt } from "/console/ui/problems.js";
import { stateBadge } from "/console/ui/states.js";

/** @import {ActionForm, Context, CreateForm, Domain, ObjectView} from "/console/core/types.js" */
/** @import {Values} from "/console/ui/form.js" */

const KINDS = ["dns.zone", "dns.record"];
const TYPES = ["A", "AAAA", "CAA", "CNAME", "MX", "PTR", "SRV", "TXT"];

/** @param {Context} context */
async function show(context) {
  const list = h("div", { class: "column" });
  /** @type {Map<string, {actions: HTMLElement, file: HTMLElement}>} */
  const places = new Map();
  let again = () => {};
  fill(
    context.main,
    heading("DNS", "zones and records, as the server serves them", ...createButtons("dns", () => again())),
    list,
  );
  again = await liveObjects(context, KINDS, (things) => {
    const zones = things.filter((one) => one.kind === "dns.zone").sort(byId);
    const records = things.filter((one) => one.kind === "dns.record").sort(byId);
    fill(
      list,
      zones.length
        ? zones.map((one) => zone(one, records, placeOf(places, one), context.signal))
        : empty("No zones yet.", "Create one with the button above, or: ", code("stateward dns add example.org")),
    );
    for (const one of zones) showAllowedActions(placeOf(places, one).actions, one, context.signal, () => again());
  });
}

/** @param {ObjectView} one @param {ObjectView} other */
const byId = (one, other) => one.id.localeCompare(other.id);

/** @param {Map<string, {actions: HTMLElement, file: HTMLElement}>} places @param {ObjectView} one */
function placeOf(places, one) {
  const key = `${one.ns}/${one.id}`;
  const place = places.get(key) ?? { actions: h("div", { class: "actions" }), file: h("div") };
  places.set(key, place);
  return place;
}

/** @param {ObjectView} one @param {ObjectView[]} records @param {{actions: HTMLElement, file: HTMLElement}} place @param {AbortSignal} signal */
function zone(one, records, place, signal) {
  const mine = records.filter((record) => record.ns === one.ns && record.parent === one.id);
  const rows = mine.map((record) => [
    objectAnchor(record.ns, record.id, record.spec.name ?? "@"),
    record.spec.type ?? "A",
    h("span", { class: "dns-values" }, (record.spec.values ?? []).join(", ")),
    String(record.spec.ttl ?? 300),
    stateBadge(record),
    errorText(record.error),
  ]);
  const read = () => attempt(() => showFile(one, place.file, signal));
  return h(
    "div",
    { "data-zone": one.id },
    card(
      one.id,
      [stateBadge(one), h("span", null, one.ns), h("span", null, one.spec?.about ?? "")],
      rows.length
        ? table(`Records of ${one.id}`, ["name", "type", "values", "TTL", "state", "what differs"], rows)
        : h("p", { class: "quiet" }, "It has no records yet."),
      errorText(one.error),
      h("div", { class: "dns-buttons" }, place.actions, h("button", { onclick: read }, "Zone file")),
      place.file,
    ),
  );
}

/** @param {ObjectView} one @param {HTMLElement} place @param {AbortSignal} signal */
async function showFile(one, place, signal) {
  const found = await text(`/api/v1/dns/${part(one.ns)}/zones/${part(one.id)}/file`, signal);
  fill(place, h("pre", { class: "dns-file", tabindex: "0", "aria-label": `Zone file of ${one.id}` }, found));
}

// --- forms -----------------------------------------------------------------------------------------------------------

/** @param {string | undefined} lines @returns {string[]} a value in each line */
const valuesOf = (lines) => (lines ?? "").split("\n").map((one) => one.trim()).filter(Boolean);

/** @type {Record<string, Record<string, ActionForm>>} */
const ACTIONS = {
  "dns.record": {
    change: {
      fields: (record) => [
        { name: "values", label: "values, one in a line", type: "long", value: (record.spec.values ?? []).join("\n") },
        { name: "ttl", label: "TTL, in seconds", type: "number", value: String(record.spec.ttl ?? 300) },
      ],
      call: (record, facts, values) => [
        "POST",
        `/ns/${part(record.ns)}/objects/${part(record.id)}/actions/change`,
        { facts, args: { values: valuesOf(values.values), ttl: Number(values.ttl) } },
      ],
    },
  },
};

/** @type {CreateForm[]} */
const CREATE_FORMS = [
  {
    name: "zone",
    fields: () => [
      { name: "id", label: "domain name", hint: "example.org" },
      { name: "about", label: "what it is for", optional: true },
    ],
    call: (ns, { id, about }) => ["POST", `/ns/${part(ns)}/objects`, { kind: "dns.zone", id, spec: { about: about ?? "" } }],
  },
  {
    name: "record",
    fields: () => [
      { name: "zone", label: "zone", hint: "example.org" },
      { name: "name", label: "name in the zone", value: "@" },
      { name: "type", label: "type", value: "A", options: wordOptions(...TYPES) },
      { name: "values", label: "values, one in a line", type: "long", hint: "192.0.2.1" },
      { name: "ttl", label: "TTL, in seconds", type: "number", value: "300" },
    ],
    call: (ns, values) => ["POST", `/ns/${part(ns)}/objects`, newRecord(values)],
  },
];

/** @param {Values} values */
function newRecord({ zone, name, type, values, ttl }) {
  const whole = name === "@" ? zone : `${name}.${zone}`;
  const spec = { zone, name, type, values: valuesOf(values), ttl: Number(ttl) };
  return { kind: "dns.record", id: `${whole}-${type}`, spec };
}

/** @type {Domain} */
export default {
  name: "dns",
  nav: "DNS",
  hotkey: "n",
  tour: ["Zones and records", "What is recorded, what the DNS server serves, and where the two differ."],
  view: { title: "DNS", show },
  actions: ACTIONS,
  createForms: CREATE_FORMS,
};
