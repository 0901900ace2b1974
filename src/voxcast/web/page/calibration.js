// The share of subjects below their bounds, month after month, with intervals.

import { axes, inner, SERIES } from "./axes.js";
import { svg } from "./dom.js";
import { percent } from "./quantities.js";
import { scale } from "./scales.js";

const HEIGHT = 260;
const TARGETS = { runtime_s: "time", cpu_s: "CPU time", peak_rss_bytes: "memory", peak_gpu_bytes: "GPU memory" };
const BASES = { submission: "jobs", evaluation: "unseen subjects" };

/** Return the series that a row belongs to. */
export function seriesName({ app, target, basis }) {
  return `${app}, ${TARGETS[target] ?? target}, ${BASES[basis] ?? basis}`;
}

/** Return the names of the series, in the order of their colours. */
export function seriesOf(rows) {
  return [...new Set(rows.map(seriesName))].sort();
}

/** Return `draw(width)` of a plot of calibration. */
export function calibrationPlot(rows) {
  const batches = [...new Set(rows.map(({ month }) => month))].sort();
  const series = seriesOf(rows);
  const stated = [...new Set(rows.map((row) => row.stated))];
  return (width) => {
    const range = inner(width, HEIGHT);
    const y = scale([...rows.flatMap((row) => [row.low, row.high]), ...stated, 1], range.y);
    const step = (range.x[1] - range.x[0]) / batches.length;
    const x = (position) => range.x[0] + step * (position + 0.5);
    const stride = Math.ceil(batches.length / Math.max(1, Math.floor((range.x[1] - range.x[0]) / 70)));
    x.ticks = () => batches.map((_, n) => n).filter((n) => n % stride === 0);
    const shift = (n) => (n - (series.length - 1) / 2) * Math.min(12, (0.7 * step) / series.length);
    const marks = rows.map((row) => {
      const n = series.indexOf(seriesName(row));
      const at = x(batches.indexOf(row.month)) + shift(n);
      return svg("g", { class: `share series-${n % SERIES}` },
        svg("line", { x1: at, x2: at, y1: y(row.low), y2: y(row.high) }),
        svg("circle", { cx: at, cy: y(row.share_within), r: 4 }));
    });
    return svg("svg", { class: "calibration", viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img",
      "aria-label": "Share of subjects below their upper bound over time; the same is in the table below" },
      axes(x, y, { width, height: HEIGHT, xTitle: "", yTitle: "below the bound",
        xFormat: (n) => batches[n], yFormat: (share) => (share > 1.0001 ? "" : percent(share)) }),
      stated.map((share) => svg("line", { class: "promised", x1: range.x[0], x2: range.x[1], y1: y(share), y2: y(share) })),
      marks);
  };
}
