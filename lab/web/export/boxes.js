/* boxes: backgrounds, borders and marks of an element, as rectangles. at: {x, y}, from page coordinates to those
 * of the picture; into: the shape that takes them. */
import { s } from "../scope.js";
import { colour, length, colourProps, round, split } from "./paint.js";

/** A rectangle of the page as a shape, `grow` px larger on each side; null if it is invisible. */
export function box(at, rect, props, grow = 0, radius = 0) {
  if (rect.width + 2 * grow <= 0 || rect.height + 2 * grow <= 0) return null;
  return s("rect", { x: at.x(rect.left - grow), y: at.y(rect.top - grow), width: round(rect.width + 2 * grow),
    height: round(rect.height + 2 * grow), rx: radius ? round(radius) : null, ...props });
}
/** The background of an element: a colour, and its gradients. */
export function grounds(at, style, rect, into) {
  const radius = Math.min(parseFloat(style.borderTopLeftRadius) || 0, rect.height / 2);
  if (colour(style.backgroundColor).alpha)
    into.append(box(at, rect, colourProps("fill", style.backgroundColor), 0, radius) || "");
  if (style.backgroundImage === "none") return;
  const sizes = split(style.backgroundSize), places = split(style.backgroundPosition);
  split(style.backgroundImage).forEach((layer, k) => {
    const [, kind, inside] = /^(linear|radial)-gradient\((.*)\)$/s.exec(layer) || [];
    if (!kind) return;
    const stops = split(inside).filter((part) => /^(rgb|color|#)/.test(part)),
      shade = stops[0]?.replace(/\)\s+[-\d.].*$/, ")");
    if (!shade) return;
    if (kind === "radial")
      return void into.append(
        s("circle", { cx: at.x(rect.left + rect.width / 2), cy: at.y(rect.top + rect.height / 2),
          r: parseFloat(/([\d.]+)px$/.exec(stops[1] || stops[0])?.[1]) || 1, ...colourProps("fill", shade) })
      );
    const [w = "100%", t = "100%"] = sizes[k % sizes.length].split(/\s+(?![^(]*\))/),
      [x = "0%", y = "0%"] = places[k % places.length].split(/\s+(?![^(]*\))/);
    const width = w === "auto" ? rect.width : length(w, rect.width),
      height = t === "auto" ? rect.height : length(t, rect.height);
    into.append(
      box(at, { left: rect.left + length(x, rect.width - width), top: rect.top + length(y, rect.height - height), width,
        height }, colourProps("fill", shade)) || ""
    );
  });
}
/** Its border and outline. */
export function edges(at, node, style, rect, into) {
  const sides = ["Top", "Right", "Bottom", "Left"].map((side) => ({
    width: style[`border${side}Style`] === "none" ? 0 : parseFloat(style[`border${side}Width`]),
    shade: style[`border${side}Color`],
    double: style[`border${side}Style`] === "double",
  }));
  const [top, right, bottom, left] = sides, radius = parseFloat(style.borderTopLeftRadius) || 0;
  if (top.width && sides.every((x) => x.width === top.width && x.shade === top.shade))
    into.append(
      box(at, rect, { fill: "none", ...colourProps("stroke", top.shade), "stroke-width": top.width }, -top.width / 2,
        Math.max(0, radius - top.width / 2)) || ""
    );
  else {
    const bar = (one, x, y, width, height) =>
      one.width && colour(one.shade).alpha
      && into.append(box(at, { left: x, top: y, width, height }, colourProps("fill", one.shade)) || "");
    bar(top, rect.left, rect.top, rect.width, top.width);
    bar(left, rect.left, rect.top, left.width, rect.height);
    bar(right, rect.right - right.width, rect.top, right.width, rect.height);
    if (bottom.double) {
      for (const y of [0, bottom.width * 0.7])
        bar(bottom, rect.left, rect.bottom - bottom.width + y, rect.width, bottom.width * 0.3);
    } else bar(bottom, rect.left, rect.bottom - bottom.width, rect.width, bottom.width);
  }
  const outline = style.outlineStyle === "solid" && !node.matches(":focus-visible") ? parseFloat(style.outlineWidth)
    : 0;
  if (outline)
    into.append(
      box(at, rect, { fill: "none", ...colourProps("stroke", style.outlineColor), "stroke-width": outline },
        parseFloat(style.outlineOffset) + outline / 2, radius) || ""
    );
}
/** A mark that the sheet puts before an element: a rectangle at a known place. */
export function before(at, node, rect, into) {
  const style = getComputedStyle(node, "::before");
  if (style.content === "none" || style.position !== "absolute" || !colour(style.backgroundColor).alpha) return;
  into.append(
    box(at, { left: rect.left + parseFloat(style.left), top: rect.top + parseFloat(style.top),
      width: parseFloat(style.width), height: parseFloat(style.height) }, colourProps("fill", style.backgroundColor))
      || ""
  );
}
