/* picture: what is seen of an element, as one SVG that needs nothing beside it, and as PNG. Shapes and text are written
 * anew with their computed styles: no class, no script, no markup of what a model said, no address of
 * anything outside. */
import { s } from "./scope.js";

const PAD = 16; // px of ground around it
const LARGEST = 8192; // px of a side of a PNG
const LEFT_OUT = "button, input, select, textarea, dialog, script, style, .aloud, .unseen, .veil, .tip";
const KEPT = ".beams button";
const SHAPES = new Set(["g", "path", "circle", "ellipse", "rect", "line", "polygon", "polyline", "text", "tspan", "svg",
  "clipPath", "defs"]);
const PLACES = ["d", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "rx", "ry", "dx", "dy", "width", "height",
  "points", "transform", "viewBox", "id", "clip-path"];
const PAINT = ["fill", "stroke"], LINE = ["stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin"],
  TYPE = ["font-family", "font-size", "font-weight", "font-style", "letter-spacing"];

const spot = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const known = new Map();
/** A computed colour, also a mixed one, as {hex, alpha}. */
function colour(text) {
  if (!known.has(text)) {
    spot.clearRect(0, 0, 1, 1);
    spot.fillStyle = "#000";
    spot.fillStyle = text;
    spot.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = spot.getImageData(0, 0, 1, 1).data;
    known.set(text, { hex: "#" + [r, g, b].map((x) => x.toString(16).padStart(2, "0")).join(""), alpha: a / 255 });
  }
  return known.get(text);
}
const painted = (name, text) => {
  if (text === "none") return { [name]: "none" };
  const { hex, alpha } = colour(text);
  return { [name]: hex, ...(alpha < 1 ? { [name + "-opacity"]: +alpha.toFixed(3) } : {}) };
};
/** Text that may stand in XML: what may not is replaced by its sign. */
const ODD = /[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]/g;
const HALF = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g; // of a pair
const clean = (text) => text.replace(ODD, "\ufffd").replace(HALF, "\ufffd");
const round = (x) => +x.toFixed(2);

/** Split at commas that stand in no bracket. */
function split(text) {
  const parts = [""];
  let deep = 0;
  for (const char of text) {
    deep += char === "(" ? 1 : char === ")" ? -1 : 0;
    if (char === "," && !deep) parts.push("");
    else parts[parts.length - 1] += char;
  }
  return parts.map((part) => part.trim());
}
/** A computed length: px, a share of `whole`, or their sum. */
function length(text, whole) {
  const share = /(-?[\d.]+)%/.exec(text), px = /([+-]\s*)?(-?[\d.]+)px/.exec(text);
  return (share ? (Number(share[1]) / 100) * whole : 0)
    + (px ? Number(px[2]) * ((px[1] || "").trim() === "-" ? -1 : 1) : 0);
}

/** The SVG of what is seen of `element`. title: what it is, in words. */
export function picture(element, title) {
  const frame = element.getBoundingClientRect(), wide = Math.ceil(frame.width) + 2 * PAD,
    high = Math.ceil(frame.height) + 2 * PAD;
  const svg = s("svg", { width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, role: "img" },
    s("title", null, clean(title)));
  const atX = (x) => round(x - frame.left + PAD), atY = (y) => round(y - frame.top + PAD);
  let clips = 0;
  svg.append(s("rect", { width: wide, height: high, ...painted("fill", ground(element)) }));

  function box(rect, props, grow = 0, radius = 0) {
    if (rect.width + 2 * grow <= 0 || rect.height + 2 * grow <= 0) return null;
    return s("rect", { x: atX(rect.left - grow), y: atY(rect.top - grow), width: round(rect.width + 2 * grow),
      height: round(rect.height + 2 * grow), rx: radius ? round(radius) : null, ...props });
  }
  function grounds(style, rect, into) {
    const radius = Math.min(parseFloat(style.borderTopLeftRadius) || 0, rect.height / 2);
    if (colour(style.backgroundColor).alpha)
      into.append(box(rect, painted("fill", style.backgroundColor), 0, radius) || "");
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
          s("circle", { cx: atX(rect.left + rect.width / 2), cy: atY(rect.top + rect.height / 2),
            r: parseFloat(/([\d.]+)px$/.exec(stops[1] || stops[0])?.[1]) || 1, ...painted("fill", shade) })
        );
      const [w = "100%", t = "100%"] = sizes[k % sizes.length].split(/\s+(?![^(]*\))/),
        [x = "0%", y = "0%"] = places[k % places.length].split(/\s+(?![^(]*\))/);
      const width = w === "auto" ? rect.width : length(w, rect.width),
        height = t === "auto" ? rect.height : length(t, rect.height);
      into.append(
        box({ left: rect.left + length(x, rect.width - width), top: rect.top + length(y, rect.height - height), width,
          height }, painted("fill", shade)) || ""
      );
    });
  }
  function edges(node, style, rect, into) {
    const sides = ["Top", "Right", "Bottom", "Left"].map((side) => ({
      width: style[`border${side}Style`] === "none" ? 0 : parseFloat(style[`border${side}Width`]),
      shade: style[`border${side}Color`],
      double: style[`border${side}Style`] === "double",
    }));
    const [top, right, bottom, left] = sides, radius = parseFloat(style.borderTopLeftRadius) || 0;
    if (top.width && sides.every((x) => x.width === top.width && x.shade === top.shade))
      into.append(
        box(rect, { fill: "none", ...painted("stroke", top.shade), "stroke-width": top.width }, -top.width / 2,
          Math.max(0, radius - top.width / 2)) || ""
      );
    else {
      const bar = (one, x, y, width, height) =>
        one.width && colour(one.shade).alpha
        && into.append(box({ left: x, top: y, width, height }, painted("fill", one.shade)) || "");
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
        box(rect, { fill: "none", ...painted("stroke", style.outlineColor), "stroke-width": outline },
          parseFloat(style.outlineOffset) + outline / 2, radius) || ""
      );
  }
  /** A mark that the sheet puts before an element: a rectangle in a known place. */
  function before(node, rect, into) {
    const style = getComputedStyle(node, "::before");
    if (style.content === "none" || style.position !== "absolute" || !colour(style.backgroundColor).alpha) return;
    into.append(
      box({ left: rect.left + parseFloat(style.left), top: rect.top + parseFloat(style.top),
        width: parseFloat(style.width), height: parseFloat(style.height) }, painted("fill", style.backgroundColor))
        || ""
    );
  }
  /** The lines of a text, each where it is seen. */
  function lines(node, into) {
    const style = getComputedStyle(node.parentElement), range = document.createRange(),
      wrote = /pre/.test(style.whiteSpace) || /preserve/.test(style.whiteSpaceCollapse);
    range.selectNodeContents(node);
    const rects = [...range.getClientRects()].filter((rect) => rect.width);
    if (!rects.length || !node.data.trim()) return;
    const rows = [],
      gone = (from) => (range.setStart(node, from), range.setEnd(node, from + 1), !range.getBoundingClientRect().width);
    if (rects.length === 1) {
      // white space at an end is seen or not: that depends on what stands beside the text
      const text = wrote ? node.data
        : node.data.replace(/^\s+/, gone(0) ? "" : " ").replace(/\s+$/, gone(node.data.length - 1) ? "" : " ");
      rows.push({ rect: rects[0], text });
    } else {
      let i = 0;
      for (const char of node.data) {
        range.setStart(node, i), range.setEnd(node, i += char.length);
        const rect = range.getBoundingClientRect(), last = rows.at(-1);
        if (!rect.width) continue; // collapsed
        if (last && Math.abs(last.rect.top - rect.top) < rect.height / 2) {
          last.text += char;
          last.rect = { left: Math.min(last.rect.left, rect.left), right: Math.max(last.rect.right, rect.right),
            top: last.rect.top, height: last.rect.height };
        } else rows.push({ rect: { left: rect.left, right: rect.right, top: rect.top, height: rect.height },
            text: char });
      }
    }
    spot.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    const { fontBoundingBoxAscent: up, fontBoundingBoxDescent: down } = spot.measureText("x");
    for (const { rect, text } of rows) {
      const said = clean(wrote ? text.replace(/[\r\n]/g, "") : text.replace(/\s+/g, " ")),
        width = rect.right - rect.left;
      if (!said.trim()) continue;
      const one = s("text", { x: atX(rect.left), y: atY(rect.top + (rect.height * up) / (up + down)),
        textLength: [...said].length > 1 ? round(width) : null,
        lengthAdjust: [...said].length > 1 ? "spacingAndGlyphs" : null, ...painted("fill", style.color),
        ...type(style) }, said);
      one.setAttributeNS("http://www.w3.org/XML/1998/namespace", "xml:space", "preserve");
      into.append(one);
    }
  }
  const type = (style) =>
    Object.fromEntries(
      TYPE.map((name) => [name, style.getPropertyValue(name)]).filter(([, value]) => value && value !== "normal")
    );
  /** A drawing of the page, copied shape by shape. */
  function copied(node) {
    const style = getComputedStyle(node), name = node.localName;
    if (!SHAPES.has(name) || style.display === "none" || style.visibility === "hidden") return null;
    const copy = s(name,
      Object.fromEntries(PLACES.filter((x) => node.hasAttribute(x)).map((x) => [x, node.getAttribute(x)])));
    if (name !== "g" && name !== "svg" && name !== "defs" && name !== "clipPath") {
      for (const paint of PAINT)
        for (const [key, value] of Object.entries(painted(paint, style.getPropertyValue(paint))))
          copy.setAttribute(key, value);
      if (style.stroke !== "none") {
        for (const line of LINE)
          if (!/^(none|butt|miter)$/.test(style.getPropertyValue(line)))
            copy.setAttribute(line, style.getPropertyValue(line).replaceAll("px", ""));
      }
      if (/^t(ext|span)$/.test(name)) {
        for (const [key, value] of Object.entries({ ...type(style), "text-anchor": style.textAnchor }))
          copy.setAttribute(key, value);
        copy.setAttributeNS("http://www.w3.org/XML/1998/namespace", "xml:space", "preserve");
      }
    }
    if (Number(style.opacity) < 1) copy.setAttribute("opacity", style.opacity);
    for (const kid of node.childNodes) {
      const one = kid.nodeType === Node.TEXT_NODE
        ? (/^t(ext|span)$/.test(name) ? document.createTextNode(clean(kid.data)) : null)
        : kid.nodeType === Node.ELEMENT_NODE ? copied(kid) : null;
      if (one) copy.append(one);
    }
    return copy;
  }
  function walk(node, into) {
    if (node.nodeType === Node.TEXT_NODE) return lines(node, into);
    if (node.nodeType !== Node.ELEMENT_NODE || (node.matches(LEFT_OUT) && !node.matches(KEPT))) return;
    const style = getComputedStyle(node),
      rects = [...node.getClientRects()].filter((rect) => rect.width || rect.height);
    if (style.display === "none" || style.visibility === "hidden" || (!rects.length && style.display !== "contents"))
      return;
    const rect = node.getBoundingClientRect();
    let inside = into;
    if (Number(style.opacity) < 1) into.append(inside = s("g", { opacity: style.opacity }));
    if (node instanceof SVGSVGElement) {
      const copy = copied(node);
      for (const [key, value] of Object.entries({ x: atX(rect.left), y: atY(rect.top), width: round(rect.width),
        height: round(rect.height), overflow: "visible" })) copy.setAttribute(key, value);
      return void inside.append(copy);
    }
    if (node instanceof HTMLCanvasElement) {
      if (node.width && node.height)
        inside.append(
          s("image", { x: atX(rect.left), y: atY(rect.top), width: round(rect.width), height: round(rect.height),
            href: node.toDataURL("image/png") })
        );
      return;
    }
    for (const one of rects) grounds(style, one, inside), edges(node, style, one, inside);
    before(node, rect, inside);
    if (style.overflowX !== "visible" || style.overflowY !== "visible") {
      const id = `seen-${++clips}`;
      inside.append(s("clipPath", { id }, box(rect, {}) || ""), inside = s("g", { "clip-path": `url(#${id})` }));
    }
    for (const kid of node.childNodes) walk(kid, inside);
  }
  walk(element, svg);
  return svg;
}

/** The ground that an element stands on. */
function ground(element) {
  for (let one = element; one; one = one.parentElement)
    if (colour(getComputedStyle(one).backgroundColor).alpha === 1) return getComputedStyle(one).backgroundColor;
  return "#fff";
}

/** An SVG as the text of a file. */
export const written = (svg) =>
  '<?xml version="1.0" encoding="UTF-8"?>\n' + new XMLSerializer().serializeToString(svg) + "\n";

/** An SVG as PNG, `scale` times as large. */
export async function png(svg, scale = 2) {
  const [width, height] = ["width", "height"].map((name) => Number(svg.getAttribute(name))),
    by = Math.min(scale, LARGEST / Math.max(width, height));
  const image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(written(svg));
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
