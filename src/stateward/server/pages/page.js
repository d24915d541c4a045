// The page of the API's description: lists every route, and lets a reader try those that only read.
// Whatever comes from the server is written as text, never as markup.

const base = location.pathname.replace(/\/docs\/?$/, "");
const shown = document.getElementById("routes");
const token = document.getElementById("token");

function make(tag, attributes = {}, ...inside) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside);
  return element;
}

function nameOf(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  const ways = schema.oneOf ?? schema.anyOf;
  if (ways) return ways.map(nameOf).join(" or ");
  if (schema.allOf) return schema.allOf.map(nameOf).join(" and ");
  if (schema.enum) return schema.enum.map(String).join(" | ");
  if (schema.type === "array") return `list of ${nameOf(schema.items) || "anything"}`;
  return String(schema.type ?? "any");
}

function table(titles, rows) {
  const head = make("tr", {}, ...titles.map((title) => make("th", {}, title)));
  const lines = rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, cell ?? ""))));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...lines));
}

function parametersOf(operation) {
  const rows = (operation.parameters ?? []).map((one) => [
    one.name,
    one.required ? `${one.in}, required` : one.in,
    nameOf(one.schema),
    one.description ?? one.schema?.description,
  ]);
  return rows.length ? [make("h3", {}, "Parameters"), table(["name", "in", "type", "meaning"], rows)] : [];
}

function bodyOf(operation, schemas) {
  const content = operation.requestBody?.content?.["application/json"];
  const schema = content?.schema;
  if (!schema) return [];
  const record = schemas[nameOf(schema).split(" or ")[0]] ?? {};
  const rows = Object.entries(record.properties ?? {}).map(([name, one]) => [
    name,
    (record.required ?? []).includes(name) ? "needed" : "",
    nameOf(one),
    one.description,
  ]);
  const example = record.examples?.[0] ?? Object.values(content.examples ?? {})[0]?.value;
  const sample = example ? [make("pre", {}, JSON.stringify(example, null, 2))] : [];
  return [make("h3", {}, "Body"), table(["field", "", "type", "meaning"], rows), ...sample];
}

function answersOf(operation) {
  const rows = Object.entries(operation.responses).map(([status, one]) => [
    status,
    one.description,
    Object.entries(one.content ?? {}).map(([type, content]) => `${type}: ${nameOf(content.schema)}`).join("; "),
  ]);
  return [make("h3", {}, "Responses"), table(["status", "meaning", "content"], rows)];
}

async function send(path, fields, output) {
  let filled = path;
  const query = new URLSearchParams();
  const headers = token.value ? { Authorization: `Bearer ${token.value}` } : {};
  for (const { parameter, input } of fields) {
    if (!input.value) continue;
    if (parameter.in === "path") filled = filled.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    else if (parameter.in === "query") query.append(parameter.name, input.value);
    else headers[parameter.name] = input.value;
  }
  const url = base + filled + (query.size ? `?${query}` : "");
  output.textContent = `GET ${url} …`;
  try {
    const answer = await fetch(url, { headers });
    const text = await answer.text();
    output.textContent = `GET ${url}\n${answer.status} ${answer.statusText}\n\n${pretty(text)}`;
  } catch (error) {
    output.textContent = `GET ${url}\n${error}`;
  }
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function trial(path, operation) {
  const fields = (operation.parameters ?? []).map((parameter) => ({
    parameter,
    input: make("input", { placeholder: nameOf(parameter.schema), "aria-label": parameter.name }),
  }));
  const output = make("pre", { class: "output", tabindex: "0" });
  const button = make("button", { type: "button" }, "Try it");
  button.addEventListener("click", () => send(path, fields, output));
  const inputs = fields.map(({ parameter, input }) => make("label", {}, parameter.name, input));
  return [make("h3", {}, "Try it"), make("div", { class: "trial" }, ...inputs, button), output];
}

function route(path, method, operation, schemas) {
  const title = make("summary", {}, make("b", { class: method }, method.toUpperCase()), make("code", {}, path), operation.summary ?? "");
  const text = make("p", {}, operation.description ?? "");
  const trying = method === "get" ? trial(path, operation) : [];
  const inside = [text, ...parametersOf(operation), ...bodyOf(operation, schemas), ...answersOf(operation), ...trying];
  const words = `${path} ${operation.summary} ${method}`.toLowerCase();
  return make("details", { "data-words": words }, title, ...inside);
}

function draw(description) {
  const schemas = description.components.schemas;
  const groups = new Map((description.tags ?? []).map((tag) => [tag.name, { text: tag.description, routes: [] }]));
  for (const [path, item] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      const name = operation.tags?.[0] ?? "other";
      if (!groups.has(name)) groups.set(name, { text: "", routes: [] });
      groups.get(name).routes.push(route(path, method, operation, schemas));
    }
  }
  const sections = [...groups].filter(([, group]) => group.routes.length);
  shown.replaceChildren(
    ...sections.map(([name, group]) => make("section", {}, make("h2", {}, name), make("p", {}, group.text ?? ""), ...group.routes)),
  );
}

document.getElementById("find").addEventListener("input", (event) => {
  const wanted = event.target.value.toLowerCase();
  for (const one of document.querySelectorAll("details")) one.hidden = !one.dataset.words.includes(wanted);
});

try {
  const answer = await fetch(`${base}/docs/openapi.json`);
  draw(await answer.json());
} catch (error) {
  shown.textContent = `The description cannot be read: ${error}`;
}
