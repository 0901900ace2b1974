// A scan comes in: dropped, chosen, pasted, or by its path on the server.

import { announce, byId } from "./dom.js";
import { clearProblem, showProblem } from "./problems.js";
import { bytes, percent } from "./quantities.js";
import { get, upload } from "./service.js";

/**
 * Read scans, and again when another application wants other characteristics; `received(name, answer)` is called with each answer of `/images`.
 *
 * @param {() => Promise<string>} app - gives the application whose ranges are wanted, once there is one
 */
export function intake(app, received) {
  const problem = byId("intake-problem");
  let current = new AbortController();
  let last = null; // reads the last scan again

  async function read(name, send) {
    last = () => read(name, send);
    current.abort();
    const controller = new AbortController();
    current = controller;
    clearProblem(problem);
    show(1, "Waiting for the service");
    try {
      const wanted = await app();
      if (controller.signal.aborted) return;
      const answer = await send(wanted, controller.signal);
      received(name, answer);
    } catch (error) {
      if (error.name === "AbortError") announce("Stopped.");
      else if (error.status === undefined) throw error;
      else showProblem(problem, error, last);
    } finally {
      if (current === controller) byId("sending").hidden = true;
    }
  }

  function show(share, text) {
    byId("sending").hidden = false;
    byId("sending-text").textContent = text;
    const bar = byId("sending-share");
    if (share < 1) bar.value = share;
    else bar.removeAttribute("value");
  }

  function readFile(file) {
    read(file.name, (wanted, signal) => upload(`images?${new URLSearchParams({ app: wanted })}`, file, (share) => {
      show(share, share < 1 ? `Sending ${file.name}: ${percent(share, 2)} of ${bytes(file.size)}`
        : `Computing the characteristics of ${file.name}`);
    }, signal));
  }

  function readPath(path) {
    const name = path.split("/").at(-1);
    read(name, (wanted, signal) => {
      show(1, `Computing the characteristics of ${name}`);
      return get(`images?${new URLSearchParams({ path, app: wanted })}`, signal);
    });
  }

  byId("sending-stop").addEventListener("click", () => {
    current.abort();
    byId("sending").hidden = true;
  });
  byId("file").addEventListener("change", (event) => {
    if (event.target.files.length) readFile(event.target.files[0]);
    event.target.value = ""; // so that the same file may be chosen again
  });
  byId("intake").addEventListener("submit", (event) => {
    event.preventDefault();
    const path = byId("path").value.trim();
    if (path) readPath(path);
    else byId("path").focus();
  });
  document.addEventListener("paste", (event) => {
    const [file] = event.clipboardData.files;
    if (file) readFile(file);
  });
  acceptDrops(byId("drop"), readFile);
  return { again: () => last?.() };
}

/** Accept files dropped anywhere on the page, and show it while one is above it. */
function acceptDrops(zone, readFile) {
  let depth = 0;
  const over = (change) => {
    depth = Math.max(0, depth + change);
    zone.classList.toggle("over", depth > 0);
  };
  document.addEventListener("dragenter", () => over(1));
  document.addEventListener("dragleave", () => over(-1));
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    over(-depth);
    const [file] = event.dataTransfer.files;
    if (file) readFile(file);
  });
}
