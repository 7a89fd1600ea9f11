// Shows the list of hits, and links to the previous and next page.

import { addressOf } from "./address.js";
import { addressIn, at, clear, first, isWeb, make, number, own, safeLink, values } from "./dom.js";
import { tellClicks } from "./feedback.js";
import { snippetOf, titleOf } from "./marks.js";
import { lastPage } from "./request.js";

export const RETRIEVER_NAMES = { hybrid: "Both", dense: "Meaning", lexical: "Words", "learned-sparse": "Synonyms" };
const PART_NAMES = { dense: "meaning", lexical: "words", learned: "words and synonyms", fused: "together", rerank: "re-ranked" };
const MOST_FACTS = 4;
const LONG_FACT = 40;

export const partName = (part) => PART_NAMES[part] ?? part;

// Shows a result; `explain(hit, item, panel)` fills a panel when it is opened.
export function showResults(result, state, able, explain) {
  const hits = result.hits.slice(0, able.pageSize);
  clear(at("hits")).append(...hits.map((hit) => showHit(hit, result, state, able, explain)));
  at("hits").start = hits[0]?.rank ?? 1;
  at("found-title").textContent = `${sentenceOf(result, state, able)} in ${Math.ceil(result.took_ms)} ms`;
  showCorrected(result.query, state);
  showNothing(hits, state, able);
  showPages(result, state, able);
  at("degraded").hidden = result.degraded.length === 0;
  at("degraded").textContent = `This answer is not complete: ${result.degraded.join(", ")}.`;
  at("found").hidden = false;
}

// Announces the number of results and doubts about them, once the user stops typing.
export function showVerdict(result, state, able) {
  at("status").textContent = sentenceOf(result, state, able);
  showDoubt(result);
}

// The total is missing if the service cannot count the matches. It counts those that a group leaves out too.
function sentenceOf(result, { page }, { pageSize, groupBy }) {
  const { total } = result;
  const hits = result.hits.slice(0, pageSize);
  if (hits.length === 0) return page > 1 ? "Nothing more found" : "Nothing found";
  const count = total ?? hits.length;
  const most = groupBy && count > groupBy.size ? `, at most ${groupBy.size} per ${groupBy.field}` : "";
  const of = total === undefined ? "" : ` of ${total.toLocaleString("en")}`;
  if (page > 1) return `Results ${hits[0].rank} to ${hits.at(-1).rank}${of}${most}`;
  return count === 1 ? "1 result" : `${count.toLocaleString("en")} results${most}`;
}

// Shows the corrected query, with a link to the typed one.
function showCorrected({ corrected }, state) {
  at("corrected").hidden = !corrected;
  if (!corrected) return;
  const back = make("a", "", "search as typed");
  back.href = addressOf({ ...state, page: 1, typos: "off" });
  clear(at("corrected")).append("Showing results for ", make("b", "", corrected.text), " · ", back);
}

// Shows that nothing answers the query, and words that no document contains.
function showDoubt({ hits, confidence, query }) {
  const unknown = query.unknown ?? [];
  const words = unknown.length ? `No document holds ${unknown.map((word) => `“${word}”`).join(", ")}.` : "";
  const doubt = hits.length && confidence === "none" ? "Probably nothing here answers this." : "";
  at("doubt").hidden = !(words || doubt);
  at("doubt").textContent = [doubt, words].filter(Boolean).join(" ");
}

function showNothing(hits, state, able) {
  at("nothing").hidden = hits.length > 0 || state.page > 1;
  const sentence = state.filters.size ? "No results match these filters. Remove a filter, or use other words." : "Use other words, or fewer of them.";
  const asked = state.retriever || able.retrievers[0];
  const others = able.retrievers.filter((name) => name !== asked && !(asked === "hybrid" && name !== "dense"));
  const links = others.map((name) => {
    const link = make("a", "", RETRIEVER_NAMES[name]);
    link.href = addressOf({ ...state, page: 1, retriever: name === able.retrievers[0] ? "" : name });
    return link;
  });
  const offered = links.flatMap((link, place) => (place ? [", ", link] : [" Or search by: ", link]));
  clear(at("nothing")).append(sentence, ...offered);
}

function showPages(result, state, able) {
  const { page } = state;
  const last = lastPage(state, able);
  const isFull = result.hits.length > able.pageSize || (able.most <= able.pageSize && result.hits.length === able.pageSize && result.hits.at(-1).rank !== result.total);
  const links = [pageLink("previous", page > 1, { ...state, page: page - 1 }), pageLink("next", isFull && page < last, { ...state, page: page + 1 })];
  at("page").textContent = `Page ${page}`;
  at("pages").hidden = !links.includes(true);
}

function pageLink(id, isThere, state) {
  const link = at(id);
  link.hidden = !isThere;
  link.href = addressOf(state);
  return isThere;
}

function showHit(hit, { request_id, query, confidence }, state, able, explain) {
  const { terms } = query;
  const item = make("li");
  item.dataset.id = hit.id;
  const url = addressIn(hit.fields, hit.metadata);
  const title = first(hit.fields.title) || url || hit.id;
  const link = safeLink(isWeb(url) ? url : `${location.origin}${addressOf({ ...state, id: hit.id })}`, ...titleOf(hit, title, terms));
  link.dataset.step = "";
  if (able.canTell) tellClicks(link, request_id, hit);
  item.append(make("h3", "", link), showScore(hit, confidence !== undefined));
  if (url) item.append(make("span", "address", url));
  item.append(make("span", "parts", Object.entries(hit.scores ?? {}).map(([part, value]) => `${partName(part)} ${number(value)}`).join(" · ")));
  const snippet = make("p", "snippet", ...snippetOf(hit, terms));
  if (snippet.textContent) item.append(snippet);
  const foot = make("div", "foot", ...facts(hit.metadata ?? {}, able.columns));
  if (able.canExplain) item.append(foot, ...whyButton(hit, title, item, foot, explain));
  else if (foot.childNodes.length) item.append(foot);
  return item;
}

function showScore(hit, isProbability) {
  return make("span", "score", isProbability ? `${Math.round(100 * hit.score)} % likely` : `score ${number(hit.score)}`);
}

// Metadata of the document, from fields that can be filtered.
function facts(metadata, columns) {
  const named = Object.keys(columns).filter((name) => name !== "url" && !name.includes(".") && values(own(metadata, name)).length);
  return named.slice(0, MOST_FACTS).map((name) => {
    const text = values(own(metadata, name)).join(", ");
    const fact = make("span", "fact", `${name} `, make("b", "", text));
    if (text.length > LONG_FACT) fact.title = text; // the style sheet cuts it
    return fact;
  });
}

function whyButton(hit, title, item, foot, explain) {
  const panel = make("div", "explanation");
  panel.id = `why-${hit.rank}`;
  panel.hidden = true;
  panel.setAttribute("role", "region");
  panel.setAttribute("aria-label", `Why “${title}” was found`);
  const button = make("button", "why plain", "Why this result");
  button.type = "button";
  button.setAttribute("aria-expanded", "false");
  button.setAttribute("aria-controls", panel.id);
  button.addEventListener("click", () => {
    panel.hidden = !panel.hidden;
    button.setAttribute("aria-expanded", String(!panel.hidden));
    if (!panel.hidden) explain(hit, item, panel);
  });
  foot.append(button);
  return [panel];
}
