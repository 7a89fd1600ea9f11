// Metadata filters: values with counts to tick, ranges of numbers and days to enter, and active filters to remove.

import { at, clear, make, own } from "./dom.js";
import { boundsOf, daysOf, isFaceted, isRange } from "./request.js";

// Shows the filters of a result; `choose(field, texts)` is called with the new values for a field.
export function showFilters(result, state, able, choose) {
  const focused = document.activeElement?.dataset?.choice;
  const groups = able.shown.map((field) => groupOf(field, able.columns[field], own(result.facets, field), state.filters.get(field) ?? [], choose));
  clear(at("filter-groups")).append(...groups.filter(Boolean));
  showChosen(state, able, choose);
  at("filters").hidden = !at("filter-groups").childNodes.length;
  document.body.classList.toggle("has-filters", !at("filters").hidden);
  // The elements are new: restore the focus, for users of the keyboard.
  if (focused) at("filters").querySelector(`[data-choice="${CSS.escape(focused)}"]`)?.focus();
}

function groupOf(field, column, facet, chosen, choose) {
  if (isRange(column)) return group(field, "", rangeOf(field, column, chosen, choose));
  if (!isFaceted(column)) return null;
  const counts = new Map((facet?.values ?? []).map(({ value, count }) => [String(value), count]));
  const texts = [...new Set([...chosen, ...counts.keys()])];
  // If every value has one document, the values identify documents and do not group them.
  const isGroup = column.isListed || chosen.length > 0 || [...counts.values()].some((count) => count > 1) || counts.size <= 1;
  if (!texts.length || !isGroup) return null;
  const isRough = facet?.approximate === true;
  const note = isRough ? `of the best ${facet.counted.toLocaleString("en")}` : "";
  return group(field, note, texts.map((text) => tick(field, text, counts.get(text), isRough, chosen, choose)));
}

function group(field, note, content) {
  const legend = make("legend", "", field);
  if (note) legend.append(make("span", "quiet", ` ${note}`));
  return make("fieldset", "", legend, ...content);
}

function tick(field, text, count, isRough, chosen, choose) {
  const box = make("input");
  box.type = "checkbox";
  box.checked = chosen.includes(text);
  box.dataset.choice = `${field} ${text}`;
  box.addEventListener("change", () => choose(field, box.checked ? [...chosen, text] : chosen.filter((other) => other !== text)));
  const label = make("label", "tick", box, make("span", "value", text));
  if (count !== undefined) label.append(make("span", "count", (isRough ? "≥ " : "") + count.toLocaleString("en")));
  return label;
}

function rangeOf(field, column, chosen, choose) {
  const isDate = column.type === "date";
  const bounds = isDate ? daysOf(chosen) : boundsOf(chosen);
  const inputs = ["from", "to"].map((side, place) => {
    const input = make("input");
    input.type = isDate ? "date" : "number";
    if (!isDate) input.step = "any";
    input.value = bounds[place];
    input.placeholder = side;
    input.setAttribute("aria-label", `${field} ${side}`);
    input.dataset.choice = `${field} ${side}`;
    const bound = place ? column.max : column.min;
    if (typeof bound === "number") input.placeholder = `${side} ${bound}`;
    input.addEventListener("change", () => {
      const [from, to] = inputs.map((each) => each.value.trim());
      choose(field, from || to ? [`${from}..${to}`] : []);
    });
    return input;
  });
  return [make("div", isDate ? "range days" : "range", ...inputs)];
}

function showChosen(state, able, choose) {
  const chips = [...state.filters].flatMap(([field, texts]) => texts.map((text) => chip(field, text, () => choose(field, texts.filter((other) => other !== text)))));
  if (chips.length > 1) {
    const all = make("button", "plain", "Clear filters");
    all.type = "button";
    all.addEventListener("click", () => choose(null, []));
    chips.push(all);
  }
  clear(at("chosen")).append(...chips);
  at("chosen").hidden = chips.length === 0;
}

function chip(field, text, remove) {
  const button = make("button", "chip", `${field}: ${text.replace("..", " to ").trim()}`, make("span", "", " ×"));
  button.type = "button";
  button.setAttribute("aria-label", `Remove filter ${field}: ${text}`);
  button.addEventListener("click", remove);
  return button;
}
