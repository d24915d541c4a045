// The live diagram of a lifecycle: the number of objects in each state, and a moving dot for each transition.

import { Problem, text, part } from "../core/api.js";
import { fill, svg } from "../core/dom.js";
import { numberText } from "../core/numbers.js";
import { calm } from "../core/theme.js";
import { quiet } from "./components.js";

/** @import {JournalEntry} from "../core/types.js" */

const TRAVEL_MS = 900;
const MAX_DOTS = 30;
const POINTS = 32;
const MIN_SCALE = 0.66;
const MAX_SCALE = 1.15;

/** @type {Map<string, Promise<string>>} */
const drawn = new Map();

/** A picture in the page. */
export class Diagram {
  /** @param {SVGSVGElement} element */
  constructor(element) {
    this.element = element;
    const wide = Number(element.getAttribute("width"));
    element.style.setProperty("min-width", `${Math.min(wide, Math.round(wide * MIN_SCALE))}px`);
    element.style.setProperty("max-width", `${Math.round(wide * MAX_SCALE)}px`);
    /** @type {Map<string, Element>} */
    this.states = new Map();
    /** @type {Map<string, Element>} */
    this.moves = new Map();
    /** @type {{dot: SVGElement, path: SVGPathElement, begun: number, points: DOMPoint[]}[]} */
    this.dots = [];
    for (const one of element.querySelectorAll("[data-state]"))
      this.states.set(one.getAttribute("data-state") ?? "", one);
    for (const one of element.querySelectorAll(".move")) this.learn(one);
  }

  /** @param {Element} move */
  learn(move) {
    for (const source of named(move, "sources")) {
      for (const target of named(move, "targets")) {
        for (const event of named(move, "events")) this.moves.set(`${source} ${event} ${target}`, move);
        if (!this.moves.has(`${source} ${target}`)) this.moves.set(`${source} ${target}`, move);
      }
    }
  }

  /** @param {Map<string, number>} counts */
  count(counts) {
    for (const [state, element] of this.states) {
      const count = counts.get(state) ?? 0;
      const shown = element.querySelector(".count");
      const text = count ? numberText(count) : "";
      if (shown && shown.textContent !== text) shown.textContent = text;
      element.classList.toggle("none", count === 0);
    }
  }

  /** Mark the state that an object is in. @param {string} state */
  mark(state) {
    for (const [name, element] of this.states) element.classList.toggle("here", name === state);
    const place = this.element.parentElement;
    const here = this.states.get(state)?.getBoundingClientRect();
    if (place && here) place.scrollLeft += here.left - place.getBoundingClientRect().left - place.clientWidth / 2;
  }

  /** Show steps as they happen. @param {JournalEntry[]} entries */
  step(entries) {
    for (const entry of entries) {
      if (entry.source === null || entry.target === null || entry.source === entry.target) continue;
      const move =
        this.moves.get(`${entry.source} ${entry.event} ${entry.target}`) ??
        this.moves.get(`${entry.source} ${entry.target}`);
      const path = move?.querySelector("path");
      if (move && path) this.travel(move, path);
    }
  }

  /** @param {Element} move @param {SVGPathElement} path */
  travel(move, path) {
    if (calm.matches || document.hidden || this.dots.length >= MAX_DOTS) return;
    const dot = svg("circle", { class: "dot", r: 4.5 });
    this.element.append(dot);
    move.classList.add("lively");
    this.dots.push({ dot, path, begun: performance.now(), points: pointsOf(path) });
    if (this.dots.length === 1) requestAnimationFrame(() => this.frame());
  }

  frame() {
    const now = performance.now();
    this.dots = this.dots.filter((one) => {
      const share = (now - one.begun) / TRAVEL_MS;
      if (share >= 1 || !this.element.isConnected) {
        one.dot.remove();
        one.path.parentElement?.classList.remove("lively");
        return false;
      }
      const { x, y } = between(one.points, share);
      one.dot.setAttribute("transform", `translate(${x} ${y})`);
      return true;
    });
    if (this.dots.length) requestAnimationFrame(() => this.frame());
  }
}

/** @type {WeakMap<SVGPathElement, DOMPoint[]>} */
const measured = new WeakMap();

/** Points along a path, measured once: asking for one takes long. @param {SVGPathElement} path @returns {DOMPoint[]} */
function pointsOf(path) {
  let points = measured.get(path);
  if (points === undefined) {
    const length = path.getTotalLength();
    points = Array.from({ length: POINTS + 1 }, (_, number) => path.getPointAtLength((length * number) / POINTS));
    measured.set(path, points);
  }
  return points;
}

/** @param {DOMPoint[]} points @param {number} share */
function between(points, share) {
  const at = Math.max(0, share) * POINTS;
  const from = points[Math.floor(at)] ?? { x: 0, y: 0 };
  const to = points[Math.ceil(at)] ?? from;
  const rest = at % 1;
  return { x: from.x + (to.x - from.x) * rest, y: from.y + (to.y - from.y) * rest };
}

/** @param {Element} move @param {string} which @returns {string[]} */
function named(move, which) {
  return JSON.parse(move.getAttribute(`data-${which}`) ?? "[]");
}

/** Show the diagram of a kind, or why there is none. @param {Element} place @param {string} kind */
export async function showDiagram(place, kind) {
  try {
    const diagram = await diagramOf(kind);
    fill(place, diagram.element);
    return diagram;
  } catch (error) {
    if (!(error instanceof Problem) || ![404, 501].includes(error.fields.status)) throw error;
    fill(place, quiet(error.fields.detail));
    return null;
  }
}

/** @param {string} kind @returns {Promise<Diagram>} */
async function diagramOf(kind) {
  let asked = drawn.get(kind);
  if (asked === undefined) {
    asked = text(`/kinds/${part(kind)}/diagram`);
    drawn.set(kind, asked);
    asked.catch(() => drawn.delete(kind));
  }
  // The picture's own style would be inline; the page has the same one as a file.
  const parsed = new DOMParser().parseFromString((await asked).replace(/<style>[^]*?<\/style>/, ""), "image/svg+xml");
  const element = /** @type {SVGSVGElement} */ (
    /** @type {unknown} */ (document.importNode(parsed.documentElement, true))
  );
  for (const one of element.querySelectorAll("[id]")) one.removeAttribute("id"); // several pictures share the page
  return new Diagram(element);
}
