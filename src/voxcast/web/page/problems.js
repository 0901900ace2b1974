// Problems where they happened: the reason, and a button that tries again.

import { html } from "./dom.js";

/** Show why a request was refused in a box; `again` is called by its button. */
export function showProblem(box, error, again = null) {
  const wait = error.retryAfter ? ` Wait ${error.retryAfter} s before you try again.` : "";
  const heading = { 0: "No connection", 401: "Token needed", 413: "Too large", 429: "Too many requests",
    503: "Not ready" }[error.status];
  box.replaceChildren(html("div", { class: "problem", role: "alert" },
    heading ? html("strong", {}, heading) : null,
    html("p", {}, `${error.message}${wait}`),
    again ? html("button", { type: "button", onclick: again }, "Try again") : null));
  box.hidden = false;
}

/** Take a problem away. */
export function clearProblem(box) {
  box.replaceChildren();
}
