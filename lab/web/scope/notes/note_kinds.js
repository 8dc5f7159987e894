/* Note kinds: each kind of note lays out its values over the steps, and paints them on a canvas. */
import { formatTime } from "../shared/numbers.js";
import { wordOf } from "./note_text.js";
import { layTrack, paintTrack, trackAxis } from "./track.js";

export const LEFT = 76; // px left of a plot
const PX = { tall: 40, row: 11, gap: 2, lane: 18 }; // a plot, a row, the space between two, a clock
const MOST_ROWS = 12; // of a set or a grid; the others are counted

/** An axis of `count` steps over `wide` px, in bins of a pixel or more: each(values, act) calls act(bin, value)
 *  for every value; x(bin) is where a bin begins, at(i) the place and width of a step, step(px) the step there.
 *  With many steps the axis grows by `grain` at once. */
export function axisOf(count, wide) {
  const grain = 2 ** Math.max(0, Math.floor(Math.log2(count / wide))), span = Math.ceil(count / grain) * grain;
  const bins = Math.max(1, Math.min(span, Math.floor(wide))), share = bins / span;
  return {
    grain,
    key: span,
    span,
    bins,
    at: (i) => [LEFT + (i * wide) / span, Math.max(2, wide / span)],
    step: (px) => Math.floor((Math.max(0, px - LEFT) / wide) * span),
    x: (bin) => LEFT + (bin * wide) / bins,
    each: (values, act) => values.forEach((x, k) => act(Math.floor(k * share), x)),
  };
}

/** The least and the largest of numbers: each(take) passes them. */
function extent(each) {
  let low = Infinity, high = -Infinity;
  each((x) => ((low = Math.min(low, x)), (high = Math.max(high, x))));
  return [low, high];
}

/** A word left of a row, shortened to the available room. */
function beside(pen, ink, text, y) {
  let shown = text;
  while (pen.measureText(shown).width > LEFT - 10 && shown.length > 2) shown = shown.slice(0, -2) + "…";
  pen.fillStyle = ink.muted;
  pen.textAlign = "right";
  pen.fillText(shown, LEFT - 8, y);
}

/** A scale from the bottom of a plot to its top, its ends written at the left. */
function scale(pen, ink, [low, high], tall) {
  const flat = !(high > low), pad = 5;
  if (flat) beside(pen, ink, wordOf(low), tall / 2 + 4);
  else beside(pen, ink, wordOf(high), pad + 6), beside(pen, ink, wordOf(low), tall - 1);
  return (x) => (flat ? tall / 2 : tall - pad - ((x - low) / (high - low)) * (tall - 2 * pad));
}

/** Stretches of neighbours with one value that is not nothing: act(from, to, value). */
function stretches(list, act) {
  for (let from = 0, to; from < list.length; from = to) {
    for (to = from + 1; to < list.length && list[to] === list[from]; to++);
    if (list[from]) act(from, to, list[from]);
  }
}

/** A line that keeps its value for a step; of several in one bin it passes through the least and the largest. */
function stairs(pen, axis, values, y) {
  const bins = Array(axis.bins).fill(null);
  axis.each(values, (bin, x) => {
    const held = (bins[bin] ??= { first: x, low: x, high: x, last: x });
    Object.assign(held, { low: Math.min(held.low, x), high: Math.max(held.high, x), last: x });
  });
  pen.beginPath();
  bins.forEach((held, bin) => {
    if (!held) return;
    const from = axis.x(bin), to = axis.x(bin + 1), half = (from + to) / 2;
    if (bins[bin - 1]) pen.lineTo(from, y(held.first));
    else pen.moveTo(from, y(held.first));
    if (held.low < held.high) pen.lineTo(half, y(held.high)), pen.lineTo(half, y(held.low));
    pen.lineTo(to, y(held.last));
  });
  pen.stroke();
}

/** Rows of blocks: [[word, bins in which it is on], ...]. */
function blocks(pen, ink, axis, rows) {
  rows.forEach(([word, on], k) => {
    const y = PX.gap + k * (PX.row + PX.gap);
    beside(pen, ink, word, y + PX.row - 1);
    pen.fillStyle = ink.line;
    pen.fillRect(LEFT, y + PX.row / 2, axis.x(axis.bins) - LEFT, 1);
    pen.fillStyle = ink["time-3"];
    stretches(on, (from, to) => pen.fillRect(axis.x(from), y, axis.x(to) - axis.x(from), PX.row));
  });
}
const rowsTall = (count) => count * (PX.row + PX.gap) + PX.gap;

/** The members of sets: those in most steps, in their order, and how many more there are. A member is identified
 *  by its token, or by its text. */
const keyOf = (x) => (typeof x !== "object" ? x : x.token ?? wordOf(x));
function members(values) {
  const counts = new Map(), words = new Map();
  values.forEach((list) => list.forEach((x) => {
    const key = keyOf(x);
    counts.set(key, (counts.get(key) ?? 0) + 1);
    if (!words.has(key)) words.set(key, wordOf(x));
  }));
  const often = new Set([...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a)).slice(0, MOST_ROWS));
  const rows = [...words].filter(([key]) => often.has(key));
  if (rows.every(([, word]) => !isNaN(word))) rows.sort(([, a], [, b]) => a - b);
  return { rows, more: counts.size - rows.length };
}

/** Kind -> lay(columns), its picture: tall, and `said` in words; paint(pen, ink, axis, columns, laid), and its own
 *  `axis` if it is not that of the steps. A column has the note and the values by step; for a series the second
 *  one is its reference. */
export const NOTE_KINDS = {
  track: {
    lay: layTrack,
    axis: (laid, wide, i) => trackAxis(laid, wide, LEFT, i),
    paint: (pen, ink, axis, columns, laid) => paintTrack(pen, ink, axis, laid, beside),
  },
  series: {
    lay([{ note, values }, other]) {
      if (values.every((x) => typeof x === "boolean")) return { truth: true, tall: rowsTall(1) };
      const lists = [values, other?.values ?? [], typeof note.at === "number" ? [note.at] : []];
      return { tall: PX.tall, range: extent((take) => lists.forEach((list) => list.forEach((x) => take(x)))) };
    },
    paint(pen, ink, axis, [{ note, values }, other], { truth, tall, range }) {
      if (truth) {
        const on = new Uint8Array(axis.bins);
        axis.each(values, (bin, x) => (on[bin] |= x));
        return blocks(pen, ink, axis, [["yes", on]]);
      }
      const y = scale(pen, ink, range, tall);
      pen.setLineDash([4, 3]);
      Object.assign(pen, { strokeStyle: ink.muted, lineWidth: 1.25 });
      if (other) stairs(pen, axis, other.values, y);
      if (typeof note.at === "number") {
        pen.beginPath();
        pen.moveTo(LEFT, y(note.at)), pen.lineTo(axis.x(axis.bins), y(note.at));
        pen.stroke();
      }
      pen.setLineDash([]);
      Object.assign(pen, { strokeStyle: ink.ink, lineWidth: 1.5, lineJoin: "round" });
      stairs(pen, axis, values, y);
    },
  },
  span: {
    lay: ([{ values }]) => ({
      tall: PX.tall + 12,
      range: extent((take) => values.forEach((spans) => spans.forEach(([from, to]) => (take(from), take(to))))),
    }),
    paint(pen, ink, axis, [{ values }], { tall, range }) {
      const y = scale(pen, ink, range, tall), whole = [];
      const bar = (bin, [from, to]) => {
        const x = axis.x(bin), wide = axis.x(bin + 1) - x;
        pen.fillRect(x, y(to) - 1, Math.max(1, wide - (wide > 4 ? 1.5 : 0)), Math.max(2, y(from) - y(to) + 2));
      };
      pen.fillStyle = ink["time-3"];
      axis.each(values, (bin, spans) => {
        if (axis.bins === axis.span) spans.forEach((span) => bar(bin, span));
        else whole[bin] = extent((take) => [...spans, whole[bin] ?? []].forEach((span) => span.forEach(take)));
      });
      whole.forEach((span, bin) => bar(bin, span));
    },
  },
  set: {
    lay([{ values }]) {
      const { rows, more } = members(values);
      return { rows, tall: rowsTall(rows.length), said: more ? `and ${more} more` : "" };
    },
    paint(pen, ink, axis, [{ values }], { rows }) {
      const cells = new Map(rows.map(([key]) => [key, new Uint8Array(axis.bins)]));
      axis.each(values, (bin, list) => list.forEach((x) => cells.get(keyOf(x))?.fill(1, bin, bin + 1)));
      blocks(pen, ink, axis, rows.map(([key, word]) => [word, cells.get(key)]));
    },
  },
  clock: {
    lay(columns) {
      const [, most] = extent((take) => columns.forEach(({ values }) => values.forEach((x) => take(x))));
      return { most, tall: columns.length * (PX.lane + 4), said: `each lane is ${formatTime(most)} high` };
    },
    paint(pen, ink, axis, columns, { most }) {
      columns.forEach(({ note, values }, k) => {
        const base = (k + 1) * (PX.lane + 4) - 1, high = new Float64Array(axis.bins);
        axis.each(values, (bin, x) => (high[bin] = Math.max(high[bin], (x / most) * PX.lane)));
        beside(pen, ink, note.word, base - 4);
        pen.fillStyle = ink.line;
        pen.fillRect(LEFT, base, axis.x(axis.bins) - LEFT, 1);
        pen.fillStyle = ink["time-3"];
        stretches(high, (from, to, tall) => pen.fillRect(axis.x(from), base - tall, axis.x(to) - axis.x(from), tall));
      });
    },
  },
  grid: {
    lay([{ values }]) {
      const all = new Set();
      values.forEach((held) => Object.keys(held).forEach((row) => all.add(row)));
      const range = extent((take) => values.forEach((held) => Object.values(held).forEach((x) => take(x))));
      const rows = [...all].slice(0, MOST_ROWS);
      const shades = range[1] > range[0] ? `${wordOf(range[0])} is faint, ${wordOf(range[1])} is full` : "";
      const more = all.size > rows.length ? `${all.size - rows.length} more rows` : "";
      return { rows, range, tall: rowsTall(rows.length), said: [shades, more].filter(Boolean).join("; ") };
    },
    paint(pen, ink, axis, [{ values }], { rows, range: [low, high] }) {
      const most = ink.shades.length, part = (x) => (high > low ? (x - low) / (high - low) : 1);
      const of = (x) => 1 + Math.round((most - 1) * part(x));
      rows.forEach((row, k) => {
        const y = PX.gap + k * (PX.row + PX.gap), shade = new Uint8Array(axis.bins);
        axis.each(values, (bin, held) => row in held && (shade[bin] = Math.max(shade[bin], of(held[row]))));
        beside(pen, ink, row, y + PX.row - 1);
        stretches(shade, (from, to, one) => {
          pen.fillStyle = ink.shades[one - 1];
          pen.fillRect(axis.x(from), y, axis.x(to) - axis.x(from), PX.row);
        });
      });
    },
  },
};
