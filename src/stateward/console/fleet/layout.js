// The layout of the fleet map: groups are blocks in rows, with the largest cells that fit.

/** @import {Cell} from "./cells.js" */

/** @typedef {{name: string, cells: number[], x: number, y: number, width: number, columns: number, rows: number}} Block */
/** @typedef {{blocks: Block[], pitch: number, height: number, spots: ([number, number] | undefined)[]}} Layout */

const PITCHES = [18, 16, 14, 12, 10, 9, 8, 7, 6, 5, 4];
const MAX_HEIGHT_PX = 460;
const NARROW_PX = 500;
const GAP_PX = 18;
const LABEL_PX = 22;
const MIN_BLOCK_PX = 92;

/**
 * @param {Cell[]} cells
 * @param {(cell: Cell) => string} groupOf
 * @param {(cell: Cell) => boolean} wanted
 * @param {number} width
 * @returns {Layout}
 */
export function layOut(cells, groupOf, wanted, width) {
  const groups = grouped(cells, groupOf, wanted);
  for (const pitch of PITCHES) {
    const found = shelve(groups, pitch, width);
    if (found.height <= (width < NARROW_PX ? 1.6 * MAX_HEIGHT_PX : MAX_HEIGHT_PX) || pitch === PITCHES.at(-1))
      return { ...found, spots: spotted(found.blocks, pitch, cells.length) };
  }
  return { blocks: [], pitch: 4, height: 0, spots: [] };
}

/** @param {Cell[]} cells @param {(cell: Cell) => string} groupOf @param {(cell: Cell) => boolean} wanted */
function grouped(cells, groupOf, wanted) {
  /** @type {Map<string, number[]>} */
  const groups = new Map();
  cells.forEach((cell, index) => {
    if (cell.gone || !wanted(cell)) return;
    const name = groupOf(cell);
    const group = groups.get(name);
    if (group) group.push(index);
    else groups.set(name, [index]);
  });
  const size = (/** @type {number[]} */ group) => Math.round(Math.log2(group.length) / 2);
  const somewhere = (/** @type {string} */ name) => Number(name.includes("/"));
  return [...groups].sort(
    ([one, mine], [other, theirs]) =>
      somewhere(other) - somewhere(one) || size(theirs) - size(mine) || one.localeCompare(other),
  );
}

/** @param {[string, number[]][]} groups @param {number} pitch @param {number} width */
function shelve(groups, pitch, width) {
  /** @type {Block[]} */
  const blocks = [];
  let x = 0;
  let y = LABEL_PX;
  let shelf = 0;
  for (const [name, cells] of groups) {
    const most = Math.max(1, Math.floor(width / pitch));
    const columns = Math.min(most, Math.max(Math.ceil(MIN_BLOCK_PX / pitch), Math.ceil(Math.sqrt(cells.length * 1.9))));
    const rows = Math.ceil(cells.length / columns);
    const wide = columns * pitch;
    if (x > 0 && x + wide > width) {
      x = 0;
      y += shelf + GAP_PX + LABEL_PX - 6;
      shelf = 0;
    }
    blocks.push({ name, cells, x, y, width: wide + GAP_PX - 6, columns, rows });
    x += wide + GAP_PX;
    shelf = Math.max(shelf, rows * pitch);
  }
  return { blocks, pitch, height: groups.length ? y + shelf + 4 : 0 };
}

/** @param {Block[]} blocks @param {number} pitch @param {number} count */
function spotted(blocks, pitch, count) {
  /** @type {([number, number] | undefined)[]} */
  const spots = new Array(count);
  for (const block of blocks) {
    block.cells.forEach((cell, number) => {
      spots[cell] = [block.x + (number % block.columns) * pitch, block.y + Math.floor(number / block.columns) * pitch];
    });
  }
  return spots;
}
