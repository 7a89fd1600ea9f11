// Makes elements. Content of documents and of the server goes into the page as text, never as HTML.

export const at = (id) => document.getElementById(id);

export function make(tag, className = "", ...content) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...content);
  return element;
}

export function clear(element) {
  element.replaceChildren();
  return element;
}

export const values = (field) => (field === undefined || field === null ? [] : [].concat(field));
// Names come from documents: without this check, `constructor` would find an inherited member.
export const own = (object, name) => (object && Object.hasOwn(object, name) ? object[name] : undefined);
export const first = (field) => values(field)[0] ?? "";
export const ms = (value) => (value < 10 ? value.toFixed(2) : value.toFixed(0)) + " ms";
export const number = (value) => (Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3));

// The address of a document: its field `url`, otherwise its metadata.
export const addressIn = (fields, metadata) => String(first(own(fields, "url")) || first(own(metadata, "url")));

export const isWeb = (url) => /^https?:\/\//i.test(url) && URL.canParse(url);

// A fraction from 0 to 1 for the style sheet; the policy forbids style attributes, but not this property.
export function withShare(element, share) {
  element.style.setProperty("--share", Math.min(Math.max(share, 0), 1).toFixed(4));
  return element;
}

// Only web addresses become links: the url of a document may be javascript: or data:.
export function safeLink(url, ...content) {
  if (!isWeb(url)) return make("span", "", ...content);
  const link = make("a", "", ...content);
  link.href = url;
  link.rel = "noopener noreferrer";
  return link;
}
