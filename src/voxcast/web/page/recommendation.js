// A recommendation: the request, why it was chosen, what else there was, and its batch script.

import { figure } from "./axes.js";
import { announce, byId, html, table } from "./dom.js";
import { paretoPlot, paretoReadout, placeOf, priced } from "./pareto.js";
import { allocation, bytes, coreHours, duration, number, percent, usd } from "./quantities.js";

const THIS_MACHINE = "local"; // name of the cluster that is the machine of the service

const body = (id) => byId(id).querySelector(".body");

function sentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

function headline(row, inUsd) {
  const facts = [["Time limit", duration(row.walltime_s, Math.ceil)], ["Memory", bytes(row.memory_bytes)],
    ["Allocation", allocation(row)], ["On", placeOf(row)],
    ["Expected cost", inUsd ? usd(row.usd_expected) : coreHours(row.core_h)]];
  return html("dl", { class: "headline" },
    facts.map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, value))));
}

function caveatList(caveats) {
  if (!caveats.length) return null;
  return html("div", { class: "caveat" }, html("p", {}, html("strong", {}, "Caveats")),
    html("ul", {}, caveats.map((text) => html("li", {}, text))));
}

/** Show the request; returns it in a sentence. */
function showRequest({ chosen, nearest, why, caveats, machine, configurations, policy }) {
  const inUsd = priced(configurations);
  const row = chosen ?? nearest;
  const heading = chosen ? null : html("p", { class: "problem" }, nearest
    ? "No configuration is within the limits. The nearest:" : "No configuration fits.");
  const risk = chosen?.calibrated
    ? `At most ${percent(policy.risk)} of such requests are too small, in time or memory.` : null;
  body("recommendation").replaceChildren(...[heading, row ? headline(row, inUsd) : null,
    html("p", { class: "why" }, sentence(why), risk ? ` ${risk}` : ""),
    caveatList(caveats ?? []), machine ? html("p", { class: "soft" }, sentence(machine)) : null].filter(Boolean));
  byId("summary").textContent = row ? [duration(row.walltime_s, Math.ceil), bytes(row.memory_bytes),
    allocation(row)].join(" · ") : "";
  byId("summary").hidden = !row;
  if (!chosen) return `No configuration is within the limits: ${why}`;
  return `Recommended: ${duration(row.walltime_s, Math.ceil)} and ${bytes(row.memory_bytes)}, ${allocation(row)} on ${placeOf(row)}.`;
}

function configurationTable(configurations, chosen) {
  const inUsd = priced(configurations);
  const rows = configurations.map((row) => {
    const isChosen = chosen !== null
      && ["node_type", "partition", "device", "cpus", "gpus"].every((key) => row[key] === chosen[key]);
    const verdict = isChosen ? "recommended" : row.excluded ?? (row.pareto ? "on the Pareto front" : "");
    const cells = [`${allocation(row)}, ${placeOf(row)}`, duration(row.walltime_s, Math.ceil), bytes(row.memory_bytes),
      duration(row.wait_s), duration(row.turnaround_expected_s),
      inUsd ? number(row.usd_expected, 2) : number(row.core_h, 2), verdict];
    cells.className = isChosen ? "chosen" : row.excluded ? "excluded" : "";
    return cells;
  });
  return html("details", {}, html("summary", {}, `All ${configurations.length} configurations`),
    table("Configurations, and the request that each needs",
      ["Configuration", "Time limit", "Memory", "Queue", "Expected result after", inUsd ? "USD" : "Core-h", ""], rows));
}

function showTrade(answer) {
  const { configurations, chosen, limits } = answer;
  const readout = paretoReadout();
  body("trade").replaceChildren(
    figure("Each configuration that was considered. The line is the Pareto front: no other is both cheaper and faster. "
      + "Expected time and cost include waiting in the queue and repeating a request that was too small.",
      paretoPlot(configurations, chosen, limits?.deadline_s ?? NaN, readout), readout),
    configurationTable(configurations, chosen));
}

function showBecause(reasons) {
  byId("because").hidden = !reasons?.length;
  const widest = Math.max(...(reasons ?? []).map(({ factor }) => Math.abs(Math.log(factor))));
  const rows = (reasons ?? []).map(({ name, factor, text }) => {
    const bar = html("span", { class: `factor ${factor >= 1 ? "more" : "less"}`, "aria-hidden": "true" });
    bar.style.width = `${Math.round(50 * Math.abs(Math.log(factor)) / widest)}%`;
    return html("li", {}, html("span", { class: "because-text" }, text || name.replaceAll("_", " ")),
      html("span", { class: "factor-track" }, bar));
  });
  body("because").replaceChildren(
    html("p", { class: "soft" }, "Effect of each feature on the predicted time, against its usual value in the measured runs."),
    html("ol", { class: "reasons" }, rows));
}

function showScript(text) {
  byId("script").hidden = !text;
  const copied = html("span", { class: "soft", "aria-hidden": "true" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      copied.textContent = "Copied";
    } catch {
      // Without a secure context there is no clipboard; the text can be selected by hand.
      getSelection().selectAllChildren(byId("script-text"));
      copied.textContent = "Selected: press Ctrl C or ⌘ C";
    }
    announce(`${copied.textContent}.`);
  };
  body("script").replaceChildren(
    html("p", { class: "buttons" }, html("button", { type: "button", id: "copy-script", onclick: copy }, "Copy"), copied),
    html("pre", { id: "script-text", tabindex: "0", "aria-label": "Batch script", role: "region" }, text ?? ""));
}

/** Show a recommendation; returns it in a sentence. */
export function showRecommendation(answer) {
  const { chosen, nearest, configurations } = answer;
  for (const row of [chosen, nearest, ...configurations].filter(Boolean)) row.isHere = answer.cluster === THIS_MACHINE;
  const sentence = showRequest(answer);
  showTrade(answer);
  showBecause(answer.because);
  showScript(answer.script);
  return sentence;
}
