// Shows the terms of the query, and the time of each stage.

import { at, clear, make, ms, withShare } from "./dom.js";
import { sharesOf } from "./marks.js";

// In the order of the work, each with its own color; unknown stages of a newer service have the last color.
const STAGES = ["queue", "preprocess", "encode", "filter", "search", "rerank", "facets", "fetch", "highlight", "explain", "cache"];
const COLOURS = 11;

export function showTerms(query) {
  const shares = sharesOf(query.terms);
  clear(at("terms")).append(
    ...query.terms.map((term) => {
      const item = make("li", term.known === false ? "unknown" : "");
      const column = make("span", "column", withShare(make("span", "bar"), shares.get(term.word)));
      item.append(column, make("span", "word", term.word), make("span", "rarity", term.known === false ? "unknown" : term.idf.toFixed(1)));
      return item;
    }),
  );
  at("cut").hidden = !query.truncated;
  at("cut").textContent = `Only the first ${query.tokens} tokens were read; the rest of the query was cut.`;
}

export function showTimings(timings) {
  const names = [...STAGES, ...Object.keys(timings).filter((name) => !STAGES.includes(name))].filter((name) => typeof timings[name] === "number");
  const track = make("div", "track");
  track.setAttribute("aria-hidden", "true");
  const list = make("dl");
  for (const name of names) {
    const place = STAGES.indexOf(name);
    const colour = `var(--stage-${place < 0 ? COLOURS : Math.min(place + 1, COLOURS)})`;
    const part = make("span");
    part.style.flexGrow = 1000 * timings[name]; // factors with a sum below 1 would leave a gap
    track.append(part);
    const item = make("div", "", make("dt", "", name), make("dd", "", ms(timings[name])));
    for (const each of [part, item]) each.style.setProperty("--stage", colour);
    list.append(item);
  }
  clear(at("timings")).append(track, list);
}
