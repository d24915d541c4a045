// Times as people read them.

const STEPS = /** @type {[number, string][]} */ ([
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
]);

/** @param {number} seconds @returns {string} such as `3 min` */
export function span(seconds) {
  const size = Math.abs(seconds);
  for (const [unit, name] of STEPS) {
    if (size >= unit) {
      const amount = size / unit;
      return `${amount < 10 && unit > 1 ? amount.toFixed(1).replace(/\.0$/, "") : Math.floor(amount)} ${name}`;
    }
  }
  return "0 s";
}

/** @param {string | number} when @returns {number} seconds since the epoch */
export function seconds(when) {
  return typeof when === "number" ? when : Date.parse(when) / 1000;
}

/** @param {string | number} when @returns {string} how long ago, or how long until */
export function ago(when) {
  const past = Date.now() / 1000 - seconds(when);
  if (past < -1) return `in ${span(past)}`;
  return past < 1 ? "now" : `${span(past)} ago`;
}

/** @param {string | number} when @returns {string} the time of day */
export function clock(when) {
  const date = new Date(seconds(when) * 1000);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** @param {string | number} when @returns {string} day and time */
export function moment(when) {
  const date = new Date(seconds(when) * 1000);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(when)}`;
}

/** @param {number} number */
function two(number) {
  return String(number).padStart(2, "0");
}
