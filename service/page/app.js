// The search page. Whatever comes from documents or from the server goes into the page as text, never as HTML.

const PAGE_SIZE = 10;
const SNIPPET_CHARS = 280;
const STAGES = ["queue", "preprocess", "encode", "search", "fetch", "cache"];
// Where the words of a document are looked for, in this order; what an index has beside them comes after.
const BODY_FIELDS = ["text", "body", "anchor", "clicked_queries"];

const at = (id) => document.getElementById(id);
const input = at("query");
const keyInput = at("key");
let running = new AbortController();
let shown = { query: "", hits: 0 };

function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

function clear(element) {
  element.replaceChildren();
  return element;
}

const values = (field) => (field === undefined ? [] : [].concat(field));
const first = (field) => values(field)[0] ?? "";
const ms = (value) => (value < 10 ? value.toFixed(2) : value.toFixed(0)) + " ms";

// ---- the key of a service that needs one: kept for this tab alone, and sent nowhere but here

const KEY_ITEM = "glow.key";
let key = storedKey();

function storedKey() {
  try {
    return sessionStorage.getItem(KEY_ITEM) ?? "";
  } catch {
    return ""; // a browser that forbids storage still keeps the key until the page is left
  }
}

function useKey(value) {
  key = value;
  try {
    if (value) sessionStorage.setItem(KEY_ITEM, value);
    else sessionStorage.removeItem(KEY_ITEM);
  } catch {
    // see above
  }
}

// ---- asking the server

async function ask(path, options = {}) {
  const sent = key;
  const headers = sent ? { ...options.headers, Authorization: `Bearer ${sent}` } : options.headers;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw { title: "No answer", detail: "The service cannot be reached.", advice: "Check that it runs, then try again." };
  }
  let body;
  try {
    body = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw { title: "No usable answer", detail: `Status ${response.status}, and no JSON.`, advice: "Something in between may have answered in the service's place." };
  }
  if (response.ok) return body;
  const { status } = response;
  if (status === 401 || status === 403) throw keyProblem(status, sent);
  const wait = response.headers.get("Retry-After");
  throw { title: body.title, detail: body.detail, advice: adviceFor(status, body, wait), final: status < 500 && status !== 429 };
}

function keyProblem(status, sent) {
  if (status === 403 && sent === key) useKey("");
  const needsKey = true;
  if (status === 401) return { title: "This service needs a key", detail: "Searching is open to those who have a key.", advice: "Enter yours; this tab keeps it until it is closed.", needsKey };
  return { title: "The key was refused", detail: "This service does not know the key that was sent.", advice: "Enter another, or ask whoever runs the service.", needsKey };
}

function adviceFor(status, problem, wait) {
  if (status === 429 || status === 503) return `Wait ${wait > 1 ? `${wait} seconds` : "a moment"}, then try again.`;
  if (status >= 500) return `Try again; if it stays, look for request ${problem.request_id} in the service's log.`;
  return "Change the query, then search again.";
}

async function search(query, { more = false } = {}) {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  document.body.setAttribute("aria-busy", "true");
  if (!more) at("status").textContent = "Searching";
  try {
    const offset = more ? shown.hits : 0;
    const result = await ask("/search", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ query, top_k: PAGE_SIZE, offset }),
      signal,
    });
    at("problem").hidden = true;
    showResult(result, more);
    shown = { query, hits: offset + result.hits.length };
  } catch (problem) {
    if (problem.name === "AbortError") return; // a newer search has taken over
    showProblem(problem, more);
    if (problem.needsKey) keyInput.focus();
  } finally {
    if (!signal.aborted) document.body.removeAttribute("aria-busy");
  }
}

// ---- showing what came

function showProblem(problem, more) {
  if (!more) {
    at("reading").hidden = true;
    at("found").hidden = true;
  }
  at("status").textContent = "";
  at("problem-title").textContent = problem.title ?? "This page has a fault";
  at("problem-detail").textContent = problem.detail ?? String(problem);
  at("problem-advice").textContent = problem.advice ?? "Reload it.";
  at("retry").hidden = problem.final === true || problem.needsKey === true;
  at("key-form").hidden = problem.needsKey !== true;
  at("problem").hidden = false;
}

function showResult(result, more) {
  const words = result.query.terms.filter((term) => /[\p{L}\p{N}]/u.test(term.word));
  if (!more) showTerms(result.query);
  const list = more ? at("hits") : clear(at("hits"));
  const items = result.hits.map((hit) => showHit(hit, words));
  list.append(...items);
  const count = list.children.length;
  const sentence = count === 0 ? "Nothing found" : count === 1 ? "1 result" : `${count} results`;
  at("found-title").textContent = `${sentence} in ${ms(result.took_ms)}`;
  at("status").textContent = sentence;
  at("more").hidden = result.hits.length < PAGE_SIZE;
  at("found").hidden = false;
  showTimings(result.timings_ms);
  if (more) items[0]?.querySelector("a, h3")?.focus();
}

const heaviestOf = (terms) => Math.max(...terms.map((term) => term.weight), 1e-9);

function showTerms(query) {
  const heaviest = heaviestOf(query.terms);
  clear(at("terms")).append(
    ...query.terms.map((term) => {
      const item = make("li");
      item.title = `weight ${term.weight.toFixed(2)}, idf ${term.idf.toFixed(2)}`;
      const column = make("span", "column");
      const bar = make("span", "bar");
      bar.style.setProperty("--share", term.weight / heaviest);
      column.append(bar);
      item.append(column, make("span", "word", term.word), make("span", "weight", term.weight.toFixed(2)));
      return item;
    }),
  );
  at("cut").hidden = !query.truncated;
  at("cut").textContent = `Only the first ${query.tokens} tokens were read; the rest of the query was cut.`;
  at("reading").hidden = false;
}

function showTimings(timings) {
  const track = make("div", "track");
  track.setAttribute("aria-hidden", "true");
  const list = make("dl");
  STAGES.forEach((stage, position) => {
    if (timings[stage] === undefined) return;
    const part = make("span", `stage-${position + 1}`);
    part.style.flexGrow = 1000 * timings[stage]; // factors that sum to less than 1 would leave a gap
    track.append(part);
    const row = make("div", `stage-${position + 1}`);
    row.append(make("dt", "", stage), make("dd", "", ms(timings[stage])));
    list.append(row);
  });
  clear(at("timings")).append(track, list);
}

function showHit(hit, words) {
  const item = make("li");
  const heading = make("h3");
  heading.tabIndex = -1;
  const url = first(hit.fields.url);
  const title = first(hit.fields.title) || url || hit.id;
  heading.append(safeLink(url, title));
  const score = make("span", "score", hit.score.toFixed(3));
  score.title = "cosine similarity";
  item.append(heading, score);
  if (url) item.append(make("span", "address", url));
  const snippet = make("p", "snippet");
  snippet.append(...marked(excerpt(bodyOf(hit), words), words));
  if (snippet.textContent) item.append(snippet);
  return item;
}

// Only web addresses become links: a document may hold javascript: or data: in its url.
function safeLink(url, text) {
  if (!/^https?:\/\//i.test(url) || !URL.canParse(url)) return document.createTextNode(text);
  const link = make("a", "", text);
  link.href = url;
  link.rel = "noopener noreferrer";
  return link;
}

function bodyOf(hit) {
  const names = [...BODY_FIELDS, ...Object.keys(hit.fields).filter((name) => name !== "url" && name !== "title")];
  return names.map((name) => values(hit.fields[name]).join(" · ")).find((text) => text.trim()) ?? "";
}

// ---- words in texts

function matcher(words) {
  const alternatives = words.map((term) => term.word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return alternatives.length ? new RegExp(`(?<![\\p{L}\\p{N}])(?:${alternatives.join("|")})(?![\\p{L}\\p{N}])`, "giu") : null;
}

// The stretch of a text that starts a little before the heaviest word it holds.
function excerpt(text, words) {
  const flat = text.replace(/\s+/g, " ").trim();
  if (flat.length <= SNIPPET_CHARS) return flat;
  const byWeight = [...words].sort((one, other) => other.weight - one.weight);
  const place = byWeight.map((term) => flat.search(matcher([term]))).find((found) => found >= 0) ?? 0;
  let start = Math.min(Math.max(place - SNIPPET_CHARS / 4, 0), flat.length - SNIPPET_CHARS);
  if (start > 0) start = Math.max(flat.indexOf(" ", start) + 1, start);
  const cut = flat.slice(start, start + SNIPPET_CHARS).toWellFormed().replace(/\s\S*$/, "");
  return (start > 0 ? "… " : "") + cut + (start + cut.length < flat.length ? " …" : "");
}

function marked(text, words) {
  const pattern = matcher(words);
  if (!pattern) return [document.createTextNode(text)];
  const heaviest = heaviestOf(words);
  const shares = new Map(words.map((term) => [term.word, term.weight / heaviest]));
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    const mark = make("mark", "", match[0]);
    mark.style.setProperty("--share", shares.get(match[0].toLowerCase()) ?? 1);
    parts.push(document.createTextNode(text.slice(end, match.index)), mark);
    end = match.index + match[0].length;
  }
  parts.push(document.createTextNode(text.slice(end)));
  return parts;
}

// ---- the address bar, the keyboard, the start

function go(query) {
  at("welcome").hidden = query !== "";
  document.title = query ? `${query} · GLOW` : "GLOW search";
  if (query) {
    search(query);
    return;
  }
  running.abort();
  document.body.removeAttribute("aria-busy");
  at("status").textContent = "";
  for (const id of ["problem", "reading", "found"]) at(id).hidden = true;
}

function fromAddress() {
  const query = new URLSearchParams(location.search).get("q") ?? "";
  input.value = query;
  go(query);
}

async function describeIndex() {
  try {
    const { index } = await ask("/info");
    const documents = index.documents.toLocaleString("en");
    at("about").textContent = `${documents} documents · ${index.model.split("@")[0]}`;
  } catch (problem) {
    at("about").textContent = "";
    if (!problem.needsKey) return; // of anything else a search will tell
    showProblem(problem);
    if (!input.value) keyInput.focus(); // else somebody is typing a query
  }
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const query = input.value.trim();
  const address = query ? `/?q=${encodeURIComponent(query)}` : "/";
  if (address !== location.pathname + location.search) history.pushState(null, "", address);
  go(query);
});

at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const value = keyInput.value.trim();
  keyInput.value = "";
  // Headers hold no other characters, and no key has them.
  if (!/^[\x21-\x7e]+$/.test(value)) {
    showProblem({ title: "That is no key", detail: "A key is made of letters, digits and signs of plain ASCII, without spaces.", advice: "Copy it once more, all of it.", needsKey: true });
    return;
  }
  useKey(value);
  at("problem").hidden = true;
  input.focus();
  describeIndex();
  go(input.value.trim());
});

at("more").addEventListener("click", () => search(shown.query, { more: true }));
at("retry").addEventListener("click", () => go(input.value.trim()));
addEventListener("popstate", fromAddress);

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target instanceof HTMLInputElement) return;
  event.preventDefault();
  input.select();
  input.focus();
});

describeIndex();
fromAddress();
