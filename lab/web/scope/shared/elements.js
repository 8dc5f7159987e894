/* Elements: made once, then changed. Strings become text nodes. */

const SVG = "http://www.w3.org/2000/svg";
function put(node, props, kids) {
  for (const [name, value] of Object.entries(props || {}))
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  node.append(...kids.flat(5).filter((kid) => kid !== null && kid !== undefined && kid !== false));
  return node;
}
/** An element; strings among `kids` become text nodes. */
export const h = (tag, props, ...kids) => put(document.createElement(tag), props, kids);
/** The same in the vector namespace. */
export const s = (tag, props, ...kids) => put(document.createElementNS(SVG, tag), props, kids);
export const set = (node, props) => {
  for (const [name, value] of Object.entries(props)) {
    if (value === null) node.removeAttribute(name);
    else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
};
export const see = (node, on) => (node.style.display = on ? "" : "none");
export const say = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};

/** Elements that are made once and then reused: at(i) gives the i-th, trim(n) hides those from n on. */
export function pool(parent, make) {
  const all = [];
  let shown = 0;
  return {
    at(i) {
      while (all.length <= i) parent.append(all[all.push(make()) - 1]);
      for (; shown <= i; shown++) see(all[shown], true);
      return all[i];
    },
    trim(n) {
      for (let i = n; i < shown; i++) see(all[i], false);
      shown = Math.min(shown, n);
    },
  };
}

/** Colours by the names that they have in the sheet, at the place of `element`; and types for a canvas: small,
 *  less, mono. */
export function inks(element, ...names) {
  const style = getComputedStyle(element), of = (name) => style.getPropertyValue("--" + name).trim();
  const type = (size, family) => `${of(size)} ${of(family)}`;
  return { ...Object.fromEntries(names.map((name) => [name, of(name)])), small: type("t-sm", "sans"),
    less: type("t-xs", "sans"), mono: type("t-xs", "mono") };
}

/** The pen of an empty canvas of that size in px. */
export function sheet(canvas, wide, high) {
  const ratio = window.devicePixelRatio || 1, [w, t] = [Math.round(wide * ratio), Math.round(high * ratio)],
    pen = canvas.getContext("2d");
  if (canvas.width !== w || canvas.height !== t) Object.assign(canvas, { width: w, height: t });
  canvas.style.height = high + "px";
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, wide, high);
  return pen;
}

/** A table with a caption: words of its head, rows of cells. */
export const grid = (caption, heads, rows) =>
  h("table", { class: "plain" }, h("caption", null, caption), h("thead", null, h("tr", null, heads.map((x) =>
    h("th", { scope: "col" }, x)
  ))), h("tbody", null, rows.map((row) => h("tr", null, row.map((x) => h("td", null, x))))));

/** Figures in a row: tell([[value, unit], ...]). */
export function figures() {
  const element = h("div", { class: "figures" }), cells = pool(element, () => h("span", null, h("b"), h("span")));
  const tell = (list) => {
    list.forEach((words, k) => cells.at(k).childNodes.forEach((node, n) => say(node, words[n])));
    cells.trim(list.length);
  };
  return { element, tell };
}

/** A colour of the sheet, also a system colour, as [red, green, blue]. */
export function rgb(colour) {
  const spot = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  spot.fillStyle = colour;
  spot.fillRect(0, 0, 1, 1);
  return [...spot.getImageData(0, 0, 1, 1).data.slice(0, 3)];
}

/** Slanted lines over a rectangle of a canvas: drafted parts differ from the rest by more than a grey. */
export function hatch(c, x, y, wide, high, colour) {
  if (wide < 5) return;
  c.save();
  c.beginPath(), c.rect(x, y, wide, high), c.clip();
  c.strokeStyle = colour;
  c.lineWidth = 1;
  c.beginPath();
  for (let k = x - high; k < x + wide; k += 5) c.moveTo(k, y + high), c.lineTo(k + high, y);
  c.stroke();
  c.restore();
}

/** A button: `word` is its label (text or elements), `act` its action, unless it is marked as disabled. */
export function button(word, act, props) {
  const element = h("button", { type: "button", class: "ds-button", ...props }, word);
  element.addEventListener("click", () => element.getAttribute("aria-disabled") !== "true" && act());
  return element;
}

/** A small button that is on or off. */
export function toggle(word, act) {
  const element = button(word, () => {
    const on = element.getAttribute("aria-pressed") !== "true";
    element.setAttribute("aria-pressed", on);
    act(on);
  }, { class: "small", "aria-pressed": "false" });
  return element;
}

const pen = document.createElement("canvas").getContext("2d");
/** A measure of text in one font, remembering what it measured. */
export function ruler(font) {
  const known = new Map();
  return (text) => {
    if (!known.has(text)) {
      if (known.size > 4000) known.clear();
      pen.font = font;
      known.set(text, pen.measureText(text).width);
    }
    return known.get(text);
  };
}

const ICONS = { first: "M12 4L7 8l5 4M4.5 4v8", prev: "M10 4L6 8l4 4", next: "M6 4l4 4-4 4",
  last: "M4 4l5 4-5 4M11.5 4v8", play: "M5 3.5v9l7-4.5z", pause: "M5.5 4v8M10.5 4v8" };
/** One of our icons, drawn in the current colour; d: its path, where it is none of these. */
export const icon = (name, d = ICONS[name]) =>
  s("svg", { class: "icon " + name, width: 16, height: 16, viewBox: "0 0 16 16", "aria-hidden": "true" },
    s("path", { d }));
