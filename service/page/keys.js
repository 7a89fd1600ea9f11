// Keys: / to type, arrows or j and k to step through results, Enter to open, e for an explanation, Escape to close.

import { at } from "./dom.js";

const input = at("query");

const steps = () => [...document.querySelectorAll("#hits [data-step]")];
const isTyping = (target) => target instanceof HTMLInputElement && target.type !== "checkbox" && target.type !== "radio";

function step(by) {
  const all = steps();
  const here = all.indexOf(document.activeElement?.closest("#hits > li")?.querySelector("[data-step]"));
  if (here + by < 0) {
    input.focus();
    return true;
  }
  const next = all[Math.min(here + by, all.length - 1)];
  next?.focus();
  next?.closest("li").scrollIntoView({ block: "nearest" });
  return next !== undefined;
}

// Arrows scroll the page elsewhere, so they step only from the query or from a result; j and k step from anywhere.
function stepOf({ key, target }) {
  const isInList = target.closest("#hits > li") && !target.closest(".explanation");
  if (key === "ArrowDown") return isInList || target === input ? 1 : 0;
  if (key === "ArrowUp") return isInList ? -1 : 0;
  if (isTyping(target)) return 0;
  return key === "j" ? 1 : key === "k" ? -1 : 0;
}

function toggleWhy(target) {
  const button = target.closest("#hits > li")?.querySelector(".why");
  button?.click();
  return button !== undefined && button !== null;
}

function close(target) {
  const open = [...document.querySelectorAll('#hits .why[aria-expanded="true"]')];
  const own = target.closest("#hits > li")?.querySelector('.why[aria-expanded="true"]');
  const button = own ?? open.at(-1);
  button?.click();
  if (own) own.focus();
  return button !== undefined;
}

function handle(event) {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return false;
  const by = stepOf(event);
  if (by) return step(by);
  if (key === "Escape" && target !== input) return close(target);
  if (isTyping(target)) return false;
  if (key === "/") {
    input.select();
    input.focus();
    return true;
  }
  return key === "e" && toggleWhy(target);
}

document.addEventListener("keydown", (event) => {
  if (event.target instanceof Element && handle(event)) event.preventDefault();
});
