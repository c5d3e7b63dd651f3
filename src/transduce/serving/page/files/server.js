// The server's side of the conversation: one question, one answer, and plain words where there is none.

/** Something that the reader is told; `needsKey` where the server wants an API key, `retrySeconds` where it is busy. */
export class Problem extends Error {
  /** @param {string} message @param {boolean} [needsKey] @param {number} [retrySeconds] */
  constructor(message, needsKey = false, retrySeconds = 0) {
    super(message);
    this.needsKey = needsKey;
    this.retrySeconds = retrySeconds;
  }
}

let key = "";

/** The API key that goes with every question from now on; kept in memory only. @param {string} text */
export function useKey(text) {
  key = text.trim();
}

/** Ask the server that gave the page; addresses are relative, so that it may be anywhere behind a proxy.
 * @param {string} address
 * @param {Object<string, any>|FormData} [body]  sent as JSON, or as the form that it is; without it the question is a GET
 * @param {AbortSignal} [signal]  ends the question
 * @returns {Promise<any>}
 * @throws {Problem} with what went wrong and what to do */
export async function ask(address, body, signal) {
  const isForm = body instanceof FormData;
  const headers = { ...(body && !isForm && { "Content-Type": "application/json" }), ...(key && { Authorization: `Bearer ${key}` }) };
  let response;
  try {
    response = await fetch(address, { method: body ? "POST" : "GET", headers, body: isForm ? body : body && JSON.stringify(body), signal });
  } catch {
    throw new Problem("The server does not answer. Is it still running, and are you connected to it?");
  }
  const text = await response.text();
  if (response.ok) return JSON.parse(text);
  throw problemOf(response, said(text));
}

/** Times that a busy server is asked again, and the longest wait in seconds before that. */
const RETRIES = 5;
const LONGEST_WAIT = 60;

/** As `ask`, and again where the server is busy and says when to come back.
 * @param {string} address @param {Object<string, any>|FormData} body @param {AbortSignal} signal
 * @param {(message: string) => void} [waiting]  told before each wait */
export async function askPatiently(address, body, signal, waiting = () => {}) {
  for (let retry = 0; ; retry++) {
    try {
      return await ask(address, body, signal);
    } catch (error) {
      const isHopeless = !error.retrySeconds || error.retrySeconds > LONGEST_WAIT || retry === RETRIES;
      if (signal.aborted || isHopeless) throw error;
      waiting(`The server is busy: trying again in ${error.retrySeconds} s.`);
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, 1000 * error.retrySeconds);
        signal.addEventListener("abort", () => resolve(clearTimeout(timer)), { once: true });
      });
    }
  }
}

/** @param {Response} response @param {string} said */
function problemOf(response, said) {
  const wait = Number(response.headers.get("Retry-After"));
  const later = wait ? ` Try again in ${wait} ${wait === 1 ? "second" : "seconds"}.` : " Try again in a moment.";
  const words = {
    401: "This server wants an API key.",
    403: said || "This server does not accept that API key.",
    413: said || "This is too long for the server.",
    429: `Too many questions at once.${later}`,
    503: `The server is busy, or is about to stop.${later}`,
    504: "The server ran out of time. Less text at once takes less.",
  };
  const other = response.status < 500 ? said || `The server refused: ${response.status}.` : `The server failed: ${said || response.status}.`;
  return new Problem(words[response.status] ?? other, [401, 403].includes(response.status), wait || 0);
}

/** What the body of a refusal says, in any of the forms that servers have. @param {string} text */
function said(text) {
  try {
    const body = JSON.parse(text);
    const message = body.error?.message ?? body.error ?? body.message ?? body.detail;
    if (Array.isArray(message)) return message.map((one) => one.msg ?? String(one)).join("; ");
    return typeof message === "string" ? message : "";
  } catch {
    return "";
  }
}
