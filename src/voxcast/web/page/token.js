// The dialog that asks for the token of the service.

import { byId } from "./dom.js";

/** Ask for a token; returns it, or null where the user cancelled. */
export function askForToken(reason) {
  const dialog = byId("token-dialog");
  byId("token-reason").textContent = reason;
  byId("token").value = "";
  dialog.showModal();
  byId("token").focus();
  return new Promise((resolve) => {
    const end = new AbortController();
    const finish = (token) => {
      end.abort();
      if (dialog.open) dialog.close();
      resolve(token);
    };
    const { signal } = end;
    byId("token-form").addEventListener("submit", (event) => {
      event.preventDefault();
      finish(byId("token").value.trim());
    }, { signal });
    byId("token-cancel").addEventListener("click", () => finish(null), { signal });
    dialog.addEventListener("cancel", () => finish(null), { signal });
  });
}
