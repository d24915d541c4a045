// A sparkline of the transitions in the last two minutes.

import { h, svg } from "../core/dom.js";
import { store } from "../core/store.js";

/** @returns {{element: HTMLElement, show: () => void}} */
export function sparkline() {
  const path = svg("path", { class: "curve" });
  const area = svg("path", { class: "area" });
  const picture = svg("svg", { viewBox: "0 0 240 40", preserveAspectRatio: "none", "aria-hidden": "true" }, area, path);
  const value = h("b", null, "0");
  const element = h("div", { class: "number spark" }, h("div", null, value, h("span", null, "transitions/s")), picture);
  const show = () => {
    const rates = store.rates.slice(0, -1);
    const top = Math.max(4, ...rates);
    const points = rates.map(
      (rate, number) => `${((number * 240) / (rates.length - 1)).toFixed(1)} ${(38 - (rate / top) * 34).toFixed(1)}`,
    );
    path.setAttribute("d", `M${points.join("L")}`);
    area.setAttribute("d", `M0 40L${points.join("L")}L240 40Z`);
    const last = rates.slice(-5);
    value.textContent = (last.reduce((sum, one) => sum + one, 0) / last.length).toFixed(1).replace(/\.0$/, "");
  };
  return { element, show };
}
