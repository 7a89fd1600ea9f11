// Shows a problem: what happened, what to do, and a countdown if a retry may help.

import { at } from "./dom.js";

const MOST_TRIES = 5;
let clock = 0;
let tries = 0;

export function showProblem(problem, again) {
  stopCountdown();
  for (const id of ["found", "filters", "welcome", "examples", "document"]) at(id).hidden = true;
  at("status").textContent = "";
  const hasCountdown = problem.waitS > 0 && tries < MOST_TRIES;
  at("problem-title").textContent = problem.title ?? "Something went wrong";
  at("problem-detail").textContent = problem.detail ?? String(problem);
  at("problem-advice").textContent = problem.waitS > 0 && !hasCountdown ? "Wait a while, then try again." : problem.advice ?? "Reload it.";
  at("retry").hidden = problem.isFinal === true || problem.needsKey === true;
  at("key-form").hidden = problem.needsKey !== true;
  at("countdown").hidden = !hasCountdown;
  at("problem").hidden = false;
  if (hasCountdown) countDown(problem.waitS, again);
}

// A random delay, so that pages that were refused together do not retry together.
function countDown(seconds, again) {
  tries += 1;
  const end = performance.now() + 1000 * (seconds + Math.random());
  const tick = () => {
    const left = Math.ceil((end - performance.now()) / 1000);
    at("countdown").textContent = `Trying again in ${Math.max(left, 1)} s`;
    if (left > 0) return;
    stopCountdown();
    again();
  };
  tick();
  clock = setInterval(tick, 250);
}

export function stopCountdown() {
  clearInterval(clock);
}

export function hideProblem() {
  stopCountdown();
  tries = 0;
  at("problem").hidden = true;
}
