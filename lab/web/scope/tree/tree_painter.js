/* Tree painter: the tree as a picture: a large one is painted while its steps go by, in the colours and fonts that
 * the sheet gives its elements. */
import { h, ruler, s, sheet } from "../shared/elements.js";
import { paintLast } from "../shared/frame.js";
import { GAP_TEXT } from "./layout.js";
import { outline, radius, WORDS } from "../shared/marks.js";

const STATUSES = Object.keys(WORDS);
const PITCH_PX = 128, MOST_PX = 4e6; // px by which a picture grows, and up to which it is kept

/** The pen of an empty canvas that has room for so many px: making another for each tree takes longer than drawing
 *  it. A canvas of more than MOST_PX is dropped. */
function roomy(canvas, wide, high) {
  const { wide: w = 0, high: t = 0 } = canvas, grown = (old, px) =>
    w * t < MOST_PX && old >= px ? old : PITCH_PX * Math.ceil(px / PITCH_PX);
  Object.assign(canvas, { wide: grown(w, wide), high: grown(t, high) });
  canvas.style.width = canvas.wide + "px";
  return sheet(canvas, canvas.wide, canvas.high);
}

export function brush() {
  const canvas = h("canvas"), element = h("div", { class: "tree-picture", "aria-hidden": "true" }, canvas);
  let styles = null, items = [];

  /** The style sheet's values for every kind of element. */
  function read() {
    const styles = {}, place = s("svg", { class: "tree" });
    element.after(place);
    const look = (name, node, at = place) => {
      at.append(node);
      const { stroke, strokeWidth, strokeDasharray, fill, fontWeight, fontSize, fontFamily } = getComputedStyle(node);
      const font = `${fontWeight} ${fontSize} ${fontFamily}`,
        dash = (strokeDasharray.match(/[\d.]+/g) || []).map(Number);
      styles[name] = { stroke, fill, wide: parseFloat(strokeWidth), dash, font, long: ruler(font) };
      return node;
    };
    for (const kind of [...STATUSES, "core"]) look("edge " + kind, s("path", { class: "edge " + kind }));
    for (const kind of ["", "unreached", "reject"]) {
      const node = place.appendChild(s("g", { class: "node " + kind })),
        label = look("label " + kind, s("text", { class: "label" }), node);
      for (const part of ["ws", "more"]) look(`${part} ${kind}`, s("tspan", { class: part }), label);
      look("sub " + kind, s("text", { class: "sub" }), node);
    }
    for (const kind of STATUSES) look("mark " + kind, s("path", { class: "mark " + kind }));
    look("ring", s("circle", { class: "ring" }));
    place.remove();
    return styles;
  }

  /** Everything of one kind is one path. */
  function shapes(pen, lines) {
    const paths = new Map(), add = (kind, d) => paths.set(kind, (paths.get(kind) || "") + d);
    for (const [kind, d] of lines) add("edge " + kind, d);
    for (const { node, x, y } of items) add("mark " + node.status, outline(node.status, radius(node), x, y));
    for (const [kind, d] of paths) {
      const path = new Path2D(d), { fill, stroke, wide, dash } = styles[kind];
      pen.setLineDash(dash);
      Object.assign(pen, { fillStyle: fill, strokeStyle: stroke, lineWidth: wide,
        lineCap: kind === "mark reject" ? "round" : "butt" });
      if (fill !== "none") pen.fill(path);
      if (stroke !== "none") pen.stroke(path);
    }
    pen.setLineDash([]);
  }
  /** Write the collected texts, kind -> [[text, x, y, align], ...]: a pen parses every font that it is given. */
  function write(pen, texts) {
    for (const [kind, all] of texts) {
      const { font, fill } = styles[kind];
      Object.assign(pen, { font, fillStyle: fill });
      for (const [text, x, y, align] of all) {
        if (pen.textAlign !== align) pen.textAlign = align;
        pen.fillText(text, x, y);
      }
    }
  }

  return {
    element,
    restyle: () => (styles = null),
    /** Paint a laid tree. lines: [[kind, path], ...], its edges, the last on top; words(item) -> [[text, class or
     *  null], ...], its label; numbers(item) -> {text, x, y, end} or null, the line of numbers; chosen: the ringed
     *  node. */
    paint(laid, { wide, high, lines, words, numbers, chosen }) {
      styles = styles || read();
      items = laid.items;
      Object.assign(element.style, { width: wide + "px", height: high + "px" });
      paintLast(() => {
        const pen = roomy(canvas, wide, high), texts = new Map();
        shapes(pen, lines);
        const put = (kind, ...text) => texts.get(kind)?.push(text) ?? texts.set(kind, [text]);
        for (const item of items) {
          const kind = item.node.status === "unreached" || item.node.status === "reject" ? item.node.status : "";
          let x = item.x + GAP_TEXT;
          words(item).forEach(([text, part], k, all) => {
            const name = `${part || "label"} ${kind}`;
            put(name, text, x, item.y + 4.5, "left");
            if (k + 1 < all.length) x += styles[name].long(text);
          });
          const line = numbers(item);
          if (line) put(`sub ${kind}`, line.text, line.x, line.y, line.end ? "right" : "left");
        }
        write(pen, texts);
        const ringed = items.find(({ node }) => node.id === chosen);
        if (!ringed) return;
        Object.assign(pen, { strokeStyle: styles.ring.stroke, lineWidth: styles.ring.wide });
        pen.beginPath();
        pen.arc(ringed.x, ringed.y, 11, 0, 2 * Math.PI);
        pen.stroke();
      });
    },
    /** The node at a place of the picture, or null. */
    at: (x, y) =>
      items.findLast((item) => x >= item.x - 12 && x <= item.end + 2 && Math.abs(y - item.y) < 12)?.node.id ?? null,
  };
}
