// The address contains the state of the page, so that reload, back, bookmarks and links work:
// /?q=bees&page=2&retriever=hybrid&sort=-year&f.lang=en&f.lang=de&f.year=2000..2010
// With `id`, the page shows this document; the rest is the search that led to it.

const FILTER = "f.";
// Kinds of a change of the query: while it is typed, and after Enter.
export const TYPING = "typing";
export const TYPED = "typed";

export function emptyState() {
  return { id: "", query: "", page: 1, retriever: "", typos: "", prefix: "", rerank: "", sort: "", filters: new Map() };
}

export function readAddress() {
  const state = emptyState();
  for (const [name, value] of new URLSearchParams(location.search)) {
    if (name === "q") state.query = value.trim();
    else if (name === "id") state.id = value;
    else if (name === "page") state.page = Math.max(Math.trunc(Number(value)) || 1, 1);
    else if (name === "retriever") state.retriever = value;
    else if (name === "typos") state.typos = value === "off" ? value : "";
    else if (name === "prefix") state.prefix = value === "on" ? value : "";
    else if (name === "rerank") state.rerank = value === "on" ? value : "";
    else if (name === "sort") state.sort = value;
    else if (name.startsWith(FILTER) && value) addValue(state.filters, name.slice(FILTER.length), value);
  }
  return state;
}

function addValue(filters, field, value) {
  const known = filters.get(field) ?? [];
  if (!known.includes(value)) filters.set(field, [...known, value]);
}

export function addressOf({ id, query, page, retriever, typos, prefix, rerank, sort, filters }) {
  if (!query && !id) return "/";
  const parts = id ? [["id", id]] : [];
  if (query) parts.push(["q", query]);
  if (retriever) parts.push(["retriever", retriever]);
  if (typos) parts.push(["typos", typos]);
  if (prefix) parts.push(["prefix", prefix]);
  if (rerank) parts.push(["rerank", rerank]);
  if (sort) parts.push(["sort", sort]);
  for (const [field, values] of filters) parts.push(...values.map((value) => [FILTER + field, value]));
  if (page > 1) parts.push(["page", page]);
  return "/?" + parts.map((pair) => pair.map(encodeURIComponent).join("=")).join("&");
}

// A query has one entry in the history, however often it was searched while it was typed.
export function pushAddress(state, kind = "") {
  const address = addressOf(state);
  const wasTyping = history.state === TYPING && kind !== "";
  if (!wasTyping && address === location.pathname + location.search) return;
  history[wasTyping ? "replaceState" : "pushState"](kind === TYPING ? TYPING : null, "", address);
}
