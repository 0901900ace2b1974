// The frame of a plot with two axes, drawn as wide as there is room.

import { html, svg } from "./dom.js";

/** Number of colours of series. */
export const SERIES = 6;
const MARGIN = { top: 30, right: 14, bottom: 42, left: 60 };

/** Return the pixels between which a plot of a size is drawn. */
export function inner(width, height) {
  return {
    x: [MARGIN.left, width - MARGIN.right],
    y: [height - MARGIN.bottom, MARGIN.top],
  };
}

/** Return ticks, grid lines and titles of both axes; `format` turns quantities into text. */
export function axes(x, y, { width, height, xTitle, yTitle, xFormat, yFormat }) {
  const { x: [left, right], y: [bottom, top] } = inner(width, height);
  const ticksX = x.ticks(Math.max(2, Math.floor((right - left) / 85)));
  const ticksY = y.ticks(Math.max(2, Math.floor((bottom - top) / 42)));
  return svg("g", { class: "axes", "aria-hidden": "true" },
    ticksX.map((tick) => [
      svg("line", { x1: x(tick), x2: x(tick), y1: top, y2: bottom }),
      svg("text", { x: x(tick), y: bottom + 16, "text-anchor": "middle" }, xFormat(tick)),
    ]),
    ticksY.map((tick) => [
      svg("line", { x1: left, x2: right, y1: y(tick), y2: y(tick) }),
      svg("text", { x: left - 7, y: y(tick) + 4, "text-anchor": "end" }, yFormat(tick)),
    ]),
    svg("line", { class: "base", x1: left, x2: right, y1: bottom, y2: bottom }),
    svg("text", { class: "title", x: right, y: height - 6, "text-anchor": "end" }, xTitle),
    svg("text", { class: "title", x: 0, y: 12 }, yTitle),
  );
}

const observer = new ResizeObserver((entries) => {
  for (const { target } of entries) target.dispatchEvent(new Event("resized"));
});

/** Return a figure with a caption; `draw(width)` returns its picture, again when it is resized. */
export function figure(caption, draw, ...below) {
  const box = html("div", { class: "plot" });
  let drawn = 0;
  box.addEventListener("resized", () => {
    const width = Math.round(box.clientWidth);
    if (width && width !== drawn) {
      drawn = width;
      box.replaceChildren(draw(width));
    }
  });
  observer.observe(box);
  return html("figure", {}, html("figcaption", {}, caption), box, below);
}

/** Return the names of the series of a plot, each with its colour. */
export function seriesLegend(names) {
  return html("p", { class: "legend" },
    names.map((name, n) => html("span", { class: `key series series-${n % SERIES}` }, name)));
}

/**
 * Let the marks of a plot be one stop of the Tab key, with the arrow keys from mark to mark.
 *
 * @param {SVGElement[]} marks - in the order of the arrow keys; each has an `aria-label`
 * @param {number} first - the mark that the Tab key reaches
 * @param {(n: number | null) => void} point - called with the mark pointed at, or none
 */
export function roving(marks, first, point) {
  marks.forEach((mark, n) => {
    mark.setAttribute("tabindex", n === first ? "0" : "-1");
    mark.addEventListener("focus", () => point(n));
    mark.addEventListener("blur", () => point(null));
    mark.addEventListener("pointerenter", () => point(n));
    mark.addEventListener("pointerleave", () => point(null));
    mark.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const target = event.key === "Home" ? 0 : event.key === "End" ? marks.length - 1
        : step && (n + step + marks.length) % marks.length;
      if (target === undefined) return;
      event.preventDefault();
      marks.forEach((other, k) => other.setAttribute("tabindex", k === target ? "0" : "-1"));
      marks[target].focus();
    });
  });
}
