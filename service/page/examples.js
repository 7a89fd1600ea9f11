// Example queries: those of the setting, otherwise random clicked queries or titles of documents.

import { addressOf, emptyState } from "./address.js";
import { at, clear, first, make, values } from "./dom.js";
import { samplesBody } from "./request.js";
import { ask } from "./server.js";

const EXAMPLES = 4;
const LONGEST_CHARS = 60;

export async function showExamples(able) {
  const questions = able.examples.length ? able.examples : await drawn(able);
  const links = questions.slice(0, EXAMPLES).map((question) => {
    const link = make("a", "example", question);
    link.href = addressOf({ ...emptyState(), query: question });
    return link;
  });
  clear(at("examples")).append(...links.flatMap((link, place) => [place ? " · " : "Try ", link]));
}

async function drawn(able) {
  const { hits } = await ask("/search", { body: samplesBody(able) });
  const clicked = hits.flatMap(({ fields }) => values(fields.clicked_queries)).filter(isShort);
  const questions = clicked.length ? clicked : hits.map(({ fields }) => first(fields.title)).filter(isShort);
  const shuffled = questions.map((question) => [Math.random(), question]).sort(([one], [other]) => one - other);
  return [...new Set(shuffled.map(([, question]) => question))];
}

const isShort = (text) => text.trim() !== "" && text.length <= LONGEST_CHARS;
