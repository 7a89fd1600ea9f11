// Telling the service which results are opened, where it wants to know, and for how long somebody stayed.

import { keyHeader } from "./server.js";

const LONGEST_S = 86_400;
// What was opened last from this page, and when.
let opened = null;

// It must outlive this page, and nothing waits for it: a click that is lost is none.
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

// Back from another tab, or from the page before: the click once more, with the time between.
function comeBack() {
  if (!opened || document.visibilityState !== "visible") return;
  const dwell_s = Math.round((Date.now() - opened.at) / 100) / 10;
  if (dwell_s > 0.5 && dwell_s < LONGEST_S) tell({ ...opened.body, dwell_s });
  opened = null;
}

document.addEventListener("visibilitychange", comeBack);
addEventListener("pageshow", ({ persisted }) => persisted && comeBack());
