/* picture: an element as it looks, as one self-contained SVG, and as PNG. Shapes and text are written again with
 * their computed styles: no class, no script, no markup from a model's text, no outside address. */
import { box, before, edges, grounds } from "./boxes.js";
import { lines } from "./lines.js";
import { clean, colour, colourProps, round } from "./paint.js";
import { copyShape } from "./shapes.js";
import { s } from "../scope.js";

const PAD = 16; // px of background around it
const LARGEST = 8192; // px of a side of a PNG
const LEFT_OUT = "button, input, select, textarea, dialog, script, style, .aloud, .unseen, .veil, .tip";
const KEPT = ".beams button";

/** The SVG of the visible part of `element`. title: what it is, in words. */
export function picture(element, title) {
  const frame = element.getBoundingClientRect(), wide = Math.ceil(frame.width) + 2 * PAD,
    high = Math.ceil(frame.height) + 2 * PAD;
  const svg = s("svg", { width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, role: "img" },
    s("title", null, clean(title)));
  const at = { x: (x) => round(x - frame.left + PAD), y: (y) => round(y - frame.top + PAD) };
  let clips = 0;
  svg.append(s("rect", { width: wide, height: high, ...colourProps("fill", ground(element)) }));

  function walk(node, into) {
    if (node.nodeType === Node.TEXT_NODE) return lines(at, node, into);
    if (node.nodeType !== Node.ELEMENT_NODE || (node.matches(LEFT_OUT) && !node.matches(KEPT))) return;
    const style = getComputedStyle(node),
      rects = [...node.getClientRects()].filter((rect) => rect.width || rect.height);
    if (style.display === "none" || style.visibility === "hidden" || (!rects.length && style.display !== "contents"))
      return;
    const rect = node.getBoundingClientRect();
    let inside = into;
    if (Number(style.opacity) < 1) into.append(inside = s("g", { opacity: style.opacity }));
    if (node instanceof SVGSVGElement) {
      const copy = copyShape(node);
      for (const [key, value] of Object.entries({ x: at.x(rect.left), y: at.y(rect.top), width: round(rect.width),
        height: round(rect.height), overflow: "visible" })) copy.setAttribute(key, value);
      return void inside.append(copy);
    }
    if (node instanceof HTMLCanvasElement) {
      if (node.width && node.height)
        inside.append(
          s("image", { x: at.x(rect.left), y: at.y(rect.top), width: round(rect.width), height: round(rect.height),
            href: node.toDataURL("image/png") })
        );
      return;
    }
    for (const one of rects) grounds(at, style, one, inside), edges(at, node, style, one, inside);
    before(at, node, rect, inside);
    if (style.overflowX !== "visible" || style.overflowY !== "visible") {
      const id = `seen-${++clips}`;
      inside.append(s("clipPath", { id }, box(at, rect, {}) || ""), inside = s("g", { "clip-path": `url(#${id})` }));
    }
    for (const kid of node.childNodes) walk(kid, inside);
  }
  walk(element, svg);
  return svg;
}

/** The background behind an element. */
function ground(element) {
  for (let one = element; one; one = one.parentElement)
    if (colour(getComputedStyle(one).backgroundColor).alpha === 1) return getComputedStyle(one).backgroundColor;
  return "#fff";
}

/** An SVG as the text of a file. */
export const svgText = (svg) =>
  '<?xml version="1.0" encoding="UTF-8"?>\n' + new XMLSerializer().serializeToString(svg) + "\n";

/** An SVG as PNG, `scale` times as large. */
export async function png(svg, scale = 2) {
  const [width, height] = ["width", "height"].map((name) => Number(svg.getAttribute(name))),
    by = Math.min(scale, LARGEST / Math.max(width, height));
  const image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svgText(svg));
  await image.decode();
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: Math.round(width * by), height: Math.round(height * by) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done, failed) =>
    canvas.toBlob(
      (blob) => (blob ? done(blob) : failed(new Error("The picture is too large for this browser: save it as SVG."))),
      "image/png"
    )
  );
}
