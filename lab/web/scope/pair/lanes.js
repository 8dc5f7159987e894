/* The clocks of several runs below each other, on one axis of time, joined at the displayed place. */
import { byClock } from "./alignment.js";
import { h, hatch, inks, s, set, sheet } from "../shared/elements.js";
import { formatTime } from "../shared/numbers.js";
import { zoom } from "../shared/zoom.js";

const LANES = { left: 26, right: 64, top: 20, tall: 22, each: 52 }; // px
const INSTANT = 0.001; // seconds: the shortest stretch that is shown
/** Steps of an axis from 0 to `most`: the value of one, so that there are at most `many`. */
export function division(most, many) {
  const raw = most / Math.max(1, many), power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((x) => x * power).find((x) => x >= raw);
}

const laneTop = (k) => LANES.top + k * LANES.each;

/** One step at x: its time for drafting, verifying and the rest. */
function stepParts(c, colours, { draft, verify, all }, x, y, w) {
  const a = all > 0 ? Math.min(1, draft / all) : 0, b = all > 0 ? Math.min(1 - a, verify / all) : 1;
  let from = x;
  /** @type {[string, number][]} */
  const shares = [["time-1", a], ["time-2", b], ["time-3", 1 - a - b]];
  for (const [name, share] of shares) {
    const wide = w * share;
    if (wide <= 0) continue;
    c.fillStyle = colours[name];
    c.fillRect(from, y, wide, LANES.tall);
    if (name === "time-1") hatch(c, from, y, wide, LANES.tall, colours["time-2"]);
    from += wide;
  }
}

/** The block of step i of run k; ringed: it is the displayed one. at: px of a time. */
function stepBlock(c, colours, at, { store, steps }, k, i, ringed) {
  const { start, end } = steps[i] ?? {}, record = store.steps[i], x = at(start), w = at(end) - x, y = laneTop(k);
  if (!record || !(w > 0)) return;
  stepParts(c, colours, record.dt, x, y, w > 3 ? w - 1 : w);
  if (!ringed) return;
  c.strokeStyle = colours.ink;
  c.lineWidth = 2;
  c.strokeRect(Math.round(x) - 1, y - 2, Math.max(3, w + 1), LANES.tall + 4);
}

/** The steps of run k between two times; `split` is the time at which its text parts. at: px of a time; thin:
 *  seconds of half a pixel. */
function runLane(c, colours, { at, thin, from, to }, run, k, split) {
  const y = laneTop(k), { steps } = run;
  // of steps thinner than half a pixel a few are enough
  for (let i = Math.max(0, byClock(steps, from)); i < steps.length && steps[i].start < to;
    i = Math.max(i + 1, byClock(steps, steps[i].start + thin))) stepBlock(c, colours, at, run, k, i);
  if (split === null) return;
  const x = at(split), foot = y + LANES.tall;
  c.fillStyle = colours.ink;
  c.beginPath();
  c.moveTo(x, foot + 2), c.lineTo(x + 5, foot + 10), c.lineTo(x - 5, foot + 10);
  c.fill();
}

/** The displayed place, through all lanes: x, its position in each, px or null. */
function joint(c, colours, x) {
  c.strokeStyle = colours.bg;
  c.lineWidth = 4;
  for (const pass of [0, 1]) {
    if (pass) (c.strokeStyle = colours.ink), (c.lineWidth = 1.5);
    c.beginPath();
    x.forEach((there, k) =>
      there !== null && (c.moveTo(there, laneTop(k) - 5), c.lineTo(there, laneTop(k) + LANES.tall)));
    for (let k = 1; k < x.length; k++) {
      const from = laneTop(k - 1) + LANES.tall, to = laneTop(k) - 5, [p, q] = [x[k - 1], x[k]];
      if (p !== null && q !== null) c.moveTo(p, from), c.bezierCurveTo(p, to, q, from, q, to);
    }
    c.stroke();
  }
}

/** The text next to the place in each lane; if that is outside, at the edge. */
function captions(c, colours, words, x, width) {
  x.forEach((there, k) => {
    if (!words[k]) return;
    const wide = c.measureText(words[k]).width, spot = there ?? LANES.left;
    // next to the curve, not on it
    const left = k && x[k - 1] !== null && x[k - 1] > spot ? spot - wide - 8 : spot + 8;
    const from = Math.max(LANES.left, Math.min(width - wide - 4, left)), y = laneTop(k) - 10;
    c.fillStyle = colours.bg;
    c.fillRect(from - 3, y - 7, wide + 6, 14);
    c.fillStyle = colours.ink;
    c.fillText(words[k], from, y);
  });
}

/** The marks and numbers of the axis from time `from` on. */
function timeScale(c, colours, { at, from, wide, span }, base) {
  const unit = division(wide, span / 90), [per, name] = unit >= 1 ? [1, " s"] : [1000, " ms"];
  c.font = colours.less;
  c.fillStyle = colours.muted;
  c.strokeStyle = colours.edge;
  c.lineWidth = 1;
  c.textAlign = "center";
  const first = Math.ceil(from / unit - 1e-6);
  for (let k = first; k * unit <= from + wide * 1.0001; k++) {
    const there = at(k * unit);
    c.beginPath(), c.moveTo(there, base - 11), c.lineTo(there, base - 7), c.stroke();
    c.fillText(`${+(k * unit * per).toFixed(3)}${k > first ? "" : name}`, there, base);
  }
}

/** context: seekTime(which, seconds), request(). draw(runs, place): runs = [{store, steps (a course), at}], place
 *  = {x: [seconds or null per run], words: [one per run], parted: [seconds or null per run]}. A stretch of the
 *  axis can be shown alone, the same for all runs. */
export function lanesView(context) {
  // layers that change with a move are drawn over layers that only further steps change
  const still = h("canvas", { class: "behind" }), canvas = h("canvas", { class: "lanes", role: "img" }),
    element = h("div", { class: "lane-of-two" }, still, canvas);
  const swatch = (name) =>
    s("svg", { class: "swatch " + name, width: 14, height: 10, "aria-hidden": "true" },
      s("rect", { width: 14, height: 10 }),
      name === "draft" ? s("path", { d: "M-2,10L8,0M4,10L14,0M10,10L20,0" }) : null);
  const key = h("span", { class: "legend" },
    [["draft", "draft"], ["verify", "verify"], ["rest", "rule, commit, cache"]].map(([name, word]) =>
      h("span", null, swatch(name), word)
    ));
  let colours = null, width = 0, last = 1, painted = "";
  const room = () => Math.max(40, width - LANES.left - LANES.right);
  const stretch = zoom(element, { least: INSTANT, edges: () => [LANES.left, room()], what: "clocks of the runs",
    request: context.request,
    seek(seconds, event) {
      const y = event.clientY - element.getBoundingClientRect().top;
      const which = Math.round((y - LANES.top - LANES.tall / 2) / LANES.each);
      context.seekTime(Math.max(0, Math.min(last, which)), seconds);
    } });
  return {
    element,
    key,
    tools: stretch.tools,
    look: () => (width = element.clientWidth),
    restyle: () => ((colours = null), (painted = "")),
    draw(runs, place) {
      colours = colours || inks(canvas, "time-1", "time-2", "time-3", "edge", "muted", "ink", "bg");
      const high = laneTop(last = runs.length - 1) + LANES.tall + 34, span = room();
      const most = Math.max(1e-6, ...runs.map(({ steps }) => steps.at(-1)?.end || 0));
      const [from, wide] = stretch.stretch(most, place.x.find((x) => x !== null) ?? null), to = from + wide;
      const at = (seconds) => LANES.left + ((seconds - from) / wide) * span;
      const axis = { at, from, to, wide, span, thin: (0.5 * wide) / span };
      const before = stretch.near() ? 0 : 8; // px: a mark at an end is seen whole
      const clip = (c) => (c.save(), c.beginPath(), c.rect(LANES.left - before, 0, span + 2 * before, high), c.clip());
      const as = [from, wide, width, window.devicePixelRatio, place.parted, runs.map(({ store, steps }) =>
        [steps.length, store.come])].join();
      if (as !== painted) (painted = as), lie(sheet(still, width, high));
      function lie(c) {
        c.font = "600 " + colours.small;
        c.textBaseline = "middle";
        c.textAlign = "left";
        c.fillStyle = colours.ink;
        runs.forEach((_, k) => c.fillText("ABCD"[k], 4, laneTop(k) + LANES.tall / 2));
        clip(c);
        runs.forEach((run, k) => runLane(c, colours, axis, run, k, place.parted[k]));
        c.restore();
        timeScale(c, colours, axis, high - 12);
        stretch.bar(c, colours.muted, LANES.left, span, high - 4);
      }
      const c = sheet(canvas, width, high);
      c.textBaseline = "middle";
      clip(c);
      runs.forEach((run, k) => stepBlock(c, colours, at, run, k, run.at, true));
      const x = place.x.map((seconds) => (seconds === null ? null : at(seconds)));
      joint(c, colours, x);
      c.restore();
      c.font = colours.small;
      c.fillStyle = colours.muted;
      for (const [k, { steps }] of runs.entries()) {
        const long = steps.at(-1)?.end || 0;
        if (!steps.length || long > to) continue;
        c.fillText(formatTime(long), Math.max(LANES.left, at(long)) + 8, laneTop(k) + LANES.tall / 2);
      }
      c.font = "600 " + colours.small;
      captions(c, colours, place.words, x.map((there) =>
        there === null ? null : Math.max(LANES.left, Math.min(LANES.left + span, there))), width);
      set(canvas, {
        "aria-label": `${runs.length} lanes on one axis of ${formatTime(most)}${stretch.near()
          ? `, ${(1000 * from).toFixed(1)} to ${(1000 * to).toFixed(1)} ms seen` : ""}: `
          + `${runs.map(({ steps, at: now }, k) => `run ${"ABCD"[k]} step ${now} of ${steps.length - 1}, `
          + `${formatTime(steps.at(-1)?.end || 0)} in all`).join("; ")}`,
      });
    },
  };
}
