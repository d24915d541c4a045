// The fleet map: a canvas with one cell for each object. Only changed cells are drawn again, so that the cost depends on
// the number of changes, not on the number of cells.

import { h, oncePerFrame } from "../core/dom.js";
import { layOut } from "./layout.js";
import { fleetTone, SHAPES, TONES } from "../ui/states.js";
import { classOf } from "../core/store.js";
import { calm, colour } from "../core/theme.js";
import { numberText } from "../core/numbers.js";

/** @import {Cell, Cells} from "./cells.js" */
/** @import {Block, Layout} from "./layout.js" */
/** @import {Tone} from "../ui/states.js" */

const FLASH_MS = 700;
const MIN_PATH_DOTS = 8;

/** The shapes of cells that are too small for a path, in nine squares; a failed one, half filled, stands out. @type {Record<Tone, [string, string, string]>} */
const SMALL_SHAPES = {
  good: ["###", "###", "###"],
  arriving: [" # ", "###", "###"],
  moving: [" # ", "###", " # "],
  leaving: ["###", "###", " # "],
  idle: ["## ", "## ", "   "],
  unknown: ["###", "# #", "###"],
  failed: ["#+#", "+#+", "#+#"],
  over: ["   ", "###", "   "],
};

/** @typedef {{side: number, rows: Uint32Array[]}} Stamp */

/** Draws cells, and shows the one that is pointed at. */
export class FleetMap {
  /**
   * @param {Cells} cells
   * @param {{onOpen: (cell: Cell) => void, groupOf: (cell: Cell) => string, wanted: (cell: Cell) => boolean}} how
   */
  constructor(cells, how) {
    this.cells = cells;
    this.how = how;
    this.canvas = /** @type {HTMLCanvasElement} */ (
      h("canvas", {
        tabindex: "0",
        role: "application",
        "aria-label": "Fleet map: one cell for each object; move with the arrow keys, open with Enter",
      })
    );
    this.tip = h("div", { class: "tip", hidden: true });
    this.voice = h("div", { class: "unseen", "aria-live": "polite" });
    this.element = h("div", { class: "fleet" }, this.canvas, this.tip, this.voice);
    /** @type {Layout} */
    this.layout = { blocks: [], pitch: 10, height: 0, spots: [] };
    /** @type {Map<number, number>} cells that changed, and when */
    this.flashing = new Map();
    /** @type {Map<Tone, HTMLCanvasElement>} */
    this.tiles = new Map();
    /** @type {Map<Tone, Stamp>} the same, dot by dot */
    this.stamps = new Map();
    /** @type {Map<string, Map<string, Tone>>} the tones of states, by kind */
    this.tones = new Map();
    this.side = 0;
    this.margin = 0;
    this.cursor = -1;
    this.moving = false;
    this.arrange = oncePerFrame(() => this.draw());
    this.watch();
  }

  watch() {
    new ResizeObserver(this.arrange).observe(this.element);
    this.canvas.addEventListener("pointermove", (event) =>
      this.point(this.at(event.offsetX, event.offsetY), event.offsetX, event.offsetY),
    );
    this.canvas.addEventListener("pointerleave", () => this.point(-1, 0, 0));
    this.canvas.addEventListener("click", (event) => this.open(this.at(event.offsetX, event.offsetY)));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("blur", () => this.walk(-1));
  }

  // --- drawing -------------------------------------------------------------------------------------------------------

  /** Lay everything out and draw it anew. */
  draw() {
    const width = Math.floor(this.element.clientWidth);
    if (!width) return;
    this.layout = layOut(this.cells.all, this.how.groupOf, this.how.wanted, width);
    const scale = window.devicePixelRatio || 1;
    const height = Math.max(60, this.layout.height);
    this.canvas.width = Math.floor(width * scale);
    this.canvas.height = Math.floor(height * scale);
    this.canvas.style.height = `${height}px`;
    this.canvas.dataset.cells = String(this.layout.blocks.reduce((sum, block) => sum + block.cells.length, 0));
    this.pen = this.canvas.getContext("2d");
    this.pen?.setTransform(scale, 0, 0, scale, 0, 0);
    this.prepareTiles(scale);
    this.blit(scale);
    for (const block of this.layout.blocks) this.label(block);
  }

  /** Draw all cells, dot by dot: for tens of thousands this is many times quicker than one picture each. @param {number} scale */
  blit(scale) {
    const { width, height } = this.canvas;
    if (!this.pen || !width || !height) return;
    const image = this.pen.createImageData(width, height);
    const dots = new Uint32Array(image.data.buffer);
    for (const block of this.layout.blocks) {
      for (const index of block.cells) {
        const stamp = this.stamps.get(this.toneAt(index));
        const spot = this.layout.spots[index];
        if (!stamp || !spot) continue;
        const left = Math.round((spot[0] + this.margin) * scale);
        const top = Math.round((spot[1] + this.margin) * scale);
        for (let row = 0; row < stamp.side; row += 1) {
          dots.set(stamp.rows[row] ?? [], (top + row) * width + left);
        }
      }
    }
    this.pen.putImageData(image, 0, 0);
  }

  /** @param {number} index @returns {Tone} */
  toneAt(index) {
    const cell = this.cells.all[index];
    if (!cell) return "over";
    const tones = this.tones.get(cell.kind) ?? new Map();
    let tone = tones.get(cell.state);
    if (tone === undefined) {
      tone = fleetTone(cell.state, classOf(cell.kind, cell.state));
      this.tones.set(cell.kind, tones.set(cell.state, tone));
    }
    return tone;
  }

  /** Prepare a picture of each tone. @param {number} scale */
  prepareTiles(scale) {
    this.tiles.clear();
    this.stamps.clear();
    const side = this.layout.pitch - (this.layout.pitch > 5 ? 2 : 1);
    for (const tone of TONES) {
      const tile = document.createElement("canvas");
      tile.width = tile.height = Math.max(1, Math.round(side * scale));
      const pen = tile.getContext("2d", { willReadFrequently: true });
      if (pen === null) continue;
      pen.fillStyle = colour(`tone-${tone}`);
      paintShape(pen, tone, tile.width);
      this.tiles.set(tone, tile);
      this.stamps.set(tone, stampOf(pen, tile.width));
    }
    this.side = side;
    this.margin = Math.floor((this.layout.pitch - side) / 2);
  }

  /** @param {Block} block */
  label(block) {
    const pen = this.pen;
    if (!pen) return;
    pen.font = "600 11px system-ui, sans-serif";
    pen.fillStyle = colour("quiet");
    pen.fillText(
      `${block.name || "other"} · ${numberText(block.cells.length)}`,
      block.x,
      block.y - 6,
      block.width,
    );
  }

  /** @param {number} index @param {number} [glow] from 1, just changed, to 0 */
  drawCell(index, glow = 0) {
    const cell = this.cells.all[index];
    const spot = this.layout.spots[index];
    const pen = this.pen;
    if (!cell || !spot || !pen) return;
    const { pitch } = this.layout;
    pen.clearRect(spot[0], spot[1], pitch, pitch);
    if (glow > 0) {
      pen.globalAlpha = glow * 0.85;
      pen.fillStyle = frameColours.ink;
      pen.fillRect(spot[0], spot[1], pitch - 1, pitch - 1);
      pen.globalAlpha = 1;
    }
    const tile = cell.gone ? undefined : this.tiles.get(this.toneAt(index));
    if (tile) pen.drawImage(tile, spot[0] + this.margin, spot[1] + this.margin, this.side, this.side);
    if (index === this.cursor) {
      pen.strokeStyle = frameColours.accent;
      pen.lineWidth = 1.5;
      pen.strokeRect(spot[0] + 0.75, spot[1] + 0.75, pitch - 1.5, pitch - 1.5);
    }
  }

  /** Show that cells have changed. @param {number[]} changed */
  flash(changed) {
    if (calm.matches) {
      for (const index of changed) this.drawCell(index);
      return;
    }
    const now = performance.now();
    for (const index of changed) this.flashing.set(index, now);
    if (!this.moving && this.flashing.size) {
      this.moving = true;
      frameColours.ink = colour("ink");
      frameColours.accent = colour("accent");
      requestAnimationFrame(() => this.frame());
    }
  }

  frame() {
    const now = performance.now();
    for (const [index, begun] of this.flashing) {
      const glow = 1 - (now - begun) / FLASH_MS;
      if (glow <= 0) this.flashing.delete(index);
      this.drawCell(index, Math.max(0, glow));
    }
    this.moving = this.flashing.size > 0 && this.element.isConnected;
    if (this.moving) requestAnimationFrame(() => this.frame());
  }

  // --- pointing ------------------------------------------------------------------------------------------------------

  /** @param {number} x @param {number} y @returns {number} */
  at(x, y) {
    const { blocks, pitch } = this.layout;
    const block = blocks.find(
      (one) => x >= one.x && x < one.x + one.columns * pitch && y >= one.y && y < one.y + one.rows * pitch,
    );
    if (!block) return -1;
    const number = Math.floor((y - block.y) / pitch) * block.columns + Math.floor((x - block.x) / pitch);
    return block.cells[number] ?? -1;
  }

  /** @param {number} index @param {number} x @param {number} y */
  point(index, x, y) {
    const cell = this.cells.all[index];
    this.tip.hidden = cell === undefined;
    this.canvas.style.cursor = cell ? "pointer" : "";
    if (!cell) return;
    this.tip.textContent = describe(cell);
    const left = x > this.element.clientWidth - 240 ? x - this.tip.offsetWidth - 12 : x + 14;
    this.tip.style.transform = `translate(${Math.max(0, left)}px, ${y + 14}px)`;
  }

  /** @param {number} index */
  open(index) {
    const cell = this.cells.all[index];
    if (cell && !cell.gone) this.how.onOpen(cell);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const flat = this.layout.blocks.flatMap((block) => block.cells);
    const here = flat.indexOf(this.cursor);
    const block = this.layout.blocks.find((one) => one.cells.includes(this.cursor));
    const steps = /** @type {Record<string, number>} */ ({
      ArrowRight: 1,
      ArrowLeft: -1,
      ArrowDown: block?.columns ?? 1,
      ArrowUp: -(block?.columns ?? 1),
    });
    const step = steps[event.key];
    if (event.key === "Enter") this.open(this.cursor);
    if (step === undefined) return;
    event.preventDefault();
    this.walk(flat[Math.min(flat.length - 1, Math.max(0, here < 0 ? 0 : here + step))] ?? -1);
  }

  /** Mark a cell. @param {number} index */
  walk(index) {
    const before = this.cursor;
    this.cursor = index;
    frameColours.accent = colour("accent");
    this.drawCell(before);
    this.drawCell(index);
    const cell = this.cells.all[index];
    const spot = this.layout.spots[index];
    if (cell && spot) this.point(index, spot[0], spot[1]);
    else this.tip.hidden = true;
    this.voice.textContent = cell ? describe(cell) : "";
  }
}

/** Colours that are read once for all frames of an animation. */
const frameColours = { ink: "#fff", accent: "#2dd4bf" };

/** Paint the shape of a tone. @param {CanvasRenderingContext2D} pen @param {Tone} tone @param {number} side in dots */
export function paintShape(pen, tone, side) {
  if (side >= MIN_PATH_DOTS) {
    pen.scale(side / 10, side / 10);
    pen.fill(new Path2D(SHAPES[tone]));
    return;
  }
  const edge = (/** @type {number} */ third) => Math.round((third * side) / 3);
  for (const [row, squares] of SMALL_SHAPES[tone].entries()) {
    for (const [column, square] of [...squares].entries()) {
      pen.globalAlpha = square === "+" ? 0.5 : 1;
      if (square !== " ") pen.fillRect(edge(column), edge(row), edge(column + 1) - edge(column), edge(row + 1) - edge(row));
    }
  }
}

/** @param {CanvasRenderingContext2D} pen @param {number} side @returns {Stamp} */
function stampOf(pen, side) {
  const dots = new Uint32Array(pen.getImageData(0, 0, side, side).data.buffer);
  return { side, rows: Array.from({ length: side }, (_, row) => dots.slice(row * side, (row + 1) * side)) };
}

/** @param {Cell} cell */
function describe(cell) {
  return `${cell.id} · ${cell.state}\n${cell.kind} · ${cell.place || cell.parent || cell.ns}`;
}
