// A sparkline of the transitions in the last hour, with their rate now.

import { h, svg } from "../core/dom.js";
import { store } from "../core/store.js";
import { numberText } from "../core/numbers.js";

const RATE_SECONDS = 5;

/** @returns {{element: HTMLElement, show: () => void, setHour: (counts: number[]) => void}} */
export function sparkline() {
  const path = svg("path", { class: "curve" });
  const area = svg("path", { class: "area" });
  const picture = svg("svg", { viewBox: "0 0 240 40", preserveAspectRatio: "none", "aria-hidden": "true" }, area, path);
  const value = h("b", null, "0");
  const sum = h("span", { class: "hour" }, "…");
  const element = h("div", { class: "number spark" }, h("div", null, value, h("span", null, "transitions/s"), sum), picture);
  const show = () => {
    const last = store.rates.slice(-RATE_SECONDS - 1, -1);
    value.textContent = (last.reduce((total, one) => total + one, 0) / RATE_SECONDS).toFixed(1).replace(/\.0$/, "");
  };
  /** @param {number[]} counts of each minute */
  const setHour = (counts) => {
    const top = Math.max(4, ...counts);
    const points = counts.map(
      (count, number) => `${((number * 240) / (counts.length - 1)).toFixed(1)} ${(38 - (count / top) * 34).toFixed(1)}`,
    );
    path.setAttribute("d", `M${points.join("L")}`);
    area.setAttribute("d", `M0 40L${points.join("L")}L240 40Z`);
    sum.textContent = `${numberText(counts.reduce((total, one) => total + one, 0))} in the last hour`;
  };
  return { element, show, setHour };
}
