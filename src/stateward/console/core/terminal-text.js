// Text that was written for a terminal, as plain text: colours and cursor movements are left out, and whatever else is
// not printable is shown as its code. A program cannot hide, reorder or overwrite what people read.

// CSI (colours, movements); OSC, DCS and the like up to their end; every other sequence of two or three characters.
const ESCAPES = /(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]/g;
const UNPRINTABLE = /[^\P{C}\t]|[\p{Zl}\p{Zp}]/gu;

/** @param {string} one */
function codeOf(one) {
  const code = (one.codePointAt(0) ?? 0).toString(16);
  return code.length <= 2 ? `\\x${code.padStart(2, "0")}` : `\\u{${code}}`;
}

/** A line without its end. Only what follows its last carriage return is seen, as on a terminal. @param {string} line @returns {string} */
export function plainLine(line) {
  const seen = line.replace(/\r+$/, "");
  return seen.slice(seen.lastIndexOf("\r") + 1).replace(ESCAPES, "").replace(UNPRINTABLE, codeOf);
}

/** @param {string} text of any number of lines @returns {string} */
export const plainText = (text) => text.split("\n").map(plainLine).join("\n");
