// A scan: three slices, and its characteristics beside what the model was trained on.

import { byId, html, svg, table } from "./dom.js";
import { bytes, number } from "./quantities.js";

const WIDTH = 120, HEIGHT = 16;
const PLANES = ["sagittal", "coronal", "axial"];
const UNITS = { share: "", ratio: "", voxels: "voxels", count: "" };

function slice({ plane, width, height, spacing_mm: spacing, png }) {
  const [mmX, mmY] = spacing.map((mm, n) => Math.round(mm * [width, height][n]));
  const picture = html("img", { src: `data:image/png;base64,${png}`, alt: `Middle ${plane} slice`, width, height });
  // Voxels are not square in general; the picture is as large as what it shows.
  picture.style.aspectRatio = `${width * spacing[0]} / ${height * spacing[1]}`;
  return html("figure", {}, picture, html("figcaption", {}, `${plane}, ${mmX} × ${mmY} mm`));
}

/** Return a bar with the range that was learned from and a mark at the value. */
function rangeBar({ value, low, high, within }) {
  const span = high - low || Math.abs(high) || 1;
  const at = (quantity) => {
    const place = WIDTH * (0.25 + 0.5 * (quantity - low) / span);
    return Math.min(WIDTH - 5, Math.max(5, place));
  };
  return svg("svg", { class: `within ${within ? "" : "outside"}`, viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    width: WIDTH, height: HEIGHT, "aria-hidden": "true" },
    svg("line", { class: "track", x1: 0, x2: WIDTH, y1: HEIGHT / 2, y2: HEIGHT / 2 }),
    svg("rect", { class: "trained", x: WIDTH / 4, width: WIDTH / 2, y: HEIGHT / 2 - 3, height: 6, rx: 2 }),
    svg("circle", { class: "value", cx: at(value), cy: HEIGHT / 2, r: 4.5 }));
}

function characteristicRow(characteristic) {
  const { name, text, value, unit, low, high, usual, within } = characteristic;
  const title = html("span", { title: text ?? "" }, name.replaceAll("_", " "));
  const amount = `${number(value, 4)} ${UNITS[unit] ?? unit ?? ""}`.trim().replaceAll(" ", "\u00a0");
  if (within === null) {
    const note = typeof usual === "number" ? `usually ${number(usual)}` : text;
    return [title, amount, html("span", { class: "soft" }, note)];
  }
  const side = within ? "within" : value < low ? "below" : "above";
  // The model allows for a little beyond the range before it calls a value outside.
  const place = value < low ? "below" : value > high ? "above" : "within";
  const verdict = `${place === "within" ? place : `${within ? "just " : ""}${place}`} ${number(low)} to ${number(high)}`;
  const cells = [title, amount, html("div", { class: "trained-on" }, rangeBar(characteristic),
    html("span", { class: `side ${side}` }, verdict))];
  cells.className = side === "within" ? "" : "outside";
  return cells;
}

function isUsed({ within, usual }) {
  return within !== null || typeof usual === "number";
}

function valueTable(caption, characteristics) {
  return table(caption, ["Characteristic", "Value", "Trained on"], characteristics.map(characteristicRow), "values");
}

function summaryOf(characteristics) {
  const trained = characteristics.filter(({ within }) => within !== null);
  const outside = trained.filter(({ within }) => !within);
  if (!trained.length) return ["", false];
  if (!outside.length) {
    return [trained.length === 1 ? "The characteristic that is checked lies within the measured range."
      : `All ${trained.length} characteristics that are checked lie within their measured ranges.`, false];
  }
  return [`${outside.length} of ${trained.length} characteristics ${outside.length === 1 ? "is" : "are"} `
    + "outside the measured range: the prediction is an extrapolation.", true];
}

/** Show a scan; returns in a sentence how it compares with what the model was trained on. */
export function showScan(name, { characteristics, slices, image, notes }) {
  byId("scan-name").textContent = name;
  byId("scan-facts").textContent = [`${image.shape.join(" × ")} voxels`,
    `${image.spacing_mm.map((mm) => number(mm)).join(" × ")} mm`, image.orientation, image.dtype,
    bytes(image.bytes)].filter(Boolean).join(" · ");
  byId("slices").replaceChildren(...[...slices]
    .sort((a, b) => PLANES.indexOf(a.plane) - PLANES.indexOf(b.plane)).map(slice));
  const unused = characteristics.filter((characteristic) => !isUsed(characteristic));
  const [summary, isOutside] = summaryOf(characteristics);
  byId("characteristics").replaceChildren(
    html("p", { class: isOutside ? "caveat" : "soft" }, summary),
    valueTable("Characteristics, and the range that the model was trained on", characteristics.filter(isUsed)),
    ...(unused.length ? [html("details", {},
      html("summary", {}, `${unused.length} more, which this model does not use`),
      valueTable("Characteristics that the model does not use", unused))] : []),
    ...(notes ?? []).map((note) => html("p", { class: "soft" }, note)));
  return summary;
}
