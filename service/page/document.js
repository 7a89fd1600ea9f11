// One document, with all its fields and metadata: the view of `/?id=`, for documents without a web address.

import { addressOf } from "./address.js";
import { addressIn, at, clear, first, isWeb, make, own, safeLink, values } from "./dom.js";
import { ask } from "./server.js";

export async function showDocument(state, signal) {
  const { id, fields, metadata } = await ask(`/documents/${encodeURIComponent(state.id)}`, { signal });
  const title = first(fields.title) || id;
  const url = addressIn(fields, metadata);
  const heading = make("h2", "", title);
  heading.tabIndex = -1;
  const parts = [heading];
  const place = isWeb(url) ? safeLink(url, url) : placeOf(metadata) || url;
  if (place) parts.push(make("p", "address", place));
  if (state.query) parts.unshift(backLink(state));
  for (const [name, value] of Object.entries(fields)) {
    if (name !== "title" && name !== "url") parts.push(...section(name, values(value)));
  }
  const facts = Object.entries(metadata).filter(([, value]) => values(value).length);
  if (facts.length) parts.push(make("h3", "", "Metadata"), make("dl", "facts", ...facts.flatMap(([name, value]) => [make("dt", "", name), make("dd", "", textOf(value))])));
  clear(at("document")).append(...parts);
  at("document").hidden = false;
  document.title = `${title} · GLOW`;
  heading.focus({ preventScroll: true });
}

// Where a file lies: its path, and the page of a PDF.
function placeOf(metadata) {
  const page = first(own(metadata, "page"));
  return [first(own(metadata, "path")), page && `page ${page}`].filter(Boolean).join(" · ");
}

function backLink(state) {
  const link = make("a", "", "Back to the results");
  link.href = addressOf({ ...state, id: "" });
  return make("p", "quiet", "← ", link);
}

const section = (name, texts) => (texts.length ? [make("h3", "", name), ...texts.map((text) => make("p", "text", text))] : []);
const textOf = (value) => values(value).map((each) => (typeof each === "object" ? JSON.stringify(each) : String(each))).join(", ");
