// What runs used against what was predicted for them, on logarithmic axes.

import { axes, inner, SERIES } from "./axes.js";
import { html, svg } from "./dom.js";
import { allocation, bytes, day, duration } from "./quantities.js";
import { scale } from "./scales.js";

/** The quantities that are compared, with the columns of `GET /history`. */
export const QUANTITIES = {
  time: { title: "Time", isTime: true, format: duration, requested: "requested_s", used: "used_s",
    median: "predicted_median_s", upper: "predicted_upper_s" },
  memory: { title: "Memory", isTime: false, format: bytes, requested: "requested_bytes", used: "used_bytes",
    median: "predicted_median_bytes", upper: "predicted_upper_bytes" },
};

/** Return the line below the plot that describes the run that is pointed at. */
export function scatterReadout() {
  return html("p", { class: "readout", "aria-hidden": "true" }, "Point at a run to read it.");
}

/** Return the applications of runs, in the order of their colours. */
export function appsOf(runs) {
  return [...new Set(runs.map(({ app }) => app))].sort();
}

/** Return `draw(width)` of a plot of runs. */
export function scatterPlot(runs, { used, median, upper, requested, format, isTime }, readout) {
  const apps = appsOf(runs);
  const values = runs.flatMap((run) => [run[used], run[median]]);
  const spread = Math.max(...values) > 8 * Math.min(...values);
  return (width) => {
    const height = Math.min(380, Math.max(280, width * 0.7));
    const range = inner(width, height);
    const options = { isTime, log: spread, zero: !spread };
    const x = scale(values, range.x, options), y = scale(values, range.y, options);
    const [low, high] = x.domain;
    const points = runs.map((run) => {
      const exceeded = run[upper] > 0 && run[used] > run[upper];
      const point = svg("circle", { class: `run series-${apps.indexOf(run.app) % SERIES} ${exceeded ? "exceeded" : ""}`,
        cx: x(run[median]), cy: y(run[used]), r: exceeded ? 5 : 3.6 });
      point.addEventListener("pointerenter", () => {
        readout.textContent = `${run.app}, ${day(run.started_at)}, ${allocation(run)}: used ${format(run[used])}, `
          + `predicted ${format(run[median])}${run[upper] ? ` up to ${format(run[upper])}` : ""}`
          + `${run[requested] ? `, requested ${format(run[requested])}` : ""}`;
      });
      return point;
    });
    return svg("svg", { class: "scatter", viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
      "aria-label": `What ${runs.length} runs used against what was predicted; the newest are in the table` },
      axes(x, y, { width, height, xTitle: "predicted median", yTitle: "used", xFormat: format, yFormat: format }),
      svg("line", { class: "equal", x1: x(low), y1: y(low), x2: x(high), y2: y(high) }),
      points);
  };
}
