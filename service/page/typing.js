// Searching while a query is typed: after a pause, and what a screen reader hears of it after a longer one.

const PAUSE_MS = 150;
const SETTLE_MS = 1_000;
let pause = 0;
let settling = 0;

export function watchTyping(input, refresh) {
  const later = ({ isComposing }) => {
    if (isComposing) return; // a character of several keys is none yet
    stopTyping();
    pause = setTimeout(refresh, PAUSE_MS);
  };
  input.addEventListener("input", later);
  input.addEventListener("compositionend", later);
}

export function settle(say) {
  clearTimeout(settling);
  settling = setTimeout(say, SETTLE_MS);
}

export function stopTyping() {
  clearTimeout(pause);
  clearTimeout(settling);
}
