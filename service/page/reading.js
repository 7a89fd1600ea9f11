// How the query was read, and what the time went into.

import { at, clear, make, ms, withShare } from "./dom.js";
import { sharesOf } from "./marks.js";

// In the order of the work; each has a colour of its own, and a stage that a newer service invents has the last one.
const STAGES = ["queue", "preprocess", "encode", "filter", "search", "late", "rerank", "facets", "fetch", "highlight", "explain", "cache"];

export function showTerms(query) {
  const shares = sharesOf(query.terms);
  clear(at("terms")).append(
    ...query.terms.map((term) => {
      const item = make("li");
      item.title = `idf ${term.idf.toFixed(2)}`;
      const column = make("span", "column", withShare(make("span", "bar"), shares.get(term.word)));
      item.append(column, make("span", "word", term.word), make("span", "rarity", term.idf.toFixed(1)));
      return item;
    }),
  );
  at("cut").hidden = !query.truncated;
  at("cut").textContent = `Only the first ${query.tokens} tokens were read; the rest of the query was cut.`;
  at("reading").hidden = query.terms.length === 0;
}

export function showTimings(timings) {
  const names = [...STAGES, ...Object.keys(timings).filter((name) => !STAGES.includes(name))].filter((name) => typeof timings[name] === "number");
  const track = make("div", "track");
  track.setAttribute("aria-hidden", "true");
  const list = make("dl");
  for (const name of names) {
    const known = STAGES.indexOf(name);
    const stage = `stage-${known < 0 ? STAGES.length : known + 1}`;
    const part = make("span", stage);
    part.style.flexGrow = 1000 * timings[name]; // factors that sum to less than 1 would leave a gap
    track.append(part);
    list.append(make("div", stage, make("dt", "", name), make("dd", "", ms(timings[name]))));
  }
  clear(at("timings")).append(track, list);
}
