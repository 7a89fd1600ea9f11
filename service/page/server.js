// Sends requests to the service, and explains its errors to the user.

const KEY_ITEM = "glow.key";
const LONGEST_COUNTDOWN_S = 120;
// The API key is stored for this tab only, and sent to this service only.
let key = storedKey();

function storedKey() {
  try {
    return sessionStorage.getItem(KEY_ITEM) ?? "";
  } catch {
    return ""; // without storage, the key is kept until the user leaves the page
  }
}

export function useKey(value) {
  key = value;
  try {
    if (value) sessionStorage.setItem(KEY_ITEM, value);
    else sessionStorage.removeItem(KEY_ITEM);
  } catch {
    // see above
  }
}

export const keyHeader = () => (key ? { Authorization: `Bearer ${key}` } : {});

// The characters that headers and keys may contain.
export const canBeKey = (value) => /^[\x21-\x7e]+$/.test(value);

// Problems: {title, detail, advice}, and `isFinal` (a retry is useless), `needsKey`, or `waitS`.
export const NO_KEY = {
  title: "That is no key",
  detail: "A key is made of letters, digits and signs of plain ASCII, without spaces.",
  advice: "Copy it once more, all of it.",
  needsKey: true,
};

export async function ask(path, { body, signal } = {}) {
  const sent = key;
  const headers = keyHeader();
  if (body) headers["Content-Type"] = "application/json";
  const options = { headers, signal, method: body ? "POST" : "GET", body: body && JSON.stringify(body) };
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw { title: "No answer", detail: "The service cannot be reached.", advice: "Check that it runs and that you are connected, then try again." };
  }
  let answer;
  try {
    answer = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw { title: "No usable answer", detail: `Status ${response.status}, and no JSON.`, advice: "Something in between may have answered in the service's place." };
  }
  if (response.ok) return answer;
  throw problemOf(response, answer, sent);
}

function problemOf({ status, headers }, problem, sent) {
  if (status === 401 || status === 403) return keyProblem(status, sent);
  const { title, detail, code } = problem;
  const waitS = status === 429 || status === 503 ? Number(headers.get("Retry-After")) || 1 : 0;
  const isFinal = status < 500 && status !== 429;
  return { title, detail, code, status, isFinal, waitS: waitS <= LONGEST_COUNTDOWN_S ? waitS : 0, advice: adviceFor(status, problem, waitS) };
}

function keyProblem(status, sent) {
  if (status === 403 && sent === key) useKey("");
  const needsKey = true;
  if (status === 401) return { title: "This service needs a key", detail: "Searching is open to those who have a key.", advice: "Enter yours; this tab keeps it until it is closed.", needsKey };
  return { title: "The key was refused", detail: "This service does not know the key that was sent.", advice: "Enter another, or ask whoever runs the service.", needsKey };
}

function adviceFor(status, problem, waitS) {
  if (waitS > LONGEST_COUNTDOWN_S) return `Wait ${Math.ceil(waitS / 60)} minutes, then try again.`;
  if (waitS) return "It will be asked again by itself.";
  if (status === 504) return "Try again; a shorter query or fewer filters take less time.";
  if (status >= 500) return `Try again; if it stays, look for request ${problem.request_id} in the service's log.`;
  if (status === 404) return "It may have been deleted since; search again.";
  return "Change the query or the filters, then search again.";
}
