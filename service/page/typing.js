// Searches while the user types: after a pause, and announces the result after a longer one.

const PAUSE_MS = 150;
const SETTLE_MS = 1_000;
let pause = 0;
let settling = 0;

export function watchTyping(input, refresh) {
  const later = ({ isComposing }) => {
    if (isComposing) return; // a character of several keys is not complete yet
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
