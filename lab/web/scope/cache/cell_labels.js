/* Cell labels: words around the cells of the cache's map: ticks, rows, parts of the text, and the most prominent
 * columns. */
import { plural } from "../shared/numbers.js";
import { visibleText } from "../shared/tokens.js";

/** The content of each column, as ticks above. */
export function ticks(pen, { left, top, room, columns }, score, c) {
  const peak = Math.max(1e-9, ...score);
  pen.fillStyle = c.faint;
  for (let q = 0; q < columns; q++) {
    const tick = score[q] ? Math.max(1, 10 * (score[q] / peak)) : 0;
    if (tick) pen.fillRect(left + (q * room) / columns, top - 2 - tick, Math.max(1, room / columns - 1), tick);
  }
}

/** Left: layers, or the one enlarged row; below: the zones: [from, to, words, fewer words]. */
export function rowsAndZones(pen, { length, left, room, bin, columns, rows, one, tall, lines, end }, heads, zones, c) {
  pen.fillStyle = c.muted;
  pen.font = c.sans;
  pen.textBaseline = "middle";
  const every = Math.max(1, Math.ceil(12 / ((tall + 1) * heads + 2)));
  rows.forEach((k, n) => {
    if (one) pen.fillText(`L${Math.floor(k / heads)}.${k % heads}`, 0, lines[n] + tall / 2);
    else if (k % heads === 0 && (k / heads) % every === 0)
      pen.fillText(`L${k / heads}`, 0, lines[n] + ((tall + 1) * heads) / 2);
  });
  for (const [from, to, word, brief] of zones) {
    const x0 = left + (from / bin / columns) * room + 1,
      x1 = left + (Math.min(to, length) / bin / columns) * room - 1;
    pen.strokeStyle = c.faint;
    pen.strokeRect(x0, end + 3, Math.max(0, x1 - x0), 0);
    const text = pen.measureText(word).width <= x1 - x0 ? word : brief;
    if (pen.measureText(text).width <= x1 - x0 + 8)
      pen.fillText(text, (x0 + x1 - pen.measureText(text).width) / 2, end + 14);
  }
}

/** Texts over the columns from left to right, without overlap; score: only over the most prominent ones. */
export function columnWords(pen, { left, right, room, bin, columns }, texts, score, c) {
  pen.fillStyle = c.ink;
  pen.font = c.mono;
  const bound = score && [...score].sort((a, b) => b - a)[Math.min(columns - 1, 40)];
  let free = left;
  for (let q = 0; q < columns; q++) {
    const x = left + (q * room) / columns;
    if (!/[\p{L}\p{N}]{2}/u.test(String(texts(q * bin))) || x < free || (score && score[q] < bound)) continue;
    const text = visibleText(texts(q * bin)).slice(0, 12).replace(/^␣/, "");
    if (x + pen.measureText(text).width > right) break;
    pen.fillText(text, x, 8);
    free = x + pen.measureText(text).width + (score ? 14 : 60);
  }
}

/** Describe a column of these rows at step i, in words. */
export function columnText({ bin, length, rows }, column, store, i) {
  const { map } = store, { at, text, block } = store.columns(i), seen = store.seenAt(i);
  const from = column * bin, to = Math.min(length, from + bin) - 1,
    words = block && from >= block[0] ? "right of the block" : visibleText(text(from));
  let kept = 0, all = 0, read = 0, absent = 0;
  for (const k of rows)
    for (let p = from; p <= to; p++) {
      all++;
      const left = map.left(k, p, i);
      if (left > i) (kept++, seen?.(k, p) && read++);
      else if (left < -1) absent++;
    }
  const lost = absent ? "absent" : map.went, where = all === 1 ? (kept ? "kept" : lost)
    : kept === all ? `kept in all ${plural(rows.length, "row")}`
    : kept === 0 && all === (absent || all) ? `${lost} everywhere`
    : `kept in ${kept} of ${all} ${bin === 1 ? "rows" : "entries"}${absent ? `, absent in ${absent}` : ""}`;
  return `${bin === 1 ? `position ${at(from)}, ${words}` : `positions ${at(from)} to ${at(to)}, ${words} …`}: ${where}`
    + (seen && kept ? `, ${read === kept ? "read" : read ? `${read} of them read` : "not read"} in this step` : "");
}
