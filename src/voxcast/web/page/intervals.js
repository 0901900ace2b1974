// Predictions as a table in which each interval is drawn: lower bound, median, upper bound.

import { html, svg, table } from "./dom.js";
import { allocation, bytes, duration } from "./quantities.js";
import { scale } from "./scales.js";

const WIDTH = 200, HEIGHT = 22;

function bar(place, [lower, median, upper]) {
  const y = HEIGHT / 2;
  return svg("svg", { class: "interval", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("line", { class: "track", x1: 0, x2: WIDTH, y1: y, y2: y }),
    svg("line", { class: "range", x1: place(lower), x2: place(upper), y1: y, y2: y }),
    svg("line", { class: "bound", x1: place(upper), x2: place(upper), y1: y - 6, y2: y + 6 }),
    svg("line", { class: "median", x1: place(median), x2: place(median), y1: y - 8, y2: y + 8 }));
}

function cell(place, quantiles, format) {
  const [lower, median, upper] = quantiles;
  return html("div", { class: "quantity" }, bar(place, quantiles),
    html("span", { class: "numbers" }, html("strong", {}, format(median)),
      html("span", {}, `${format(lower)} to ${format(upper)}`)));
}

function quantiles(prediction, target) {
  return ["lower", "median", "upper"].map((name) => prediction[`${target}_${name}`]);
}

/**
 * Return a table of predictions.
 *
 * @param {object[]} predictions - rows of `POST /predict`, one for each allocation
 * @param {object | null} chosen - the configuration that is recommended
 */
export function intervalTable(predictions, chosen, quantile) {
  const targets = [["Wall time", "runtime_s", duration, true], ["CPU time", "cpu_s", duration, true],
    ["Memory", "peak_rss_bytes", bytes, false]];
  if (predictions.some((row) => row.peak_gpu_bytes_upper > 0)) {
    targets.push(["GPU memory", "peak_gpu_bytes", bytes, false]);
  }
  const places = targets.map(([, target, , isTime]) =>
    scale(predictions.flatMap((row) => quantiles(row, target)), [2, WIDTH - 2], { zero: true, isTime }));
  const rows = predictions.map((row) => {
    const isChosen = chosen && ["device", "cpus", "gpus"].every((key) => (row[key] ?? 0) === chosen[key]);
    const name = html("span", {}, `${allocation(row)} `, isChosen ? html("span", { class: "mark" }, "recommended") : null);
    const cells = [name, ...targets.map(([, target, format], n) => cell(places[n], quantiles(row, target), format))];
    cells.className = isChosen ? "chosen" : "";
    return cells;
  });
  const share = Math.round(1000 * quantile) / 10;
  const caption = `Median, and below it the interval from the ${Math.round(10 * (100 - share)) / 10} % to the ${share} % quantile.`;
  return table(caption, ["Allocation", ...targets.map(([title]) => title)], rows);
}
