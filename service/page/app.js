// The search page: the address contains its state, and every change of the state starts a search.

import { addressOf, emptyState, pushAddress, readAddress, TYPED, TYPING } from "./address.js";
import { at, clear, make } from "./dom.js";
import { showDocument } from "./document.js";
import { showExamples } from "./examples.js";
import { showAttended, showExplanation, showFault, showWaiting } from "./explanation.js";
import { showFilters } from "./filters.js";
import "./keys.js";
import { hideProblem, showProblem, stopCountdown } from "./problem.js";
import { showTerms, showTimings } from "./reading.js";
import { abilitiesOf, explainBody, lastPage, NO_INDEX, searchBody } from "./request.js";
import { RETRIEVER_NAMES, showResults, showVerdict } from "./results.js";
import { ask, canBeKey, NO_KEY, useKey } from "./server.js";
import { offerSorts, showSort } from "./sort.js";
import { hideSuggestions, suggest, watchSuggestions } from "./suggest.js";
import { settle, stopTyping, watchTyping } from "./typing.js";

const input = at("query");
const keyInput = at("key");
const wide = matchMedia("(min-width: 60rem)");
let state = emptyState();
let shown = state;
let able = NO_INDEX;
let described = null;
let running = new AbortController();
// The last result while typing, {address, result}; and whether the service refused a search, so that only Enter sends one.
let typed = null;
let isRefused = false;

// ---- features of the index

async function describeIndex() {
  const info = await ask("/info");
  able = abilitiesOf(info);
  const documents = info.index.documents.toLocaleString("en");
  clear(at("about")).append(`${documents} ${info.index.documents === 1 ? "document" : "documents"}`, make("span", "hint", ` · ${info.index.model.split("@")[0]}`));
  offerSorts(able);
  showChoices();
}

// Requested once; after a failure, the next search requests it again.
function knowIndex() {
  described ??= describeIndex().catch((problem) => {
    described = null;
    throw problem;
  });
  return described;
}

function showChoices() {
  showSort(state);
  at("retrievers").hidden = able.retrievers.length < 2;
  for (const radio of at("retrievers").querySelectorAll("input")) {
    radio.checked = radio.value === (state.retriever || able.retrievers[0]);
    radio.parentElement.hidden = !able.retrievers.includes(radio.value);
  }
  at("rerank-choice").hidden = !able.canRerank;
  at("rerank").checked = state.rerank === "on";
}

// ---- searching

async function search({ movesFocus = false, kind = "" } = {}) {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  const isTyping = kind === TYPING;
  const isDocument = state.id !== "";
  if (!isTyping) {
    document.body.setAttribute("aria-busy", "true");
    at("status").textContent = isDocument ? "Loading" : "Searching";
  }
  try {
    await knowIndex();
    if (signal.aborted) return;
    if (isDocument) {
      await showDocument(state, signal);
      hideProblem();
      at("status").textContent = "";
      return;
    }
    state.page = Math.min(state.page, lastPage(state, able));
    const result = await ask("/search", { body: searchBody(state, able), signal });
    if (isTyping && at("hits").contains(document.activeElement)) {
      state = shown; // the user has moved to the results
      pushAddress(state, TYPING);
      return;
    }
    hideProblem();
    show(result, movesFocus, isTyping);
  } catch (problem) {
    if (signal.aborted) return; // a newer search has started
    isRefused = !problem.isFinal; // an error of this query does not concern the next one
    if (isTyping) return;
    showProblem(problem, search);
    if (problem.needsKey) keyInput.focus();
  } finally {
    if (!signal.aborted) document.body.removeAttribute("aria-busy");
  }
}

function show(result, movesFocus, isTyping) {
  isRefused = false;
  able.isCounted = result.total !== undefined;
  shown = state;
  typed = isTyping ? { address: addressOf(state), result } : null;
  for (const id of ["welcome", "examples", "document"]) at(id).hidden = true;
  showChoices();
  showTerms(result.query);
  showFilters(result, state, able, choose);
  showResults(result, state, able, explain);
  showTimings(result.timings_ms);
  at("doubt").hidden = true;
  if (isTyping) settle(() => showVerdict(result, state, able));
  else showVerdict(result, state, able);
  if (!movesFocus) return;
  at("how").firstElementChild.focus({ preventScroll: true });
  scrollTo({ top: 0 });
}

async function explain(hit, item, panel) {
  if (panel.childNodes.length && !panel.querySelector("[role=alert]")) return;
  const { signal } = running;
  showWaiting(panel);
  try {
    const answer = await ask("/search", { body: explainBody(state, able, hit), signal });
    const found = answer.hits.find((other) => other.id === hit.id);
    if (!found) throw { detail: "The index has changed since this page was made.", advice: "Search again." };
    showAttended(item, found, answer.query);
    showExplanation(panel, found, answer.query);
  } catch (problem) {
    if (!signal.aborted) showFault(panel, problem, () => explain(hit, item, panel));
  } finally {
    panel.removeAttribute("aria-busy");
  }
}

// ---- changes of the state

function go(options) {
  stopCountdown();
  stopTyping();
  typed = null;
  document.title = state.query ? `${state.query} · GLOW` : "GLOW search";
  if (state.id) for (const id of ["welcome", "examples", "found", "filters"]) at(id).hidden = true;
  if (state.query || state.id) {
    search(options);
    return;
  }
  running.abort();
  document.body.removeAttribute("aria-busy");
  document.body.classList.remove("has-filters");
  at("status").textContent = "";
  for (const id of ["problem", "found", "filters", "document"]) at(id).hidden = true;
  at("welcome").hidden = false;
  at("examples").hidden = !at("examples").childNodes.length;
}

function change(part, options) {
  state = { ...state, id: "", page: 1, ...part };
  pushAddress(state, options?.kind);
  go(options);
}

function refresh() {
  const query = input.value.trim();
  if (isRefused || query === state.query) return;
  suggest(input.value);
  change({ query, typos: "", prefix: query && "on" }, { kind: TYPING });
}

// After Enter the last word is whole, unless it is none and was completed.
function submit(query) {
  hideSuggestions();
  const asTyped = addressOf({ ...state, id: "", query, page: 1, typos: "", prefix: "on" });
  if (typed?.address !== asTyped || isWholeWord(typed.result.query)) {
    change({ query, typos: "", prefix: "" }, { kind: TYPED });
    return;
  }
  if (!typed.result.query.completed?.length) state = { ...state, prefix: "" }; // the same results
  pushAddress(state, TYPED);
  stopTyping();
  showVerdict(typed.result, state, able);
}

// Whether the last word of a completed query is a word of the index itself.
function isWholeWord({ text, terms, completed = [] }) {
  const [last] = /[\p{L}\p{N}]+$/u.exec(text.toLowerCase()) ?? [""];
  return completed.length > 0 && terms.some(({ word, known }) => word === last && known !== false);
}

function choose(field, texts) {
  const filters = new Map(field === null ? [] : state.filters);
  if (texts.length) filters.set(field, texts);
  else filters.delete(field);
  change({ filters });
}

function fromAddress() {
  state = readAddress();
  input.value = state.query;
  showChoices();
  go();
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  submit(input.value.trim());
});
watchTyping(input, refresh);
watchSuggestions((text) => {
  input.value = text;
  submit(text);
});

at("retrievers").addEventListener("change", ({ target }) => {
  change({ retriever: target.value === able.retrievers[0] ? "" : target.value, query: input.value.trim() });
});

at("rerank").addEventListener("change", ({ target }) => {
  change({ rerank: target.checked ? "on" : "", query: input.value.trim() });
});

at("sort").addEventListener("change", ({ target }) => change({ sort: target.value }));

for (const [id, by] of [["previous", -1], ["next", 1]]) {
  at(id).addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // opens another tab or window
    event.preventDefault();
    change({ page: state.page + by }, { movesFocus: true });
  });
}

at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const value = keyInput.value.trim();
  keyInput.value = "";
  if (!canBeKey(value)) {
    showProblem(NO_KEY);
    return;
  }
  useKey(value);
  hideProblem();
  input.focus();
  start();
  change({ id: state.id, query: input.value.trim(), typos: "" });
});

at("retry").addEventListener("click", () => change({ id: state.id, query: input.value.trim(), page: state.page }));
addEventListener("popstate", fromAddress);

// On wide screens filters are beside the results, otherwise folded above them.
const fold = () => (at("filters").open = wide.matches);
wide.addEventListener("change", fold);
fold();

async function start() {
  try {
    await knowIndex();
    if (state.query || state.id) return;
    await showExamples(able);
    at("examples").hidden = state.query !== "" || !at("examples").childNodes.length;
  } catch (problem) {
    at("about").textContent = "";
    if (!problem.needsKey || state.query || state.id) return; // a search will show the problem
    showProblem(problem);
    keyInput.focus();
  }
}

for (const [name, label] of Object.entries(RETRIEVER_NAMES)) at(`retriever-${name}`).textContent = label;
fromAddress();
start();
