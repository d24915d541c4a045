// Words of a command line: split and quoted as a POSIX shell does it. Nothing is expanded, since no shell runs them.

const IN_DOUBLE_QUOTES = '"\\$`\n';

/** A word of a shell's command. @param {string} text */
export const shellWord = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** A word of a shell's command, without quotes where they do nothing. @param {string | number} word */
export const plainWord = (word) => (/^[\w./:@,=+-]+$/.test(String(word)) ? String(word) : shellWord(String(word)));

/** Split a command line. @param {string} line @returns {{words: string[], error: string}} an error if the line has no end */
export function splitWords(line) {
  /** @type {string[]} */
  const words = [];
  /** @type {string | null} */
  let word = null;
  let quote = "";
  for (let at = 0; at < line.length; at += 1) {
    const [one = "", next = ""] = [line[at], line[at + 1]];
    if (one === quote) quote = "";
    else if (quote === "'") word += one;
    else if (one === "\\" && (quote === "" || IN_DOUBLE_QUOTES.includes(next))) {
      if (!next) return { words, error: "the last backslash has nothing behind it" };
      word = (word ?? "") + (next === "\n" ? "" : next);
      at += 1;
    } else if (quote) word += one;
    else if (/\s/.test(one)) {
      if (word !== null) words.push(word);
      word = null;
    } else {
      word ??= "";
      if (one === "'" || one === '"') quote = one;
      else word += one;
    }
  }
  if (quote) return { words, error: `a ${quote} is not closed` };
  if (word !== null) words.push(word);
  return { words, error: "" };
}
