// Tokens and quotas: who may call the API, and how many objects a namespace may have. For administrators.

import { get, part, send } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { splitList } from "../ui/form.js";
import { card, confirm, empty, heading, labeled, relativeTime, select, table } from "../ui/components.js";
import { attempt, problemPanel, toast } from "../ui/problems.js";
import { showNamespaceProtection } from "../ui/protection.js";
import { shape } from "../ui/states.js";
import { governs, namespaces } from "../core/store.js";

/** @import {Context, Quota, Token} from "../core/types.js" */

const ROLES = /** @type {[string, string][]} */ ([
  ["viewer", "viewer: read"],
  ["operator", "operator: read and act"],
  ["admin", "admin: full access"],
  ["agent", "agent: report only"],
]);

/** @param {Context} context */
async function show(context) {
  if (!governs()) {
    fill(
      context.main,
      heading("Access", ""),
      empty("Tokens and quotas are for administrators.", "Sign in with an administrator's token."),
    );
    return;
  }
  const tokens = h("div", null);
  const quotas = h("div", null);
  const protection = h("div", null);
  const readTokens = async () => fill(tokens, tokenTable(await get("/tokens", {}, context.signal), readTokens));
  const readQuotas = async () => fill(quotas, quotaTable(await get("/quotas", {}, context.signal)));
  fill(
    context.main,
    heading("Access", "tokens give access to namespaces; quotas limit what a namespace has"),
    h(
      "div",
      { class: "columns" },
      h(
        "div",
        { class: "column" },
        card("Tokens", "the secret is shown once, when a token is created", tokens),
        card("Quotas", "of objects and operations, by namespace", quotas),
        card("Protection", "of all objects of a namespace against deletion", protection),
      ),
      h("div", { class: "column" }, newToken(readTokens), newQuota(readQuotas)),
    ),
  );
  const names = namespaces().filter((ns) => !ns.startsWith("("));
  await Promise.all([readTokens(), readQuotas(), showNamespaceProtection(protection, names, context.signal)]);
}

/** @param {Token[]} found @param {() => Promise<void>} read */
function tokenTable(found, read) {
  const revoke = async (/** @type {Token} */ one) => {
    if (!(await confirm(`Revoke the token of ${one.name}?`, "Revoke"))) return;
    await attempt(async () => {
      await send("DELETE", `/tokens/${part(one.id)}`);
      toast(`The token of ${one.name} is revoked.`, "good");
    });
    read();
  };
  return table(
    "Tokens",
    ["name", "role", "namespaces", "state", "created", "expires", ""],
    found.map((one) => [
      h("b", null, one.name),
      one.role,
      one.namespaces.join(", "),
      h("span", { class: "fine" }, shape(one.state === "active" ? "good" : "over"), one.state),
      relativeTime(one.created),
      one.expires ? relativeTime(one.expires) : "never",
      one.state === "active" ? h("button", { onclick: () => revoke(one) }, "Revoke") : "",
    ]),
  );
}

/** @param {Quota[]} found */
function quotaTable(found) {
  if (!found.length) return empty("No quotas yet.", "Namespaces without a quota have no limits.");
  return table(
    "Quotas",
    ["namespace", "objects", "operations under way"],
    found.map((one) => [
      h("b", null, one.ns),
      Object.entries(one.objects)
        .map(([kind, most]) => `${kind}: ${most}`)
        .join(", ") || "unlimited",
      one.operations === null ? "unlimited" : String(one.operations),
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
      fill(feedback, h("p", null, "Copy the token now: it is shown only once."), h("code", { class: "secret" }, made.token));
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
      labeled("person or program", name),
      labeled("role", select(ROLES, asked.role, (value) => (asked.role = value), "Role")),
      labeled("namespaces", where),
      labeled("expires (empty: never)", expires),
      h("button", { class: "primary", type: "submit" }, "Create token"),
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
    "Set quota",
    "",
    h(
      "form",
      { class: "column", onsubmit: set },
      labeled("namespace", ns),
      labeled("objects by kind", objects),
      labeled("operations under way", operations),
      h("button", { type: "submit" }, "Set quota"),
      feedback,
    ),
  );
}

/** @param {string} name @param {string} placeholder @param {boolean} required @returns {HTMLInputElement} */
function input(name, placeholder, required) {
  return /** @type {HTMLInputElement} */ (h("input", { name, placeholder, required, autocomplete: "off" }));
}

export default { title: "Access", show };
