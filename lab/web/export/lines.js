/* lines: the lines of a text, each at its visible place. at, into: as in boxes. */
import { s } from "../scope.js";
import { clean, keep, colourProps, round, spot, type } from "./paint.js";

/** The rows of a text as {rect, text}. rects: its visible places; wrote: white space is shown as written. */
function rowsOf(node, range, rects, wrote) {
  const rows = [],
    gone = (from) => (range.setStart(node, from), range.setEnd(node, from + 1), !range.getBoundingClientRect().width);
  if (rects.length === 1) {
    // white space at an end is visible or not: that depends on the text next to it
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
  return rows;
}

/** The lines of a text, each at its visible place. */
export function lines(at, node, into) {
  const style = getComputedStyle(node.parentElement), range = document.createRange(),
    wrote = /pre/.test(style.whiteSpace) || /preserve/.test(style.whiteSpaceCollapse);
  range.selectNodeContents(node);
  const rects = [...range.getClientRects()].filter((rect) => rect.width);
  if (!rects.length || !node.data.trim()) return;
  const rows = rowsOf(node, range, rects, wrote);
  spot.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  const { fontBoundingBoxAscent: up, fontBoundingBoxDescent: down } = spot.measureText("x");
  for (const { rect, text } of rows) {
    const said = clean(wrote ? text.replace(/[\r\n]/g, "") : text.replace(/\s+/g, " ")),
      width = rect.right - rect.left;
    if (!said.trim()) continue;
    const one = s("text", { x: at.x(rect.left), y: at.y(rect.top + (rect.height * up) / (up + down)),
      textLength: [...said].length > 1 ? round(width) : null,
      lengthAdjust: [...said].length > 1 ? "spacingAndGlyphs" : null, ...colourProps("fill", style.color),
      ...type(style) }, said);
    keep(one);
    into.append(one);
  }
}
