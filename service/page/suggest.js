// Suggestions below the box while the user types: an ARIA combobox whose list is worked with arrows, Enter and Escape.

import { at, clear, make } from "./dom.js";
import { ask } from "./server.js";

const MOST = 8;
const input = at("query");
const list = at("suggestions");
let running = new AbortController();
let active = -1;
// False once the service has answered that it suggests nothing.
let isOffered = true;

export async function suggest(text) {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  const begun = text.trim().toLowerCase();
  if (!isOffered || !begun) {
    hideSuggestions();
    return;
  }
  try {
    const { suggestions } = await ask(`/suggest?q=${encodeURIComponent(text)}&k=${MOST}`, { signal });
    if (signal.aborted || document.activeElement !== input) return;
    show([...new Set(suggestions.map((each) => each.text))].filter((each) => each.toLowerCase() !== begun));
  } catch (problem) {
    if (signal.aborted) return;
    isOffered = ![404, 405, 501].includes(problem.status);
    hideSuggestions();
  }
}

export function hideSuggestions() {
  running.abort();
  show([]);
}

function show(texts) {
  const options = texts.map((text, place) => {
    const option = make("li", "", text);
    option.id = `suggestion-${place}`;
    option.setAttribute("role", "option");
    return option;
  });
  clear(list).append(...options);
  list.hidden = options.length === 0;
  input.setAttribute("aria-expanded", String(options.length > 0));
  activate(-1);
}

function activate(place) {
  active = place;
  for (const [at, option] of [...list.children].entries()) option.setAttribute("aria-selected", String(at === place));
  const option = list.children[place];
  if (option) {
    input.setAttribute("aria-activedescendant", option.id);
    option.scrollIntoView({ block: "nearest" });
  } else {
    input.removeAttribute("aria-activedescendant");
  }
}

// From the last suggestion the next step is to the box, and from there to the first.
function step(by) {
  const places = list.children.length + 1;
  activate(((active + 1 + by + places) % places) - 1);
}

// Calls `choose(text)` for a suggestion that is clicked, or entered with the keyboard.
export function watchSuggestions(choose) {
  function handle({ key }) {
    if (key === "ArrowDown") step(1);
    else if (key === "ArrowUp") step(-1);
    else if (key === "Escape") hideSuggestions();
    else if (key === "Enter" && active >= 0) choose(list.children[active].textContent);
    else return false;
    return true;
  }
  input.addEventListener("keydown", (event) => {
    if (list.hidden || event.isComposing || event.ctrlKey || event.metaKey || event.altKey || !handle(event)) return;
    event.preventDefault();
    event.stopPropagation(); // arrows would step to the results
  });
  input.addEventListener("blur", hideSuggestions);
  list.addEventListener("mousedown", (event) => event.preventDefault()); // the box keeps the focus
  list.addEventListener("click", ({ target }) => target.closest("li") && choose(target.closest("li").textContent));
}
