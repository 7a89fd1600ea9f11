// Marked words in texts: those that the service marked, otherwise those of the query.

import { make, values, withShare } from "./dom.js";
import { STOP_WORDS } from "./stop-words.js";

const SNIPPET_CHARS = 280;
// Fields for snippets, in this order; other fields of the index come after them.
const BODY_FIELDS = ["text", "body", "anchor", "clicked_queries"];
const SAME_WORTH = 1e-6;
const SENTENCE_END = /(?<=[.!?])\s+|\n{2,}/;
const TAG = /(<em>|<em class="attended">|<\/em>)/;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', "#34": '"', "#39": "'", "#x27": "'" };

const unescaped = (text) => text.replace(/&(amp|lt|gt|quot|#34|#39|#x27);/g, (_, name) => ENTITIES[name]);

// The idf of each word, relative to that of the rarest word.
export function sharesOf(terms) {
  const rarest = Math.max(...terms.map((term) => term.idf), 1e-9);
  return new Map(terms.map((term) => [term.word, term.idf / rarest]));
}

// Words to find and mark: no punctuation, and no stop words unless the query has no others.
export function tellingWords(terms) {
  const words = terms.filter(({ word }) => /[\p{L}\p{N}]/u.test(word));
  const telling = words.filter(({ word }) => !STOP_WORDS.has(word));
  return telling.length ? telling : words;
}

// The distinct words that the service marked in fields of a hit, without stop words.
export function markedWords({ highlights }, names = Object.keys(highlights ?? {})) {
  const texts = names.flatMap((name) => values(highlights?.[name]));
  const words = texts.flatMap((html) => Array.from(html.matchAll(/<em>(.*?)<\/em>/g), ([, word]) => unescaped(word).toLowerCase()));
  return [...new Set(words)].filter((word) => !STOP_WORDS.has(word));
}

// Snippets are escaped HTML with two kinds of <em>; other tags are text of the document.
export function fromHighlight(html, shares) {
  const parts = [];
  let kind = "";
  for (const piece of html.split(TAG)) {
    if (TAG.test(piece)) kind = piece === "</em>" ? "" : piece;
    else if (piece) parts.push(kind && !isStopWord(piece.toLowerCase(), shares) ? mark(unescaped(piece), shares, kind !== "<em>") : unescaped(piece));
  }
  return parts;
}

// A stop word that the query is not searched by.
const isStopWord = (word, shares) => STOP_WORDS.has(word) && !shares.has(word);

function mark(text, shares, isAttended = false) {
  const element = make("mark", isAttended ? "attended" : "", text);
  return withShare(element, isAttended ? 0 : 0.35 + 0.65 * (shares.get(text.toLowerCase()) ?? 1));
}

export const plainOf = (html) => unescaped(html.split(TAG).filter((piece) => !TAG.test(piece)).join(""));

// The snippet of a hit: the service's, from the best matching sentence on, otherwise the part of its text with the rarest word.
export function snippetOf(hit, terms) {
  const words = tellingWords(terms);
  const shares = sharesOf(words);
  const highlights = hit.highlights ?? {};
  const snippets = namesOf(highlights).map((name) => values(highlights[name])).filter((found) => found.length);
  const best = snippets.find((found) => found.some((html) => html.includes("<em"))) ?? snippets[0];
  if (best) return fromHighlight(joined(fromBestSentence(best, shares)), shares);
  const text = hit.passage?.text ?? namesOf(hit.fields).map((name) => values(hit.fields[name]).join(" · ")).find((found) => found.trim()) ?? "";
  return marked(excerpt(text, words), words, shares);
}

// Removes the text before the sentence whose distinct marked words have the largest total weight.
function fromBestSentence(snippets, shares) {
  const worths = new Map([...shares].map(([word, share]) => [headOf(word), share]));
  const all = snippets.flatMap((html, snippet) => html.split(SENTENCE_END).map((sentence, place) => ({ snippet, place, worth: worthOf(sentence, worths, shares) })));
  const best = all.reduce((one, other) => (other.worth > one.worth + SAME_WORTH ? other : one));
  const [html, ...later] = snippets.slice(best.snippet);
  const rest = html.split(SENTENCE_END).slice(best.place).join(" ");
  return [best.place || best.snippet ? `… ${rest.replace(/^[ …]+/, "")}` : rest, ...later];
}

function worthOf(sentence, worths, shares) {
  const words = Array.from(sentence.matchAll(/<em>(.*?)<\/em>/g), ([, word]) => word.toLowerCase());
  const heads = new Set(words.filter((word) => !isStopWord(word, shares)).map(headOf));
  return [...heads].reduce((sum, head) => sum + (worths.get(head) ?? 1), 0);
}

// Forms of a word start with the same letters: copy, copies, copied.
const headOf = (word) => word.slice(0, 3);

// Cut snippets have … at both ends; joined ones need only one between them.
const joined = (snippets) => snippets.reduce((all, next) => `${all.replace(/[ …]+$/, "")} … ${next.replace(/^[ …]+/, "")}`);

export function titleOf(hit, title, terms) {
  const words = tellingWords(terms);
  const shares = sharesOf(words);
  const [html, ...others] = values(hit.highlights?.title);
  return html && !others.length && plainOf(html) === title ? fromHighlight(html, shares) : marked(title, words, shares);
}

const namesOf = (fields) => [...BODY_FIELDS, ...Object.keys(fields).filter((name) => name !== "url" && name !== "title" && !BODY_FIELDS.includes(name))];

function matcher(words) {
  const alternatives = words.map((term) => term.word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return alternatives.length ? new RegExp(`(?<![\\p{L}\\p{N}])(?:${alternatives.join("|")})(?![\\p{L}\\p{N}])`, "giu") : null;
}

// The part of a text that starts a little before its rarest query word.
function excerpt(text, words) {
  const flat = text.replace(/\s+/g, " ").trim();
  if (flat.length <= SNIPPET_CHARS) return flat;
  const byRarity = [...words].sort((one, other) => other.idf - one.idf);
  const place = byRarity.map((term) => flat.search(matcher([term]))).find((found) => found >= 0) ?? 0;
  let start = Math.min(Math.max(place - SNIPPET_CHARS / 4, 0), flat.length - SNIPPET_CHARS);
  if (start > 0) start = Math.max(flat.indexOf(" ", start) + 1, start);
  const cut = flat.slice(start, start + SNIPPET_CHARS).toWellFormed().replace(/\s\S*$/, "");
  return (start > 0 ? "… " : "") + cut + (start + cut.length < flat.length ? " …" : "");
}

function marked(text, words, shares) {
  const pattern = matcher(words);
  if (!pattern) return [text];
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    parts.push(text.slice(end, match.index), mark(match[0], shares));
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end)];
}
