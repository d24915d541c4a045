// Leases: a calendar with hosts as rows. Click a bar to see its lease.

import { fill, find, h, svg } from "../dom.js";
import { living, pick } from "../living.js";
import { card, code, empty, heading, select, table } from "../parts.js";
import { objectLink } from "../router.js";
import { badge, SHAPES, toneOf } from "../states.js";
import { ago, moment, seconds, span } from "../time.js";

/** @import {Context, Thing} from "../types.js" */
/** @typedef {{lease: Thing, start: number, end: number}} Booking */
/** @typedef {{name: string, host: Thing | null, bookings: Booking[]}} Row */

const HOUR = 3_600;
const WIDE = 1_200;
const LEFT = 130;
const TALL = 34;

const chosen = { hours: "72" };

/** @param {Context} context */
async function show(context) {
  const place = h("div", { class: "gantt", tabindex: "0", role: "region", "aria-label": "Calendar of leases" });
  const detail = h("div", null);
  const list = h("div", null);
  /** @type {Thing[]} */
  let shown = [];
  const draw = () => {
    const leases = shown.filter((one) => one.kind === "leases.lease");
    const rows = rowsOf(shown);
    fill(
      place,
      rows.length
        ? calendar(rows, Number(chosen.hours) * HOUR, (lease) => fill(detail, told(lease)))
        : empty(
            "Nothing is reserved, and there is no host yet.",
            "Register hosts and make a lease over ",
            code("/blazar/v1"),
            ".",
          ),
    );
    fill(
      list,
      leases.length
        ? table(
            "Leases",
            ["lease", "state", "begins", "ends", "lasts", "hosts"],
            leases.map((one) => row(one, rows)),
          )
        : h("p", { class: "quiet" }, "There is no lease."),
    );
  };
  const spans = select(
    [
      ["24", "one day"],
      ["72", "three days"],
      ["168", "one week"],
      ["720", "thirty days"],
    ],
    chosen.hours,
    (value) => ((chosen.hours = value), draw()),
    "Span of the calendar",
  );
  fill(
    context.main,
    heading("Leases", "who has which host, and when"),
    card("Calendar", ["hosts are rows; the dashed line is now", h("span", { class: "tools" }, spans)], place, detail),
    card("All leases", "", list),
  );
  await living(context, ["leases.lease", "leases.host"], (things) => {
    shown = things;
    draw();
  });
  context.every(30, draw);
}

/** @param {Thing} one @returns {string} what people call a lease or a host */
function nameOf(one) {
  return String(pick(one.spec, ["name"]) ?? one.id);
}

/** @param {Thing[]} things @returns {Row[]} */
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

/** @param {Row[]} rows @param {number} length @param {(lease: Thing) => void} onChosen */
function calendar(rows, length, onChosen) {
  const now = Date.now() / 1000;
  const from = Math.floor((now - length / 6) / HOUR) * HOUR;
  const x = (/** @type {number} */ at) => LEFT + ((at - from) / length) * (WIDE - LEFT);
  const tall = 30 + rows.length * TALL + 6;
  const step = length / 12;
  const ticks = Array.from({ length: 12 }, (_, number) => from + number * step);
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDE} ${tall}` },
    rows.map((_, number) =>
      number % 2 ? null : svg("rect", { class: "stripe", x: 0, y: 28 + number * TALL, width: WIDE, height: TALL }),
    ),
    ticks.flatMap((at) => [
      svg("line", { class: "rule", x1: x(at), x2: x(at), y1: 22, y2: tall }),
      svg("text", { class: "tick", x: x(at) + 3, y: 16 }, tick(at, length)),
    ]),
    rows.flatMap((row, number) => [
      hostName(row, 28 + number * TALL),
      ...row.bookings.map((one) => bar(one, 28 + number * TALL, x, onChosen)),
    ]),
    svg("line", { class: "now", x1: x(now), x2: x(now), y1: 22, y2: tall }),
  );
}

/** @param {number} at @param {number} length */
function tick(at, length) {
  const date = new Date(at * 1000);
  const day = `${date.getMonth() + 1}/${date.getDate()}`;
  return length > 100 * HOUR ? day : `${day} ${String(date.getHours()).padStart(2, "0")}:00`;
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

/** @param {Booking} one @param {number} y @param {(at: number) => number} x @param {(lease: Thing) => void} onChosen */
function bar(one, y, x, onChosen) {
  const left = Math.max(LEFT, x(one.start));
  const right = Math.min(WIDE, x(one.end));
  if (right <= left) return null;
  const choose = (/** @type {Event} */ event) => {
    const before = find(".gantt").querySelector(".chosen");
    before?.classList.remove("chosen");
    /** @type {Element} */ (event.currentTarget).classList.add("chosen");
    onChosen(one.lease);
  };
  const fits = right - left > nameOf(one.lease).length * 7 + 10;
  return svg(
    "g",
    {
      class: `bar tone-${toneOf(one.lease.state, one.lease.state_class)}`,
      role: "button",
      tabindex: "0",
      "aria-label": `${nameOf(one.lease)}, ${one.lease.state}, ${moment(one.start)} to ${moment(one.end)}`,
      onclick: choose,
      onkeydown: (/** @type {KeyboardEvent} */ event) => (event.key === "Enter" ? choose(event) : null),
    },
    svg("rect", { x: left, y: y + 5, width: right - left, height: TALL - 10, rx: 6 }),
    fits ? svg("text", { x: left + 9, y: y + 22 }, nameOf(one.lease)) : null,
    svg("title", null, `${nameOf(one.lease)} · ${one.lease.state}\n${moment(one.start)} – ${moment(one.end)}`),
  );
}

/** @param {Thing} lease @param {Row[]} rows */
function row(lease, rows) {
  const start = pick(lease.spec, ["start", "start_date"]);
  const end = pick(lease.spec, ["end", "end_date"]);
  const hosts = rows
    .filter((one) => one.host && one.bookings.some((booking) => booking.lease === lease))
    .map((one) => one.name);
  return [
    leaseAnchor(lease),
    badge(lease.state, lease.state_class),
    start === undefined ? "" : moment(start),
    end === undefined ? "" : `${moment(end)}, ${ago(end)}`,
    start === undefined || end === undefined ? "" : span(seconds(end) - seconds(start)),
    hosts.join(", "),
  ];
}

/** @param {Thing} lease */
function leaseAnchor(lease) {
  return h("a", { href: objectLink(lease.ns, lease.id), class: "object" }, nameOf(lease));
}

/** @param {Thing} lease */
function told(lease) {
  const reservations = pick(lease.spec, ["reservations"]) ?? [];
  const wants = [...reservations]
    .map((/** @type {any} */ one) => `${one.resource_type ?? ""} ${JSON.stringify(one.details ?? {})}`)
    .join("; ");
  return h(
    "p",
    { class: "row", role: "status" },
    leaseAnchor(lease),
    badge(lease.state, lease.state_class),
    h("span", { class: "quiet" }, wants),
    lease.error ? h("span", { class: "error-text" }, lease.error) : null,
  );
}

export default { title: "Leases", show };
