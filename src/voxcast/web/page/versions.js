// The registered model: its applications, the challenger, and earlier versions.

import { html, table } from "./dom.js";
import { day, number } from "./quantities.js";

function appRows(apps) {
  return Object.entries(apps ?? {}).map(([name, facts]) => facts === null ? [name, "damaged", "", "", "", ""] : [
    name, facts.family, number(facts.subjects), number(facts.runs), facts.calibrated ? "yes" : "no",
    `${day(facts.promoted_at)}: ${facts.detail || facts.reason || ""}`]);
}

const COLUMNS = ["Application", "Model", "Subjects", "Runs", "Calibrated", "Promoted"];

/** Return what the model can be asked, in a table. */
export function learnedTable({ apps }) {
  return table("Applications of this model, and the runs that it was trained on", COLUMNS, appRows(apps));
}

/** Return the champion with its applications, the challenger, and the versions before. */
export function modelCards({ version, challenger, apps, versions }, history) {
  const parts = [html("h2", {}, "Champion and challenger"),
    table(`Version ${version || "without number"} is the champion, whose answers are returned`, COLUMNS, appRows(apps))];
  const other = history.challenger ?? versions.find((candidate) => candidate.version === challenger);
  if (!challenger && !other) {
    parts.push(html("p", { class: "soft" }, "There is no challenger in shadow."));
  } else if (other) {
    parts.push(table(`Version ${other.version}, the challenger`, COLUMNS, appRows(other.apps)));
  } else {
    parts.push(html("p", {}, `Version ${challenger} is the challenger.`));
  }
  const earlier = versions.filter((entry) => entry.version !== version && entry.version !== challenger);
  if (earlier.length) {
    parts.push(html("details", {}, html("summary", {}, `${earlier.length} earlier version${earlier.length > 1 ? "s" : ""}`),
      earlier.map((entry) => table(`Version ${entry.version}`, COLUMNS, appRows(entry.apps)))));
  }
  return html("section", { class: "card", "aria-label": "Champion and challenger" }, parts);
}
