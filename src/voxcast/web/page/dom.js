// Elements made from plain values. Text is only ever set as text, so that a name or a message of
// whatever content cannot become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

/** Return an HTML element; `on…` attributes are listeners, children nodes or text. */
export function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Return an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Return the element with an id, which the document has. */
export function byId(id) {
  return document.getElementById(id);
}

/** Let the options of a select be values with labels; the selection stays where it still exists. */
export function fillSelect(select, options, preferred = select.value) {
  select.replaceChildren(...options.map(([value, label]) => html("option", { value }, label)));
  if (options.some(([value]) => value === preferred)) select.value = preferred;
}

/** Return a table; cells are nodes or text, the first of a row its header. */
export function table(caption, columns, rows, className = null) {
  const head = columns.map((name) => html("th", { scope: "col" }, name));
  const body = rows.map((cells) =>
    html("tr", cells.className ? { class: cells.className } : {},
      cells.map((cell, n) => n === 0 ? html("th", { scope: "row" }, cell) : html("td", { "data-column": columns[n] }, cell))));
  return html("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption },
    html("table", { class: className }, html("caption", {}, caption),
      html("thead", {}, html("tr", {}, head)), html("tbody", {}, body)));
}

/** Draw a part anew by `draw`: the keyboard's focus and what was unfolded stay. */
export function redrawn(part, draw) {
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  const again = focused && (focused.id ? `#${CSS.escape(focused.id)}`
    : focused.matches(".point") ? ".point[tabindex='0']" : focused.localName);
  const unfolded = [...part.querySelectorAll("details")].map((details) => details.open);
  const result = draw();
  part.querySelectorAll("details").forEach((details, n) => {
    details.open = unfolded[n] ?? false;
  });
  // A figure is drawn when its width is known, which is after the next frame.
  if (focused && !focused.isConnected) {
    requestAnimationFrame(() => requestAnimationFrame(() => part.querySelector(again)?.focus()));
  }
  return result;
}

let announced = 0;

/** Tell users of screen readers what changed, when they are not being told something else. */
export function announce(text) {
  const status = byId("status");
  announced += 1;
  // The same text twice is announced twice.
  status.textContent = announced % 2 ? text : `${text}\u00a0`;
}
