/* Cells: the positions of the cache map's cells, and their pixels. */
import { inks, rgb } from "../shared/elements.js";

/** The colours of the map, at the place of `element`. */
export function mapInks(element) {
  const all = inks(element, "mass-low", "mass-high", "gone", "ink", "bg", "muted", "branch", "target"),
    of = (name) => all[name];
  /** @param {number[]} colour */
  const pixel = ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r;
  const low = rgb(of("mass-low")), high = rgb(of("mass-high"));
  const ramp = Uint32Array.from({ length: 256 },
    (_, k) => pixel(low.map((x, c) => Math.round(x + ((high[c] - x) * k) / 255))));
  return { gone: pixel(rgb(of("gone"))) >>> 0, now: pixel(rgb(of("ink"))) >>> 0, bg: pixel(rgb(of("bg"))) >>> 0, ramp,
    muted: of("muted"), faint: of("branch"), ink: of("ink"), mono: of("mono"), sans: of("less"), all };
}

/** The rows that are shown: all, or the one that is enlarged. */
export const rowsOf = (map, row) => (row === null ? [...Array(map.rows).keys()] : [Math.min(row, map.rows - 1)]);

/** The grid of the map of step i in `wide` px: `bin` positions are a column, lines[n] is the top of rows[n]; row: the
 *  one that is enlarged, or null. */
export function cellsOf(map, i, wide, row) {
  const length = map.length(i), right = Math.max(160, Math.floor(wide)), left = 34, full = right - left,
    most = Math.min(450, Math.max(40, Math.floor(full / 2)));
  const bin = Math.max(1, Math.ceil(length / most)), columns = Math.max(1, Math.ceil(length / bin)),
    rows = rowsOf(map, row);
  const tall = row !== null ? 40 : map.rows > 64 ? 3 : map.rows > 32 ? 4 : 7, top = 30, lines = [];
  let y = top;
  rows.forEach((k, n) => {
    if (n && k % map.heads === 0) y += 2;
    lines.push(y);
    y += tall + 1;
  });
  return { length, left, right, room: Math.min(full, columns * 14), bin, columns, rows, one: row !== null, tall, top,
    lines, end: y };
}

/** The remaining strength of an entry that was not read, as on the Cache tab. */
const UNREAD = 0.1;

/** Paint the cells; for each column score: how much it holds in all rows, recent: how much was evicted in this
 *  step. mass: the recorded attention, or null; seen: whether an entry was read, or null if all were. */
export function paintCells(pen, { length, left, room, bin, columns, rows, tall, lines }, map, i, mass, seen, c) {
  const { width: across, height } = pen.canvas, ratio = window.devicePixelRatio || 1,
    image = pen.createImageData(across, height), data = new Uint32Array(image.data.buffer);
  data.fill(c.bg);
  const edges = Array.from({ length: columns + 1 }, (_, k) => Math.round((left + (k * room) / columns) * ratio)),
    gap = room / columns >= 4 ? Math.max(1, Math.round(ratio * 0.75)) : 0;
  const score = new Float64Array(columns), recent = new Int32Array(columns), plain = !mass && !seen && !map.any(i);
  rows.forEach((k, n) => {
    const y0 = Math.round(lines[n] * ratio), y1 = Math.round((lines[n] + tall) * ratio), line = (y1 - 1) * across,
      odd = [];
    // the lowest line of pixels is written and copied upwards; columns that differ from top to bottom are corrected
    // after that
    for (let q = 0; q < columns; q++) {
      const from = q * bin, to = Math.min(length, from + bin), all = Math.max(1, to - from);
      let kept = plain ? to - from : 0, now = 0, most = plain ? 0.62 : 0;
      for (let p = plain ? to : from; p < to; p++) {
        const gone = map.left(k, p, i);
        if (gone > i) {
          kept++;
          const worth = mass ? (mass[k * mass.width + ((p / mass.long) | 0)] - 1) / 254 : 0.62;
          const unread = seen && !seen(k, p);
          most = Math.max(most, unread ? worth * UNREAD : worth);
        } else if (gone === i) now++;
      }
      score[q] += mass ? most : kept / all;
      recent[q] += now;
      const shade = c.ramp[Math.round(255 * Math.min(1, most))], x0 = edges[q],
        x1 = Math.max(x0 + 1, edges[q + 1] - gap);
      data.fill(kept ? shade : c.gone, line + x0, line + x1);
      if (now || (kept && kept < all)) odd.push({ x0, x1, part: kept / all, now });
    }
    for (let yy = y0; yy < y1 - 1; yy++) data.copyWithin(yy * across, line, line + across);
    for (const { x0, x1, part, now } of odd) {
      // a column of several positions shows the strongest, as high as the kept share; a single kept position, or
      // a single evicted one, gets at least one line
      const filled = part === 1 ? y1 - y0
        : part ? Math.min(y1 - y0 - 1, Math.max(1, Math.round((y1 - y0) * part))) : 0;
      if (part) { for (let yy = y0; yy < y1 - filled; yy++) data.fill(c.gone, yy * across + x0, yy * across + x1); }
      if (now) {
        for (const yy of [y0, y1 - 1]) data.fill(c.now, yy * across + x0, yy * across + x1);
        for (let yy = y0; yy < y1; yy++) data[yy * across + x0] = data[yy * across + x1 - 1] = c.now;
      }
    }
  });
  pen.putImageData(image, 0, 0);
  return { score, recent };
}
