// Sequences of requests: each longer than the last, until one suffices; by strategy, cheapest first.

import { byId, html } from "./dom.js";
import { duration, number } from "./quantities.js";

const DRAWN = 6; // requests of a sequence
const SHOWN = 4; // strategies

/** Return the lengths of a sequence and which requests end with a checkpoint. */
function requests(sequence) {
  return sequence.map((entry) => typeof entry === "number"
    ? { length_s: entry, checkpoint: false }
    : { length_s: entry.request, checkpoint: entry.checkpoint });
}

function strategyRow({ strategy, meaning, sequence, normalised_cost: cost, notes }, dearest, isCheapest) {
  const steps = requests(sequence);
  const share = Math.max(0.02, cost / dearest);
  const bar = html("span", { class: "cost-bar", "aria-hidden": "true" });
  bar.style.width = `${100 * share}%`;
  const texts = steps.slice(0, DRAWN).map(({ length_s, checkpoint }) => `${duration(length_s)}${checkpoint ? " ⚑" : ""}`);
  if (steps.length > DRAWN) texts.push(`… ${steps.length} in all`);
  return html("li", { class: isCheapest ? "cheapest" : "" },
    html("div", { class: "strategy" }, html("strong", {}, strategy.replaceAll("_", " ")),
      isCheapest ? html("span", { class: "mark" }, "cheapest") : null),
    html("div", { class: "cost" }, html("span", { class: "cost-track" }, bar),
      html("span", { class: "numbers" }, `${number(cost, 3)} × the least`)),
    html("ol", { class: "steps", "aria-label": "Requests, one after the other" }, texts.map((text) => html("li", {}, text))),
    html("p", { class: "soft" }, [meaning, ...notes].filter(Boolean).join("; ")));
}

/** Return the sequences without those that are the same as one before. */
function distinct(sequences) {
  const texts = sequences.map(({ sequence }) => JSON.stringify(sequence));
  return sequences.filter((_, n) => texts.indexOf(texts[n]) === n);
}

/** Show the sequences of all strategies. */
export function showSequences({ sequences: computed, notes, host, need_checkpoints: left }, configuration) {
  const sequences = distinct(computed);
  const dearest = Math.max(...sequences.map(({ normalised_cost: cost }) => cost));
  const hasCheckpoints = sequences.some(({ sequence }) => requests(sequence).some(({ checkpoint }) => checkpoint));
  const rows = sequences.map((row, n) => strategyRow(row, dearest, n === 0));
  const list = (items) => html("ul", { class: "strategies" }, items);
  byId("sequence").querySelector(".body").replaceChildren(
    html("p", { class: "soft" }, `Request the first; if the job runs out of time, the next. With ${configuration}, `
      + `${host ? `on machine ${host}` : "as measured"}: a node of a cluster may be faster or slower. `
      + "The bar is the expected cost relative to knowing the runtime beforehand, by the cost model of requests: 1 is the least."
      + (hasCheckpoints ? " ⚑ ends with a checkpoint." : "")),
    list(rows.slice(0, SHOWN)),
    ...(rows.length > SHOWN ? [html("details", {},
      html("summary", {}, `${rows.length - SHOWN} more strategies`), list(rows.slice(SHOWN)))] : []),
    ...notes.map((line) => html("p", { class: "soft note" }, line)),
    ...(left.length ? [html("p", { class: "soft note" },
      `Fill in checkpoint and restart for ${left.length} more strategies.`)] : []));
}
