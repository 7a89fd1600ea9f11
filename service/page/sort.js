// The choice of the order: best first, or by a metadata field.

import { at, clear, make } from "./dom.js";

const ORDERS = { number: ["low to high", "high to low"], date: ["oldest first", "newest first"], string: ["A to Z", "Z to A"] };

// Offers both orders of each field that the index can sort by.
export function offerSorts(able) {
  const fields = able.sortable.flatMap((name) => {
    const [up, down] = ORDERS[able.columns[name].type];
    return [option(name, `${name}: ${up}`), option(`-${name}`, `${name}: ${down}`)];
  });
  clear(at("sort")).append(option("", "Best first"), ...fields);
  at("sort-choice").hidden = fields.length === 0;
}

// Shows the order of the state; one that is not offered can still stand in the address.
export function showSort({ sort }) {
  const select = at("sort");
  if (select.options.length && ![...select.options].some(({ value }) => value === sort)) select.append(option(sort, sort));
  select.value = sort;
}

function option(value, text) {
  const element = make("option", "", text);
  element.value = value;
  return element;
}
