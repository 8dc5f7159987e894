/* Tracks: bars in lanes over a time of their own, as of a pipeline with a clock other than the steps. */
import { wordOf } from "./note_text.js";

const TRACK_PX = { lane: 18, gap: 3, foot: 14, least: 7 }; // between two lanes, below them, a unit of time
const BAR_FILLS = ["time-3", "accept-soft", "line"]; // of bars, by their word
const BAR_INKS = ["bg", "ink", "muted"]; // of what they say
const BAR_EDGES = ["time-3", "accept", "branch"];

/** The content of the chart: bars with the step that recorded them, the runs that they make, and the lanes and
 *  time that they take. A token that continues in its lane is one run. */
export function layTrack([{ note, values }]) {
  const rank = (word) => Math.max(0, note.rows.indexOf(word));
  const bars = values.flatMap((list, step) =>
    list.map(([lane, from, to, token, word]) => ({ step, lane, from, to, token, rank: rank(word) })));
  const runs = [], last = [];
  let lanes = 1, end = 1;
  for (const bar of bars) {
    (lanes = Math.max(lanes, bar.lane + 1)), (end = Math.max(end, bar.to));
    const before = last[bar.lane]?.at(-1);
    if (before?.to === bar.from && before.token.token === bar.token.token) last[bar.lane].push(bar);
    else runs.push((last[bar.lane] = [bar]));
  }
  const words = note.rows.map((word, k) => `${["full", "edged", "grey"][k]}: ${word}`).join(", ");
  const tall = lanes * (TRACK_PX.lane + TRACK_PX.gap) + TRACK_PX.foot;
  return { bars, runs, lanes, end, values, unit: note.unit, tall, said: words };
}

/** The stretch of time that fits into `wide` px: all of it, or as much as shows step i and the time before it. */
export function trackAxis({ bars, end, values }, wide, left, i) {
  const shown = Math.min(end, Math.max(1, Math.floor(wide / TRACK_PX.least))), each = wide / shown;
  const own = values[i] ?? [], from = Math.min(...own.map((bar) => bar[1]));
  const last = own.length ? Math.max(...own.map((bar) => bar[2])) : end;
  const start = Math.max(0, Math.min(end - shown, Math.round(last - (2 / 3) * shown)));
  const x = (t) => left + (Math.max(start, Math.min(start + shown, t)) - start) * each;
  const of = (px) => start + (px - left) / each;
  return {
    key: start, start, shown, x,
    at: () => (own.length ? [x(from), x(last) - x(from)] : [left, 0]),
    step: (px) => bars.find((bar) => bar.from <= of(px) && of(px) < bar.to)?.step,
  };
}

/** The visible runs, each with its token's text once, if it fits before the next word. */
export function paintTrack(pen, ink, axis, { runs, lanes, unit, tall }, beside) {
  const y = (lane) => lane * (TRACK_PX.lane + TRACK_PX.gap), { lane: high } = TRACK_PX;
  for (let lane = 0; lane < lanes; lane++) beside(pen, ink, `lane ${lane + 1}`, y(lane) + high - 5);
  trackTimes(pen, ink, axis, unit, tall);
  for (const run of runs) {
    const [{ lane, from, token, rank }, { to, rank: fate }] = [run[0], run.at(-1)];
    if (to <= axis.start || from >= axis.start + axis.shown) continue;
    for (const bar of run) {
      pen.fillStyle = ink[BAR_FILLS[bar.rank]];
      pen.fillRect(axis.x(bar.from), y(lane), axis.x(bar.to) - axis.x(bar.from) - (bar.to === to ? 1 : 0), high);
    }
    const alike = run.findIndex((bar) => bar.rank !== rank), until = alike < 0 ? to : run[alike].from;
    Object.assign(pen, { strokeStyle: ink[BAR_EDGES[fate || rank]], lineWidth: 1 });
    pen.strokeRect(axis.x(from) + 0.5, y(lane) + 0.5, axis.x(to) - axis.x(from) - 2, high - 1);
    pen.save();
    pen.beginPath(), pen.rect(axis.x(from), y(lane), axis.x(until) - axis.x(from) - 2, high), pen.clip();
    Object.assign(pen, { fillStyle: ink[BAR_INKS[rank]], textAlign: "left" });
    pen.fillText(wordOf(token), axis.x(from) + 3, y(lane) + high - 5);
    pen.restore();
  }
}

/** Lines through all lanes at round numbers, said below. */
function trackTimes(pen, ink, axis, unit, tall) {
  const each = [5, 10, 20, 50, 100, 500].find((n) => axis.x(axis.start + n) - axis.x(axis.start) > 44) ?? 1000;
  const first = Math.ceil(axis.start / each) * each;
  for (let t = first; t <= axis.start + axis.shown; t += each) {
    pen.fillStyle = ink.line;
    pen.fillRect(axis.x(t) - 0.5, 0, 1, tall - TRACK_PX.foot);
    Object.assign(pen, { fillStyle: ink.muted, textAlign: t === axis.start ? "left" : "center" });
    pen.fillText(t === first ? `${t} ${unit}` : t, axis.x(t), tall - 3);
  }
}
