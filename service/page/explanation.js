// Why a result was found: a sentence, and folded below it scores, the effect of each query word, and the attention of the encoder.

import { clear, make, number, withShare } from "./dom.js";
import { markedWords, snippetOf, tellingWords } from "./marks.js";
import { partName } from "./results.js";

const FIRST_ROWS = 10;
let tables = 0;

// Fills a panel from an explained response.
export function showExplanation(panel, hit, query) {
  const words = tellingWords(wordsOf(query, hit));
  const scores = Object.entries(hit.scores ?? {});
  const parts = [make("summary", "", "Scores and words"), make("p", "scores", ...scores.map(([part, value]) => make("span", "", `${partName(part)} `, make("b", "", number(value)))))];
  parts.push(table("Your words", queryColumns(words), words));
  if (words.some((word) => word.delta !== undefined)) parts.push(make("p", "quiet", "“Score change”: how the score by meaning changes without that word in the query. “Attention”: how much the model looks at a word."));
  const terms = tellingWords(hit.explanation?.terms ?? []).sort((one, other) => other.attention - one.attention);
  if (terms.length) parts.push(...documentTable(terms));
  const reread = tellingWords(hit.explanation?.rerank ?? []);
  if (reread.length) parts.push(table("Words that the re-ranker read", [["Word", "word"], ["Field", "field"], ["Attention", "attention"]], reread.slice(0, FIRST_ROWS)));
  clear(panel).append(make("p", "", reasonOf(hit, query)), make("details", "", ...parts));
}

// "Found by copy, directory; sofa, for couch; the title matches. Without tree."
function reasonOf(hit, query) {
  const { lexical, learned } = hit.explanation ?? {};
  const asked = tellingWords(query.terms).map(({ word }) => word);
  const found = foundWords(hit, query, asked);
  const same = [...found].filter(([word, cause]) => word === cause).map(([word]) => word);
  const others = [...found].filter(([word, cause]) => word !== cause).map((pair) => pair.join(", for "));
  const reasons = [same.join(", "), ...others, markedWords(hit, ["title"]).length ? "the title matches" : ""].filter(Boolean);
  if (!found.size) return "Found by its meaning; it holds none of your words.";
  if (!lexical && !learned) return `Found by its meaning; it holds ${reasons.join("; ")}.`;
  const holds = (word) => [...found].flat().some((other) => other.startsWith(word));
  const missing = asked.filter((word) => !holds(word));
  return `Found by ${reasons.join("; ")}.${missing.length ? ` Without ${missing.join(", ")}.` : ""}`;
}

// Words by which the hit was found, each with the word of the query that it stands for.
function foundWords(hit, query, asked) {
  const { lexical, learned } = hit.explanation ?? {};
  const causes = new Map(Object.entries(query.synonyms ?? {}).flatMap(([word, synonyms]) => synonyms.map((synonym) => [synonym, word])));
  const found = lexical || learned ? [] : markedWords(hit).map((word) => [word, word]);
  for (const { word, impact } of lexical ?? []) if (impact > 0) found.push([word, asked.includes(word) ? word : (causes.get(word) ?? word)]);
  for (const { word, bm25, because } of learned ?? []) {
    if (bm25 > 0) found.push([word, word]);
    if (because) found.push([because, word]);
  }
  const telling = new Set(tellingWords(found.map(([word]) => ({ word }))).map(({ word }) => word));
  return new Map(found.filter(([word]) => telling.has(word)));
}

export function showWaiting(panel) {
  clear(panel).append(make("p", "quiet", "Loading explanation …"));
  panel.setAttribute("aria-busy", "true");
}

export function showFault(panel, problem, again) {
  const button = make("button", "plain", "Try again");
  button.type = "button";
  button.addEventListener("click", again);
  const text = make("p", "", `${problem.detail ?? problem.title ?? String(problem)} `, problem.advice ?? "");
  text.setAttribute("role", "alert");
  clear(panel).append(text, button);
}

// The explained response also marks words with much attention.
export function showAttended(item, hit, query) {
  if (hit.highlights) item.querySelector(".snippet")?.replaceChildren(...snippetOf(hit, query.terms));
}

// The distinct words of the query, with their values for the hit.
function wordsOf(query, hit) {
  const rows = new Map();
  const row = (word) => rows.get(word) ?? rows.set(word, { word }).get(word);
  for (const term of query.explanation?.terms ?? query.terms) Object.assign(row(term.word), { attention: term.attention });
  for (const { word, impact } of hit.explanation?.lexical ?? []) row(word).impact = impact;
  for (const { word, learned, because } of hit.explanation?.learned ?? []) {
    if (learned) row(word).learned = learned;
    if (because) row(word).because = because;
  }
  for (const { word, delta } of hit.explanation?.leave_one_out ?? []) row(word).delta = delta;
  return [...rows.values()];
}

function queryColumns(words) {
  const columns = [["Word", "word"], ["Score change", "delta"], ["BM25", "impact"], ["Learned", "learned"], ["Matched through", "because"], ["Attention", "attention"]];
  return columns.filter(([, name]) => words.some((word) => word[name] !== undefined));
}

function documentTable(terms) {
  const columns = [["Word", "word"], ["Field", "field"], ["Times", "tf"], ["Attention", "attention"]];
  const shown = table("Words of the document", columns, terms);
  const rows = [...shown.querySelectorAll("tbody tr")].slice(FIRST_ROWS);
  if (!rows.length) return [shown];
  for (const row of rows) row.hidden = true;
  const button = make("button", "plain", `Show all ${terms.length} words`);
  button.type = "button";
  button.addEventListener("click", () => {
    for (const row of rows) row.hidden = false;
    button.remove();
    shown.focus();
  });
  return [shown, button];
}

function table(title, columns, rows) {
  const head = make("tr", "", ...columns.map(([label]) => headCell(label, "col")));
  const heaviest = new Map(columns.map(([, name]) => [name, Math.max(...rows.map((row) => Math.abs(row[name]) || 0), 1e-9)]));
  const body = rows.map((row) =>
    make("tr", "", ...columns.map(([, name]) => (name === "word" ? headCell(row.word, "row") : cell(row[name], name, heaviest.get(name))))),
  );
  const caption = make("caption", "", title);
  caption.id = `table-${(tables += 1)}`;
  // A table wider than the screen scrolls, also with keys.
  const frame = make("div", "table", make("table", "", caption, make("thead", "", head), make("tbody", "", ...body)));
  frame.tabIndex = 0;
  frame.setAttribute("role", "group");
  frame.setAttribute("aria-labelledby", caption.id);
  return frame;
}

function headCell(text, scope) {
  const element = make("th", "", text);
  element.scope = scope;
  return element;
}

function cell(value, name, heaviest) {
  if (value === undefined || value === null) return make("td", "quiet", "–");
  if (typeof value !== "number") return make("td", "", value);
  if (name === "tf") return make("td", "", String(value));
  const text = name === "delta" ? `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(value).toFixed(3)}` : value.toFixed(name === "attention" ? 3 : 2);
  return withShare(make("td", "measure", text), Math.abs(value) / heaviest);
}
