// Cost against time of every configuration, and the Pareto front.

import { axes, inner, roving } from "./axes.js";
import { html, svg } from "./dom.js";
import { allocation, bytes, coreHours, duration, number, usd } from "./quantities.js";
import { scale } from "./scales.js";

const HEIGHT = 300;

/** Return whether any of the configurations costs money. */
export function priced(configurations) {
  return configurations.some((row) => row.usd_expected > 0);
}

/** Return the cost of a configuration as a number, in USD or, where nothing is charged, core-hours. */
function cost(row, inUsd) {
  return inUsd ? row.usd_expected : row.core_h;
}

/** Return the place of a configuration in words. */
export function placeOf(row) {
  if (row.isHere) return "this machine";
  return row.node_type === row.partition ? row.node_type : `${row.node_type}, partition ${row.partition}`;
}

function sentence(row, inUsd, isChosen) {
  const price = inUsd ? usd(row.usd_expected) : coreHours(row.core_h);
  return [`${allocation(row)} on ${placeOf(row)}: ${duration(row.turnaround_expected_s)} until the result`,
    price, `request ${duration(row.walltime_s, Math.ceil)} and ${bytes(row.memory_bytes)}`,
    isChosen ? "recommended" : row.excluded ? `not possible: ${row.excluded}` : row.pareto ? "on the Pareto front" : "another is both cheaper and faster"].join(", ");
}

function mark(row, x, y, inUsd, isChosen) {
  const [cx, cy] = [x(row.turnaround_expected_s), y(cost(row, inUsd))];
  const kind = isChosen ? "chosen" : row.excluded ? "excluded" : row.pareto ? "front" : "beaten";
  return svg("g", { class: `point ${kind}`, role: "img", "aria-label": sentence(row, inUsd, isChosen) },
    svg("circle", { class: "target", cx, cy, r: 13 }),
    isChosen ? svg("circle", { class: "ring", cx, cy, r: 10 }) : null,
    row.excluded
      ? svg("path", { d: `M${cx - 4} ${cy - 4}l8 8m0 -8l-8 8` })
      : svg("circle", { cx, cy, r: row.pareto ? 5.5 : 4.5 }));
}

function isSame(a, b) {
  return b !== null && ["node_type", "partition", "device", "cpus", "gpus"].every((key) => a[key] === b[key]);
}

function rank(point) {
  return ["excluded", "beaten", "front", "chosen"].findIndex((kind) => point.classList.contains(kind));
}

/** Return a picture of configurations, and `draw(width)` for `figure`. */
export function paretoPlot(configurations, chosen, deadlineS, readout) {
  const inUsd = priced(configurations);
  const rows = [...configurations].sort((a, b) => a.turnaround_expected_s - b.turnaround_expected_s);
  const costs = rows.map((row) => cost(row, inUsd));
  const times = rows.map((row) => row.turnaround_expected_s);
  const log = (values) => Math.max(...values) > 12 * Math.min(...values) && Math.min(...values) > 0;
  return (width) => {
    const range = inner(width, HEIGHT);
    const x = scale(times, range.x, { isTime: true, log: log(times), zero: true });
    const y = scale(costs, range.y, { log: log(costs), zero: true });
    const front = rows.filter((row) => row.pareto);
    const line = front.map((row, n) => `${n ? "L" : "M"}${x(row.turnaround_expected_s)} ${y(cost(row, inUsd))}`).join("");
    const marks = rows.map((row) => mark(row, x, y, inUsd, isSame(row, chosen)));
    const picked = Math.max(0, rows.findIndex((row) => isSame(row, chosen)));
    roving(marks, picked, (n) => {
      readout.textContent = sentence(rows[n ?? picked], inUsd, (n ?? picked) === picked && chosen !== null);
      marks.forEach((other, k) => other.classList.toggle("pointed", k === n));
    });
    readout.textContent = sentence(rows[picked], inUsd, chosen !== null);
    const atDeadline = deadlineS <= x.domain[1] && deadlineS >= x.domain[0] ? x(deadlineS) : null;
    const isLeft = atDeadline < (range.x[0] + range.x[1]) / 2; // the label would lie on the axis
    return svg("svg", { class: "pareto", viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "group",
      "aria-label": "Cost and time of each configuration; the arrow keys go from one to the next" },
      axes(x, y, { width, height: HEIGHT, xFormat: duration,
        xTitle: width < 480 ? "expected time until the result" : "expected time until the result, queue and retries included",
        yTitle: inUsd ? "expected cost in USD" : "core-hours", yFormat: (tick) => number(tick, 2) }),
      atDeadline === null ? null : svg("g", { class: "limit" },
        svg("line", { x1: atDeadline, x2: atDeadline, y1: range.y[0], y2: range.y[1] }),
        svg("text", { x: atDeadline + (isLeft ? 5 : -5), y: range.y[1] + 10, "text-anchor": isLeft ? "start" : "end" }, "deadline")),
      svg("path", { class: "frontline", d: line }),
      // The better ones are drawn last, above the others; the arrow keys keep their order.
      [...marks].sort((a, b) => rank(a) - rank(b)));
  };
}

/** Return the line below the plot that describes the point that is pointed at. */
export function paretoReadout() {
  return html("p", { class: "readout", "aria-hidden": "true" });
}
