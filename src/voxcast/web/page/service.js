// Requests to the service that sent this page, and their refusals as `Refusal`.

const TOKEN = "voxcast-token";

/** A request that was not answered; `message` is the reason, `status` 0 where nothing answered. */
export class Refusal extends Error {
  constructor(status, message, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

let askForToken = async () => null;

/** Let `ask(reason)` be called when the service wants a token; it returns it, or null. */
export function onTokenWanted(ask) {
  askForToken = ask;
}

function headers(extra = {}) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { ...extra, Authorization: `Bearer ${token}` } : extra;
}

function refusal(status, text, retryAfter) {
  let detail = "";
  try {
    detail = JSON.parse(text).detail;
  } catch {
    // Whatever stands between the page and the service may answer with a page of its own.
  }
  if (typeof detail !== "string" || !detail) detail = `The service answered with status ${status}.`;
  return new Refusal(status, detail, Number(retryAfter) || null);
}

const GONE = "The service does not answer. Check that it is still running and reachable, then try again.";

let asked = null; // the question for a token that is open
let cancelled = 0; // how often the user has answered it with Cancel

/** Ask for a token, once for all requests that were refused meanwhile. */
function newToken(used) {
  asked ??= askForToken(used ? "The service refused this token." : "").finally(() => {
    asked = null;
  });
  return asked;
}

async function withToken(send) {
  const before = cancelled;
  for (;;) {
    const used = sessionStorage.getItem(TOKEN);
    try {
      return await send();
    } catch (error) {
      if (error.status !== 401) throw error;
      if (sessionStorage.getItem(TOKEN) !== used) continue; // another request has asked for it
      if (cancelled !== before) throw error; // nor does a late refusal open the dialog again
      const token = await newToken(used);
      if (token === null) {
        cancelled += 1;
        throw error;
      }
      sessionStorage.setItem(TOKEN, token);
    }
  }
}

async function fetched(path, options) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: headers(options.headers) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, GONE);
  }
  const text = await response.text();
  if (!response.ok) throw refusal(response.status, text, response.headers.get("Retry-After"));
  return JSON.parse(text);
}

/** Return the answer of a GET. */
export function get(path, signal) {
  return withToken(() => fetched(path, { signal }));
}

/** Return the answer of a question in JSON. */
export function post(path, question, signal) {
  const body = JSON.stringify(question);
  const options = { method: "POST", body, signal, headers: { "Content-Type": "application/json" } };
  return withToken(() => fetched(path, options));
}

/** Return the answer of an upload; `progress(share)` is called while it is sent. */
export function upload(path, file, progress, signal) {
  const send = () => new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", path);
    for (const [name, value] of Object.entries(headers())) request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", (event) => progress(event.loaded / event.total));
    request.addEventListener("load", () => {
      const { status, responseText } = request;
      if (status >= 200 && status < 300) resolve(JSON.parse(responseText));
      else reject(refusal(status, responseText, request.getResponseHeader("Retry-After")));
    });
    request.addEventListener("error", () => reject(new Refusal(0, GONE)));
    request.addEventListener("abort", () => reject(new DOMException("stopped", "AbortError")));
    signal.addEventListener("abort", () => request.abort());
    request.send(file);
  });
  return withToken(send);
}
