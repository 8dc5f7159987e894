/* grids: pictures of rows and columns on a canvas: the map of the cache, the life of one entry, the rows
 * of attention. */
import { rgb } from "../scope.js";

const RAMP = 64; // shades from the weakest to the strongest

/** The colours of the sheet as they are now. */
export function gridColours(element) {
  const style = getComputedStyle(element), of = (name) => style.getPropertyValue("--" + name).trim();
  const low = rgb(of("mass-low")), high = rgb(of("mass-high"));
  const ramp = [...Array(RAMP).keys()].map((k) =>
    `rgb(${low.map((x, c) => Math.round(x + ((high[c] - x) * k) / (RAMP - 1))).join(" ")})`
  );
  return { ramp, gone: of("gone"), line: of("edge"), ink: of("ink"), muted: of("muted"), bg: of("bg"), ring: of("ring"),
    "mass-low": of("mass-low"), "mass-high": of("mass-high"), part: of("target"), mark: of("reject"),
    size: parseFloat(of("t-xs")), sans: `${of("t-xs")} ${of("sans")}`,
    mono: `${of("t-xs")} ${of("mono")}` };
}

/** Draw `rows` × `columns` cells and return their positions: {left, room, columns, rows, lines, tall, at(event)}.
 *
 *  cell(row, column) -> [share, strength, now]: how much of the cell is filled from below, how strongly, whether it
 *  is framed
 *  group: rows that belong together;  label(row): the label before a row, or nothing;  left: px for it
 *  most: px of a column;  tall: px of a row;  over: [column, text] to be named above
 *  marks(pen, cells): draws over the cells, `below` px below them included
 *  marked(column): whether a triangle is drawn below;  cursor: {row, column} or null */
export function grid(canvas, colours,
  { wide, rows, columns, cell, group = rows, label, left = 34, most = 14, over = [], marks = null, below = 0,
    marked = null, cursor = null, tall }) {
  const ratio = window.devicePixelRatio || 1, top = over.length ? 18 : 4, lines = [];
  const gap = tall > 4 ? 1 : 0, between = group < rows ? 3 : 0;
  for (let row = 0, y = top; row < rows; row++) lines.push(y), (y += tall + gap + ((row + 1) % group ? 0 : between));
  const bottom = (lines.at(-1) ?? top) + tall, high = bottom + below + (marked ? 12 : 4),
    room = Math.max(1, Math.min(wide - left - 1, columns * most));
  const pixels = [Math.max(1, Math.round(wide * ratio)), Math.round(high * ratio)];
  if (canvas.width !== pixels[0] || canvas.height !== pixels[1]) [canvas.width, canvas.height] = pixels;
  canvas.style.height = high + "px";
  const pen = canvas.getContext("2d"), edge = (k) => Math.round((left + (k * room) / columns) * ratio) / ratio;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, wide, high);
  const each = room / columns, inset = each >= 4 ? 1 : 0, framed = [];
  for (let row = 0; row < rows; row++) {
    pen.fillStyle = colours.gone;
    pen.fillRect(left, lines[row], room, tall);
    for (let column = 0; column < columns; column++) {
      const [share, strength, now] = cell(row, column);
      const x = edge(column), w = Math.max(1 / ratio, edge(column + 1) - x - inset);
      if (share > 0) {
        const filled = share >= 1 ? tall : Math.max(1, Math.min(tall - 1, Math.round(tall * share)));
        pen.fillStyle = colours.ramp[Math.round((RAMP - 1) * Math.max(0, Math.min(1, strength)))];
        pen.fillRect(x, lines[row] + tall - filled, w, filled);
      }
      if (now) framed.push([x, lines[row], w]);
    }
  }
  marks?.(pen, { left, room, columns, rows, lines, tall, end: bottom });
  pen.strokeStyle = colours.ink;
  pen.lineWidth = 1;
  for (const [x, y, w] of framed) {
    if (w >= 3) pen.strokeRect(x + 0.5, y + 0.5, w - 1, tall - 1);
    else (pen.fillStyle = colours.ink), pen.fillRect(x, y, Math.max(1, w), tall);
  }
  pen.textBaseline = "middle";
  pen.font = colours.sans;
  pen.fillStyle = colours.muted;
  let free = -Infinity;
  for (let row = 0; row < rows; row++) {
    const text = label?.(row);
    if (!text || lines[row] < free) continue;
    pen.fillText(text, 0, lines[row] + tall / 2, left - 6);
    free = lines[row] + colours.size + 1;
  }
  pen.fillStyle = colours.ink;
  pen.font = colours.mono;
  let behind = 0;
  for (const [column, text] of over) {
    const x = edge(column), long = pen.measureText(text).width;
    if (x < behind || x + long > wide) continue;
    pen.fillText(text, x, 7);
    behind = x + long + 10;
  }
  if (marked) {
    pen.fillStyle = colours.mark;
    for (let column = 0; column < columns; column++) {
      if (!marked(column)) continue;
      const x = (edge(column) + edge(column + 1) - inset) / 2;
      const y = bottom + below;
      pen.beginPath(), pen.moveTo(x, y + 2), pen.lineTo(x + 4, y + 9), pen.lineTo(x - 4, y + 9), pen.fill();
    }
  }
  if (cursor && cursor.column < columns) {
    const x = edge(cursor.column), w = Math.max(3, edge(cursor.column + 1) - x - inset);
    pen.strokeStyle = colours.bg;
    pen.lineWidth = 4;
    pen.strokeRect(x - 1, (lines[cursor.row] ?? top) - 1, w + 2, tall + 2);
    pen.strokeStyle = colours.ring;
    pen.lineWidth = 2;
    pen.strokeRect(x - 1, (lines[cursor.row] ?? top) - 1, w + 2, tall + 2);
  }
  const at = (event) => {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const row = lines.findIndex((line) => y < line + tall + gap + 2);
    return { column: Math.max(0, Math.min(columns - 1, Math.floor(((x - left) / room) * columns))),
      row: row < 0 ? rows - 1 : row, inside: x >= left && x <= left + room && y >= top && y <= bottom };
  };
  return { left, room, columns, rows, lines, tall, at };
}

/** Bytes that came as base64. */
export const unpackBytes = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
