// Makes the body of POST /search from the state of the page and the features of the index.

import { own } from "./dom.js";

const PAGE_SIZE = 10;
// A user prefers a late response to none; programs have shorter deadlines.
const TIMEOUT_MS = 10_000;
const SAMPLES = 30;
const FACET_VALUES = 8;
const MOST_FACETS = 8;
const MOST_PAGED = 100_000;
// Before the first response it is not known whether the service counts.
const MOST_AT_FIRST = 1_000;
const MOST_SORT_FIELDS = 12;
const MOST_SORT_STRINGS = 3;
// Fields with more values identify documents rather than group them.
const MOST_DISTINCT = 200;
const FEW_DISTINCT = 12;
const MOST_SHARE_OF_FEW = 0.5;
const MOST_SHARE = 0.05;

export const NO_INDEX = { columns: {}, offered: [], shown: [], sortable: [], retrievers: ["dense"], canExplain: false, canRerank: false, canTell: false, pageSize: PAGE_SIZE, most: 11, candidates: 100, timeoutMs: 1_000 };

// The features of an index, from /info.
export function abilitiesOf(info) {
  const { index, settings = {} } = info;
  const { components } = index;
  const columns = components.includes("columns") ? index.columns ?? {} : {};
  const listed = (settings.page_filters ?? "").split(",").map((name) => name.trim()).filter((name) => Object.hasOwn(columns, name));
  const most = settings.max_top_k ?? PAGE_SIZE + 1;
  const known = Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, { ...column, type: [].concat(column.type)[0], isListed: listed.includes(name) }]));
  const offered = listed.length ? listed : Object.keys(columns).sort(byUse(columns));
  return {
    columns: known,
    offered,
    shown: listed.length ? listed : Object.keys(columns).sort(),
    sortable: sortableOf(known, offered),
    retrievers: components.includes("impacts") ? ["hybrid", "dense", "lexical", ...(components.includes("learned") ? ["learned-sparse"] : [])] : ["dense"],
    canExplain: components.includes("explain"),
    canRerank: components.includes("rerank"),
    canTell: info.feedback === true,
    pageSize: Math.min(PAGE_SIZE, most),
    most,
    candidates: settings.default_candidates ?? 100,
    timeoutMs: Math.min(TIMEOUT_MS, settings.max_timeout_ms ?? TIMEOUT_MS),
    examples: (settings.page_examples ?? "").split("|").map((question) => question.trim()).filter(Boolean),
    dimensions: index.dimensions,
    fields: (info.fields ?? []).map(({ name }) => name),
    groupBy: groupOf(settings.page_group_by ?? "", columns),
  };
}

// Sorts by number of documents, then by fewer values.
const byUse = (columns) => (one, other) => columns[other].documents - columns[one].documents || columns[one].distinct - columns[other].distinct;

// Numbers and dates, and strings that are offered as filters.
function sortableOf(columns, offered) {
  const strings = offered.filter((name) => columns[name].type === "string" && isFaceted(columns[name])).slice(0, MOST_SORT_STRINGS);
  return Object.keys(columns).filter((name) => isRange(columns[name]) || strings.includes(name)).slice(0, MOST_SORT_FIELDS);
}

// "module:3": at most three results per value of the metadata field `module`.
function groupOf(setting, columns) {
  const [, field, size] = /^(.+):([0-9]+)$/.exec(setting) ?? [];
  return Object.hasOwn(columns, field ?? "") ? { field, size: Number(size) } : undefined;
}

export const isRange = ({ type }) => type === "number" || type === "date";

export function isFaceted(column) {
  const { distinct = 0, documents = 0, isListed = false } = column;
  if (isListed) return !isRange(column);
  if (isRange(column) || distinct > MOST_DISTINCT) return false;
  return distinct <= (distinct <= FEW_DISTINCT ? MOST_SHARE_OF_FEW : MOST_SHARE) * documents;
}

// A few random documents: those nearest to a random vector.
export const samplesBody = ({ dimensions, most, fields }) => ({
  vector: Array.from({ length: dimensions }, () => Math.round(200 * Math.random()) - 100 || 1),
  retriever: "dense",
  top_k: Math.min(SAMPLES, most),
  fields: fields.filter((name) => name === "title" || name === "clicked_queries"),
});

const retrieverOf = (state, able) => (able.retrievers.includes(state.retriever) ? state.retriever : able.retrievers[0]);

// How many results pages run over: all matches if the service counts them, otherwise its candidates.
export function reachOf(state, able) {
  if (able.isCounted === undefined) return Math.max(able.candidates, MOST_AT_FIRST);
  const isCounted = able.isCounted && ["hybrid", "lexical"].includes(retrieverOf(state, able));
  return isCounted ? MOST_PAGED : able.candidates;
}

export const lastPage = (state, able) => Math.max(Math.floor(reachOf(state, able) / able.pageSize), 1);

// One hit more than a page shows whether there is a next page.
export function searchBody(state, able) {
  const offset = (state.page - 1) * able.pageSize;
  const body = { query: state.query, top_k: Math.min(able.pageSize + 1, able.most, Math.max(reachOf(state, able) - offset, 1)), offset, timeout_ms: able.timeoutMs, highlight: true };
  if (able.retrievers.length > 1) body.retriever = retrieverOf(state, able);
  if (state.typos) body.typos = state.typos;
  if (state.prefix) body.prefix = true;
  if (state.rerank && able.canRerank) body.rerank = true;
  if (state.sort) body.sort = [sortKey(state.sort), { field: "score", order: "desc" }];
  if (able.groupBy) body.group_by = able.groupBy;
  const filter = filterOf(state.filters, able.columns);
  if (filter) body.filter = filter;
  const facets = able.offered.filter((field) => isFaceted(able.columns[field])).slice(0, MOST_FACETS);
  if (facets.length) body.facets = facets.map((field) => ({ field, limit: FACET_VALUES }));
  return body;
}

// "price": ascending; "-price": descending.
const sortKey = (sort) => (sort.startsWith("-") ? { field: sort.slice(1), order: "desc" } : { field: sort, order: "asc" });

// The same search again, for one hit with its explanation.
export function explainBody(state, able, hit) {
  const { facets, ...body } = searchBody(state, able);
  const top_k = 1;
  const offset = hit.rank - 1;
  return { ...body, top_k, offset, explain: { leave_one_out: true } };
}

function filterOf(filters, columns) {
  const leaves = [...filters].map(([field, texts]) => leafOf(field, texts, own(columns, field)?.type ?? "string"));
  return leaves.length > 1 ? { and: leaves } : leaves[0];
}

function leafOf(field, texts, type) {
  if (type === "number") {
    const [from, to] = boundsOf(texts);
    return { field, ...(from !== "" && { gte: Number(from) }), ...(to !== "" && { lte: Number(to) }) };
  }
  if (type === "date") {
    const [from, to] = daysOf(texts);
    return { field, ...(from && { gte: from }), ...(to && { lte: to }) };
  }
  const values = type === "boolean" ? texts.map((text) => text === "true") : texts;
  return values.length === 1 ? { field, eq: values[0] } : { field, in: values };
}

// A range of numbers in the address: 2000..2010, 2000.. or ..2010; an invalid bound is open.
export function boundsOf(texts) {
  const bounds = (texts?.[0] ?? "").split("..");
  const [from, to] = bounds.length === 2 ? bounds : [bounds[0], bounds[0]];
  return [from, to].map((bound) => (Number.isFinite(Number(bound)) ? bound.trim() : ""));
}

// A range of days in the address: 2024-05-01..2024-05-31.
export function daysOf(texts) {
  const bounds = (texts?.[0] ?? "").split("..");
  const [from, to] = bounds.length === 2 ? bounds : [bounds[0], bounds[0]];
  return [from, to].map((bound) => (/^\d{4}-\d{2}-\d{2}$/.test(bound) ? bound : ""));
}
