// The second view: requested, used and predicted; calibration; the models.

import { figure, seriesLegend } from "./axes.js";
import { calibrationPlot, seriesName, seriesOf } from "./calibration.js";
import { byId, fillSelect, html, svg, table } from "./dom.js";
import { showProblem } from "./problems.js";
import { allocation, bytes, day, duration, number, percent } from "./quantities.js";
import { scale } from "./scales.js";
import { appsOf, QUANTITIES, scatterPlot, scatterReadout } from "./scatter.js";
import { get } from "./service.js";
import { modelCards } from "./versions.js";

const NEWEST = 15;
const SERVED = "*"; // no name of an application
const WIDTH = 260, HEIGHT = 20;

/** Return a card with a title. */
function card(title, ...children) {
  return html("section", { class: "card", "aria-label": title }, html("h2", {}, title), children);
}

function nothing(text, command) {
  return html("p", { class: "empty" }, text, ...(command ? [" ", html("code", {}, command), "."] : []));
}

/** Ask for the history, and show it in a box. */
export async function showHistory(box) {
  if (!box.children.length) box.replaceChildren(html("p", { class: "soft" }, "Reading the history …"));
  try {
    const [history, models] = await Promise.all([get("history"), get("models")]);
    draw(box, history, models);
  } catch (error) {
    if (error.status === undefined) throw error;
    showProblem(box, error, () => showHistory(box));
  }
}

function draw(box, history, models) {
  const { runs } = history;
  const apps = appsOf(runs);
  const app = html("select", { id: "history-app", onchange: redraw });
  const quantity = html("select", { id: "history-quantity", onchange: redraw });
  const served = apps.filter((name) => name in models.apps);
  // What the champion does not answer for is left out at first.
  const groups = served.length && served.length < apps.length ? [[SERVED, "those of the champion"]] : [];
  fillSelect(app, [...groups, ["", "all"], ...apps.map((name) => [name, name])], groups.length ? SERVED : "");
  fillSelect(quantity, Object.entries(QUANTITIES).map(([name, { title }]) => [name, title]));
  const views = html("div", { class: "history-grid" });
  const controls = html("form", { class: "controls", "aria-label": "What is drawn", onsubmit: (e) => e.preventDefault() },
    html("div", { class: "field" }, html("label", { for: "history-app" }, "Application"), app),
    html("div", { class: "field" }, html("label", { for: "history-quantity" }, "Quantity"), quantity));
  function redraw() {
    const isSelected = (row) => !app.value || (app.value === SERVED ? served.includes(row.app) : row.app === app.value);
    const selected = runs.filter(isSelected);
    const calibration = history.calibration.filter(isSelected);
    const [used, newest] = [usedCard, newestCard].map((view) => view(selected, QUANTITIES[quantity.value]));
    views.replaceChildren(html("div", {}, used, calibrationCard(calibration)), newest, modelCards(models));
  }
  redraw();
  box.replaceChildren(...(runs.length ? [controls, views] : [views]));
}

function usedCard(runs, quantity) {
  const drawn = runs.filter((run) => run[quantity.used] > 0 && run[quantity.median] > 0);
  if (!runs.length) {
    return card("Used against predicted", nothing("No run is on record yet. Measure some with", "voxcast learn"));
  }
  if (!drawn.length) {
    return card("Used against predicted", nothing(
      "These runs have no prediction. It is stored with each run that is submitted with", "voxcast submit"));
  }
  const above = drawn.filter((run) => run[quantity.upper] > 0);
  const exceeded = above.filter((run) => run[quantity.used] > run[quantity.upper]).length;
  const sentence = `${drawn.length} runs with a prediction, of ${number(runs.length)}`
    + (above.length ? `; ${exceeded} (${percent(exceeded / above.length, 2)}) took more than the upper bound.` : ".");
  const readout = scatterReadout();
  return card("Used against predicted", figure(sentence, scatterPlot(drawn, quantity, readout),
    seriesLegend(appsOf(drawn)), readout));
}

function newestCard(runs, quantity) {
  const newest = [...runs].sort((a, b) => String(b.started_at).localeCompare(String(a.started_at))).slice(0, NEWEST);
  if (!newest.length) return card("The newest runs", nothing("No run is on record yet."));
  const columns = [quantity.requested, quantity.used, quantity.median, quantity.upper];
  const place = scale(newest.flatMap((run) => columns.map((name) => run[name] ?? NaN)), [4, WIDTH - 4],
    { zero: true, isTime: quantity.isTime });
  const rows = newest.map((run) => [
    html("span", {}, run.app, html("span", { class: "soft when" }, `${day(run.started_at)}, ${allocation(run)}`)),
    dumbbell(run, quantity, place), quantity.format(run[quantity.requested]), quantity.format(run[quantity.used]),
    quantity.format(run[quantity.median])]);
  return card(`The newest ${newest.length} runs`,
    html("p", { class: "legend" }, html("span", { class: "key used" }, "used"), html("span", { class: "key predicted" },
      "predicted, up to its bound"), html("span", { class: "key requested" }, "requested")),
    table(`${quantity.title} of the newest runs`, ["Run", "", "Requested", "Used", "Predicted"], rows));
}

function dumbbell(run, quantity, place) {
  const y = HEIGHT / 2;
  const [requested, used, median, upper] =
    [quantity.requested, quantity.used, quantity.median, quantity.upper].map((name) => run[name]);
  const has = Number.isFinite;
  return svg("svg", { class: "dumbbell", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, "aria-hidden": "true" },
    svg("line", { class: "track", x1: 0, x2: WIDTH, y1: y, y2: y }),
    has(median) && has(upper) ? svg("line", { class: "range", x1: place(median), x2: place(upper), y1: y, y2: y }) : null,
    has(median) ? svg("line", { class: "median", x1: place(median), x2: place(median), y1: y - 7, y2: y + 7 }) : null,
    has(requested) ? svg("rect", { class: "requested", x: place(requested) - 4, y: y - 4, width: 8, height: 8 }) : null,
    has(used) ? svg("circle", { class: "used", cx: place(used), cy: y, r: 4.5 }) : null);
}

function calibrationCard(rows) {
  const title = "Calibration over time";
  if (!rows.length) {
    return card(title, nothing("No data yet: it needs runs that were predicted before they started, such as those submitted with", "voxcast submit"));
  }
  return card(title,
    figure("Share of subjects below the upper bound, with its exact 95 % interval; the line is what the bound states.",
      calibrationPlot(rows), seriesLegend(seriesOf(rows))),
    html("details", {}, html("summary", {}, "As a table"),
      table("Share of subjects below the upper bound", ["Month", "Series", "Below", "Interval", "Stated"],
        rows.map((row) => [row.month, seriesName(row), `${row.below} of ${row.subjects}`,
          `${percent(row.low)} to ${percent(row.high)}`, percent(row.stated)]))));
}
