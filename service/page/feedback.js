// Sends clicks on results, and how long the user stayed, to services with a feedback log.

import { keyHeader } from "./server.js";

const LONGEST_S = 86_400;
// The last opened result, and when.
let opened = null;

// The request outlives this page, and nothing waits for it; lost clicks are ignored.
function tell(body) {
  const headers = { ...keyHeader(), "Content-Type": "application/json" };
  fetch("/feedback", { method: "POST", headers, body: JSON.stringify(body), keepalive: true }).catch(() => undefined);
}

export function tellClicks(link, requestId, hit) {
  const told = () => {
    const body = { request_id: requestId, id: hit.id, kind: "click", rank: hit.rank };
    opened = { body, at: Date.now() };
    tell(body);
  };
  link.addEventListener("click", told);
  link.addEventListener("auxclick", ({ button }) => button === 1 && told());
}

// When the user comes back to this page: sends the click again, with the time between.
function comeBack() {
  if (!opened || document.visibilityState !== "visible") return;
  const dwell_s = Math.round((Date.now() - opened.at) / 100) / 10;
  if (dwell_s > 0.5 && dwell_s < LONGEST_S) tell({ ...opened.body, dwell_s });
  opened = null;
}

document.addEventListener("visibilitychange", comeBack);
addEventListener("pageshow", ({ persisted }) => persisted && comeBack());
