// The registered model: its applications, and earlier versions.

import { html, table } from "./dom.js";
import { day, number } from "./quantities.js";

function appRows(apps) {
  return Object.entries(apps ?? {}).map(([name, facts]) => facts === null ? [name, "damaged", "", "", "", ""] : [
    name, facts.family, number(facts.subjects), number(facts.runs), facts.calibrated ? "yes" : "no",
    `${day(facts.promoted_at)}: ${facts.detail || facts.reason || ""}`]);
}

const COLUMNS = ["Application", "Model", "Subjects", "Runs", "Calibrated", "Promoted"];

/** Return what the model can be asked, and the laws of sizes alone, in tables. */
export function learnedTable({ apps }) {
  const learned = table("Applications of this model, and the runs that it was trained on", COLUMNS, appRows(apps));
  const laws = Object.entries(apps).filter(([, { law }]) => law.cpu_s)
    .map(([name, { law }]) => [name, law.cpu_s, law.peak_rss_bytes ?? ""]);
  if (!laws.length) return learned;
  const caption = "A rule of thumb by size, on the machine of most runs; predictions know more";
  return html("div", {}, learned, table(caption, ["Application", "CPU time", "Memory"], laws));
}

/** Return the champion with its applications, and the versions before. */
export function modelCards({ version, apps, versions }) {
  const parts = [html("h2", {}, "Champion and earlier versions"),
    table(`Version ${version || "without number"} is the champion, whose answers are returned`, COLUMNS, appRows(apps))];
  const earlier = versions.filter((entry) => entry.version !== version);
  if (earlier.length) {
    parts.push(html("details", {}, html("summary", {}, `${earlier.length} earlier version${earlier.length > 1 ? "s" : ""}`),
      earlier.map((entry) => table(`Version ${entry.version}`, COLUMNS, appRows(entry.apps)))));
  }
  return html("section", { class: "card", "aria-label": "Champion and earlier versions" }, parts);
}
