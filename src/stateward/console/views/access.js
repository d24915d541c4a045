// Tokens and quotas: who may call the API, and how many objects a namespace may have. For administrators.

import { get, part, send } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { splitList } from "../ui/form.js";
import { card, confirm, empty, heading, labeled, select, table } from "../ui/components.js";
import { attempt, problemPanel, toast } from "../ui/problems.js";
import { shape } from "../ui/states.js";
import { may, namespaces } from "../core/store.js";
import { ago } from "../core/time.js";

/** @import {Context, Quota, Token} from "../core/types.js" */

const ROLES = /** @type {[string, string][]} */ ([
  ["viewer", "viewer: may look"],
  ["operator", "operator: may look and act"],
  ["admin", "admin: may do everything"],
  ["agent", "agent: may report"],
]);

/** @param {Context} context */
async function show(context) {
  if (!may("govern")) {
    fill(
      context.main,
      heading("Access", ""),
      empty("Tokens and quotas are for administrators.", "Sign in with an administrator's token."),
    );
    return;
  }
  const tokens = h("div", null);
  const quotas = h("div", null);
  const readTokens = async () => fill(tokens, tokenTable(await get("/tokens", {}, context.signal), readTokens));
  const readQuotas = async () => fill(quotas, quotaTable(await get("/quotas", {}, context.signal)));
  fill(
    context.main,
    heading("Access", "tokens open namespaces; quotas limit them"),
    h(
      "div",
      { class: "columns" },
      h(
        "div",
        { class: "column" },
        card("Tokens", "the secret is shown once, when a token is created", tokens),
        card("Quotas", "what is not given is not limited", quotas),
      ),
      h("div", { class: "column" }, newToken(readTokens), newQuota(readQuotas)),
    ),
  );
  await Promise.all([readTokens(), readQuotas()]);
}

/** @param {Token[]} found @param {() => Promise<void>} read */
function tokenTable(found, read) {
  const revoke = async (/** @type {Token} */ one) => {
    if (!(await confirm(`Revoke the token of ${one.name}?`, "Revoke it"))) return;
    await attempt(async () => {
      await send("DELETE", `/tokens/${part(one.id)}`);
      toast(`The token of ${one.name} is revoked.`, "good");
    });
    read();
  };
  return table(
    "Tokens",
    ["whose", "role", "namespaces", "state", "made", "expires", ""],
    found.map((one) => [
      h("b", null, one.name),
      one.role,
      one.namespaces.join(", "),
      h("span", { class: "fine" }, shape(one.state === "active" ? "good" : "over"), one.state),
      ago(one.created),
      one.expires ? ago(one.expires) : "never",
      one.state === "active" ? h("button", { onclick: () => revoke(one) }, "Revoke") : "",
    ]),
  );
}

/** @param {Quota[]} found */
function quotaTable(found) {
  if (!found.length) return empty("No namespace has a quota.", "Set one beside.");
  return table(
    "Quotas",
    ["namespace", "objects", "operations under way"],
    found.map((one) => [
      h("b", null, one.ns),
      Object.entries(one.objects)
        .map(([kind, most]) => `${kind}: ${most}`)
        .join(", ") || "any number",
      one.operations === null ? "any number" : String(one.operations),
    ]),
  );
}

/** @param {() => Promise<void>} read */
function newToken(read) {
  const name = input("name", "ann", true);
  const where = input("namespaces", "* or shop, bank", true);
  const expires = /** @type {HTMLInputElement} */ (h("input", { type: "datetime-local", name: "expires" }));
  const asked = { role: "viewer" };
  const feedback = h("div", { role: "status" });
  const make = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      const made = await send("POST", "/tokens", {
        name: name.value,
        role: asked.role,
        namespaces: splitList(where.value),
        expires: expires.value ? new Date(expires.value).toISOString() : null,
      });
      fill(feedback, h("p", null, "Keep it now: it is not shown again."), h("code", { class: "secret" }, made.token));
      await read();
    } catch (error) {
      fill(feedback, problemPanel(error));
    }
  };
  return card(
    "New token",
    "",
    h(
      "form",
      { class: "column", onsubmit: make },
      labeled("whose it is", name),
      labeled("role", select(ROLES, asked.role, (value) => (asked.role = value), "Role")),
      labeled("namespaces", where),
      labeled("expires (or never)", expires),
      h("button", { class: "primary", type: "submit" }, "Make a token"),
      feedback,
    ),
  );
}

/** @param {() => Promise<void>} read */
function newQuota(read) {
  const ns = input("ns", namespaces()[0] ?? "shop", true);
  const objects = input("objects", "mci.vm=100, ovc.disk=50", false);
  const operations = /** @type {HTMLInputElement} */ (h("input", { type: "number", min: 0, name: "operations" }));
  const feedback = h("div", { role: "status" });
  const set = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const limits = splitList(objects.value).map((one) => one.split("=", 2));
    try {
      await send("PUT", `/quotas/${part(ns.value)}`, {
        objects: Object.fromEntries(limits.map(([kind, most]) => [kind, Number(most)])),
        operations: operations.value === "" ? null : Number(operations.value),
      });
      toast(`The quota of ${ns.value} is set.`, "good");
      fill(feedback);
      await read();
    } catch (error) {
      fill(feedback, problemPanel(error));
    }
  };
  return card(
    "Set a quota",
    "",
    h(
      "form",
      { class: "column", onsubmit: set },
      labeled("namespace", ns),
      labeled("objects of a kind", objects),
      labeled("operations under way", operations),
      h("button", { type: "submit" }, "Set"),
      feedback,
    ),
  );
}

/** @param {string} name @param {string} placeholder @param {boolean} required @returns {HTMLInputElement} */
function input(name, placeholder, required) {
  return /** @type {HTMLInputElement} */ (h("input", { name, placeholder, required, autocomplete: "off" }));
}

export default { title: "Access", show };
