// Shows the routes of this service from its OpenAPI document.

import { at, make } from "./dom.js";
import { ask, canBeKey, keyHeader, NO_KEY, useKey } from "./server.js";

const ALIAS = "/v1";

// Resolves references, and the schema of a field that may also be null.
function resolved(schema, components) {
  const target = schema?.$ref ? components[schema.$ref.split("/").at(-1)] : schema;
  const choices = (target?.anyOf ?? []).filter((choice) => choice.type !== "null");
  return choices.length === 1 ? resolved(choices[0], components) : (target ?? {});
}

function typeOf(schema, components) {
  if (schema?.const !== undefined) return JSON.stringify(schema.const);
  const own = resolved(schema, components);
  if (own.enum) return own.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (own.anyOf) return own.anyOf.filter((one) => one.type !== "null").map((one) => typeOf(one, components)).join(" or ");
  if (own.type === "array") return `list of ${typeOf(own.items, components)}`;
  return own.type ?? "anything";
}

function fieldTable(schema, components) {
  const own = resolved(schema, components);
  const rows = Object.entries(own.properties ?? {}).map(([name, field]) => {
    const required = own.required?.includes(name) ? " (required)" : "";
    const description = field.description ?? resolved(field, components).description ?? "";
    return make("tr", "", cell("th", name), cell("td", typeOf(field, components) + required), cell("td", description));
  });
  if (!rows.length) return [];
  const head = make("tr", "", cell("th", "field", "col"), cell("th", "type", "col"), cell("th", "meaning", "col"));
  return [make("div", "wide", make("table", "", make("thead", "", head), make("tbody", "", ...rows)))];
}

function cell(tag, text, scope = "row") {
  const element = make(tag, "", text);
  if (tag === "th") element.scope = scope;
  return element;
}

function labelled(text, control, id) {
  const label = make("label", "", text);
  label.htmlFor = control.id = id;
  return make("p", "", label, control);
}

async function send(method, path, body) {
  const headers = { ...keyHeader(), ...(body === undefined ? {} : { "Content-Type": "application/json" }) };
  const response = await fetch(path, { method, headers, body });
  const text = await response.text();
  const isJson = /\bjson\b/.test(response.headers.get("Content-Type") ?? "");
  return `${response.status}\n\n${isJson ? JSON.stringify(JSON.parse(text), null, 2) : text}`;
}

function sender(method, path, operation) {
  const id = operation.operationId;
  const example = operation.requestBody?.content["application/json"]?.example;
  const inputs = (operation.parameters ?? []).map((parameter) => {
    const input = make("input");
    input.required = true;
    return { name: parameter.name, input, line: labelled(parameter.name, input, `${id}-${parameter.name}`) };
  });
  const body = operation.requestBody && make("textarea");
  if (body) {
    body.value = example ? JSON.stringify(example, null, 2) : "{}";
    body.rows = Math.min(body.value.split("\n").length + 1, 16);
    body.spellcheck = false;
  }
  const answer = make("pre", "answer");
  answer.tabIndex = 0;
  answer.hidden = true;
  const lines = [...inputs.map(({ line }) => line), ...(body ? [labelled("Body", body, `${id}-body`)] : [])];
  const form = make("form", "", ...lines, make("button", "", "Send"), answer);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const filled = inputs.reduce((made, { name, input }) => made.replace(`{${name}}`, input.value.split("/").map(encodeURIComponent).join("/")), path);
    answer.hidden = false;
    answer.textContent = "…";
    answer.textContent = await send(method, filled, body?.value).catch(() => "no answer: the service cannot be reached");
  });
  return form;
}

function operationPart(method, path, operation, { components, isAlias }) {
  const summary = make("summary", "", make("code", "method", method), " ", make("code", "", path), ` ${operation.summary}`);
  const answers = Object.entries(operation.responses).map(([status, { description }]) => make("li", "", make("code", "", status), ` ${description}`));
  const also = isAlias ? [make("p", "quiet", `Also as ${ALIAS}${path}.`)] : [];
  const fields = fieldTable(operation.requestBody?.content["application/json"]?.schema, components);
  const details = make("details", "operation", summary, ...also, ...fields, make("h3", "", "Answers"), make("ul", "answers", ...answers), sender(method, path, operation));
  details.id = operation.operationId;
  return details;
}

function show({ info, tags, paths, components }) {
  at("about").textContent = `${info.title} ${info.version}, HTTP interface`;
  const shown = Object.keys(paths).filter((path) => !(path.startsWith(ALIAS) && path.slice(ALIAS.length) in paths));
  const groups = tags.map(({ name, description }) => {
    const parts = shown.flatMap((path) =>
      Object.entries(paths[path])
        .filter(([, operation]) => operation.tags.includes(name))
        .map(([method, operation]) => operationPart(method.toUpperCase(), path, operation, { components: components.schemas, isAlias: ALIAS + path in paths })),
    );
    return make("section", "", make("h2", "", name), make("p", "quiet", description ?? ""), ...parts);
  });
  at("groups").replaceChildren(...groups);
  if (location.hash) at(location.hash.slice(1))?.setAttribute("open", "");
}

function complain({ title, detail }) {
  at("problem").hidden = false;
  at("problem-title").textContent = title;
  at("problem-detail").textContent = detail;
}

async function load() {
  at("problem").hidden = true;
  try {
    show(await ask("/openapi.json"));
  } catch (problem) {
    complain(problem);
  }
}

at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = at("key").value;
  if (key && !canBeKey(key)) return complain(NO_KEY);
  useKey(key);
  at("key").value = "";
  at("key-used").textContent = key ? "The key is used from now on." : "No key is sent.";
  return load();
});

load();
