/* shapes: a drawing of the page, copied shape by shape with its computed styles. */
import { s } from "../scope.js";
import { clean, keep, colourProps, type } from "./paint.js";

const SHAPES = new Set(["g", "path", "circle", "ellipse", "rect", "line", "polygon", "polyline", "text", "tspan", "svg",
  "clipPath", "defs"]);
const PLACES = ["d", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "rx", "ry", "dx", "dy", "width", "height",
  "points", "transform", "viewBox", "id", "clip-path"];
const PAINT = ["fill", "stroke"], LINE = ["stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin"];

/** A drawing of the page, copied shape by shape. */
export function copyShape(node) {
  const style = getComputedStyle(node), name = node.localName;
  if (!SHAPES.has(name) || style.display === "none" || style.visibility === "hidden") return null;
  const copy = s(name,
    Object.fromEntries(PLACES.filter((x) => node.hasAttribute(x)).map((x) => [x, node.getAttribute(x)])));
  if (name !== "g" && name !== "svg" && name !== "defs" && name !== "clipPath") {
    for (const paint of PAINT)
      for (const [key, value] of Object.entries(colourProps(paint, style.getPropertyValue(paint))))
        copy.setAttribute(key, value);
    if (style.stroke !== "none") {
      for (const line of LINE)
        if (!/^(none|butt|miter)$/.test(style.getPropertyValue(line)))
          copy.setAttribute(line, style.getPropertyValue(line).replaceAll("px", ""));
    }
    if (/^t(ext|span)$/.test(name)) {
      for (const [key, value] of Object.entries({ ...type(style), "text-anchor": style.textAnchor }))
        copy.setAttribute(key, value);
      keep(copy);
    }
  }
  if (Number(style.opacity) < 1) copy.setAttribute("opacity", style.opacity);
  for (const kid of node.childNodes) {
    const one = kid.nodeType === Node.TEXT_NODE
      ? (/^t(ext|span)$/.test(name) ? document.createTextNode(clean(kid.data)) : null)
      : kid.nodeType === Node.ELEMENT_NODE ? copyShape(kid) : null;
    if (one) copy.append(one);
  }
  return copy;
}
