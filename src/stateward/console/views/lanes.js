// Lanes: how much may run at once where, how much does, and what is backed off. Administrators set the limits.

import { get, part, send } from "../core/api.js";
import { fill, fillIfChanged, h } from "../core/dom.js";
import { card, empty, heading, meter, table } from "../ui/components.js";
import { attempt, toast } from "../ui/problems.js";
import { shape } from "../ui/states.js";
import { may, mayAll } from "../core/store.js";
import { ago } from "../core/time.js";
import { counted } from "../core/numbers.js";

/** @import {Context, Lane, Lanes} from "../core/types.js" */

const UNLIMITED = 2 ** 31 - 1;

/** @param {Context} context */
function show(context) {
  const list = h("div", { class: "grid two" });
  fill(context.main, heading("Lanes", "the limits hold for the whole deployment; a lane is a provider's region"), list);
  if (!mayAll()) {
    fill(list, empty("Lanes are shared by all namespaces.", "To see lanes, sign in with a token for all namespaces."));
    return;
  }
  const read = async () => {
    /** @type {Lanes} */
    const found = await get("/lanes", {}, context.signal);
    fillIfChanged(list, found, () =>
      found.lanes.length
        ? groups(found, read)
        : empty("No lane has work or a limit yet.", "Lanes appear with the first operation at a provider."),
    );
  };
  context.every(2, () =>
    list.contains(document.activeElement) && document.activeElement?.matches("input") ? undefined : read(),
  );
}

/** @param {Lanes} found @param {() => void} read */
function groups(found, read) {
  const names = [...new Set(found.lanes.map((one) => one.grp))].sort();
  return names.map((grp) => {
    const lanes = found.lanes.filter((one) => one.grp === grp);
    const limit = found.groups.find((one) => one.grp === grp)?.lanes;
    const active = lanes.filter((one) => one.running > 0).length;
    const about =
      limit === undefined || limit >= UNLIMITED
        ? `${counted(active, "lane")} active`
        : `${active} of ${limit} lanes active at once`;
    const edit =
      may("govern") && grp
        ? number(limit ?? 0, `Lanes of ${grp}`, (lanes) => set(`/groups/${part(grp)}`, { lanes }, read))
        : null;
    return card(
      grp || "(default)",
      [about, edit ? h("span", { class: "tools" }, "limit", edit) : null],
      table(
        `Lanes of ${grp}`,
        ["lane", "use", "running", "limit", "waiting", "backed off"],
        lanes.map((one) => row(one, read)),
      ),
    );
  });
}

/** @param {Lane} one @param {() => void} read */
function row(one, read) {
  const unlimited = one.capacity >= UNLIMITED;
  const backed = one.back_off !== null && Date.parse(one.back_off) > Date.now();
  const tone = backed ? "failed" : one.running >= one.capacity ? "leaving" : "good";
  const path = one.lane.split("/").map(part).join("/");
  const limit = unlimited
    ? "none"
    : may("govern") && one.lane
      ? number(one.capacity, `Limit of ${one.lane}`, (capacity) =>
          set(`/lanes/${path}`, { grp: one.grp, capacity }, read),
        )
      : String(one.capacity);
  return [
    one.lane || "(default)",
    unlimited ? "" : meter(one.running, one.capacity, one.lane, tone),
    String(one.running),
    limit,
    one.waiting ? h("span", { class: "fine" }, shape("arriving"), "yes") : "no",
    backed ? `until ${ago(one.back_off ?? "")}, throttled ${counted(one.throttled, "time")}` : "no",
  ];
}

/** @param {number} value @param {string} name @param {(value: number) => void} onchange */
function number(value, name, onchange) {
  return h("input", {
    type: "number",
    min: 0,
    value,
    "aria-label": name,
    style: { width: "84px" },
    onchange: (/** @type {any} */ event) => onchange(Number(event.target.value)),
  });
}

/** @param {string} path @param {any} body @param {() => void} read */
async function set(path, body, read) {
  await attempt(async () => {
    await send("PUT", path, body);
    toast("The limit is set.", "good");
  });
  read();
}

export default { title: "Lanes", show };
