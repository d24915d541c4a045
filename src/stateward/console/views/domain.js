// The view of a domain that brings none: its kinds, their objects with the columns that the kinds name, their lifecycles.

import { fill, h } from "../core/dom.js";
import { domainName, domains } from "../core/domains.js";
import { link, place } from "../core/links.js";
import { groupBy, liveObjects } from "../core/live-objects.js";
import { countOf, statesOf, store } from "../core/store.js";
import { card, empty, errorText, heading, objectAnchor, relativeTime, restNote, stateSummary, table } from "../ui/components.js";
import { createButtons } from "../ui/create-buttons.js";
import { lifecycleCard } from "../ui/lifecycle-card.js";
import { columnsOf } from "../ui/object-columns.js";
import { stateBadge } from "../ui/states.js";

/** @import {Context, Kind, ObjectView} from "../core/types.js" */

const MAX_SHOWN = 50;
const chosen = { kind: "" };

/** @param {Context} context */
async function show(context) {
  const { name } = place();
  const kinds = [...store.kinds.values()].filter((one) => domainName(one.kind) === name);
  const list = h("div", { class: "column" });
  const about = store.plugins.find((one) => one.name === name)?.about ?? "";
  let again = () => {};
  fill(
    context.main,
    heading(domains.get(name)?.nav ?? name, about, ...createButtons(name, () => again())),
    list,
    lifecycleCard(context, kinds.map((one) => one.kind), chosen),
  );
  again = await liveObjects(context, kinds.map((one) => one.kind), (things) => {
    const byKind = groupBy(things, (one) => one.kind);
    fill(list, kinds.map((kind) => kindCard(kind, byKind.get(kind.kind) ?? [])));
  });
}

/** @param {Kind} kind @param {ObjectView[]} things */
function kindCard(kind, things) {
  const about = [kind.about, h("span", { class: "tools" }, h("a", { href: link("objects", [], { kind: kind.kind }) }, "show all"))];
  if (!things.length) return card(kind.kind, about, empty(`No ${kind.kind} yet.`));
  const columns = columnsOf(kind.kind);
  const rows = things.slice(0, MAX_SHOWN).map((one) => [
    objectAnchor(one.ns, one.id),
    stateBadge(one),
    ...columns.map(({ text }) => text(one)),
    relativeTime(one.since),
    errorText(one.error),
  ]);
  return card(
    kind.kind,
    about,
    stateSummary(kind.kind, statesOf(kind.kind)),
    table(kind.kind, ["id", "state", ...columns.map((one) => one.name), "since", "error"], rows),
    restNote(rows.length, countOf(kind.kind), { kind: kind.kind }),
  );
}

export default { title: "Domain", show };
