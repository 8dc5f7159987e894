/* The clocks of several runs under each other, on one axis of time, joined at the place that is shown. */
import { byClock } from "./alignment.js";
import { h, hatch, inks, s, set, sheet } from "./elements.js";
import { milli } from "./numbers.js";

const LANES = { left: 26, right: 64, top: 20, tall: 22, each: 52 }; // px
/** Steps of an axis from 0 to `most`: the value of one, so that there are at most `many`. */
export function division(most, many) {
  const raw = most / Math.max(1, many), power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((x) => x * power).find((x) => x >= raw);
}

/** context: seekTime(which, seconds). draw(runs, place): runs = [{store, steps (a course), at}], place = {x: [seconds
 *  or null per run], words: [one per run], parted: [seconds or null per run]}. */
export function lanesView(context) {
  const canvas = h("canvas", { class: "lanes", role: "img" });
  const swatch = (name) =>
    s("svg", { class: "swatch " + name, width: 14, height: 10, "aria-hidden": "true" },
      s("rect", { width: 14, height: 10 }),
      name === "draft" ? s("path", { d: "M-2,10L8,0M4,10L14,0M10,10L20,0" }) : null);
  const key = h("span", { class: "legend" },
    [["draft", "draft"], ["verify", "verify"], ["rest", "rule, commit, cache"]].map(([name, word]) =>
      h("span", null, swatch(name), word)
    ));
  let colours = null, width = 0, most = 1, held = false, last = 1;
  const point = (event) => {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left;
    const which = Math.round((event.clientY - box.top - LANES.top - LANES.tall / 2) / LANES.each);
    context.seekTime(Math.max(0, Math.min(last, which)),
      Math.max(0, Math.min(1, (x - LANES.left) / (width - LANES.left - LANES.right))) * most);
  };
  canvas.addEventListener("pointerdown",
    (event) => ((held = true), canvas.setPointerCapture?.(event.pointerId), point(event)));
  canvas.addEventListener("pointermove", (event) => held && point(event));
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => (held = false));

  function block(c, x, y, w, parts) {
    let from = x;
    for (const [name, share] of parts) {
      const wide = w * share;
      if (wide <= 0) continue;
      c.fillStyle = colours[name];
      c.fillRect(from, y, wide, LANES.tall);
      if (name === "time-1") hatch(c, from, y, wide, LANES.tall, colours["time-2"]);
      from += wide;
    }
  }
  return {
    canvas,
    key,
    look: () => (width = canvas.parentElement.clientWidth),
    restyle: () => (colours = null),
    draw(runs, place) {
      colours = colours || inks(canvas, "time-1", "time-2", "time-3", "edge", "muted", "ink", "bg");
      const high = LANES.top + (last = runs.length - 1) * LANES.each + LANES.tall + 34,
        span = Math.max(40, width - LANES.left - LANES.right);
      const c = sheet(canvas, width, high);
      most = Math.max(1e-6, ...runs.map(({ steps }) => steps.at(-1)?.end || 0));
      const at = (seconds) => LANES.left + (seconds / most) * span;
      c.font = "600 " + colours.small;
      c.textBaseline = "middle";
      runs.forEach(({ store, steps, at: now }, k) => {
        const y = LANES.top + k * LANES.each;
        c.fillStyle = colours.ink;
        c.textAlign = "left";
        c.fillText("ABCD"[k], 4, y + LANES.tall / 2);
        const draw = (i) => {
          const { start, end } = steps[i], step = store.steps[i], x = at(start), w = at(end) - x;
          if (!step || w <= 0) return;
          const { draft, verify, all } = step.dt, a = all > 0 ? Math.min(1, draft / all) : 0,
            b = all > 0 ? Math.min(1 - a, verify / all) : 1;
          block(c, x, y, w > 3 ? w - 1 : w, [["time-1", a], ["time-2", b], ["time-3", 1 - a - b]]);
          if (i === now) {
            c.strokeStyle = colours.ink;
            c.lineWidth = 2;
            c.strokeRect(Math.round(x) - 1, y - 2, Math.max(3, w + 1), LANES.tall + 4);
          }
        };
        const thin = (0.5 * most) / span; // seconds: of steps thinner than half a pixel a few are enough
        for (let i = 0; i < steps.length; i = Math.max(i + 1, byClock(steps, steps[i].start + thin))) draw(i);
        if (steps[now]) draw(now);
        c.font = colours.small;
        c.fillStyle = colours.muted;
        const long = steps.at(-1)?.end || 0;
        if (steps.length) c.fillText(milli(long), at(long) + 8, y + LANES.tall / 2);
        c.font = "600 " + colours.small;
        const split = place.parted[k];
        if (split !== null) {
          const x = at(split);
          c.fillStyle = colours.ink;
          c.beginPath();
          c.moveTo(x, y + LANES.tall + 2), c.lineTo(x + 5, y + LANES.tall + 10), c.lineTo(x - 5, y + LANES.tall + 10);
          c.fill();
        }
      });
      // the place that is shown, through all
      const x = place.x.map((seconds) => (seconds === null ? null : at(seconds)));
      c.strokeStyle = colours.bg;
      c.lineWidth = 4;
      for (const pass of [0, 1]) {
        if (pass) (c.strokeStyle = colours.ink), (c.lineWidth = 1.5);
        c.beginPath();
        x.forEach((there, k) =>
          there !== null
          && (c.moveTo(there, LANES.top + k * LANES.each - 5), c.lineTo(there, LANES.top + k * LANES.each + LANES.tall))
        );
        for (let k = 1; k <= last; k++) {
          const from = LANES.top + (k - 1) * LANES.each + LANES.tall, to = LANES.top + k * LANES.each - 5,
            [p, q] = [x[k - 1], x[k]];
          if (p !== null && q !== null) c.moveTo(p, from), c.bezierCurveTo(p, to, q, from, q, to);
        }
        c.stroke();
      }
      x.forEach((there, k) => {
        if (!place.words[k]) return;
        const words = place.words[k], wide = c.measureText(words).width, spot = there ?? LANES.left;
        // beside the curve, not on it
        const left = k && x[k - 1] !== null && x[k - 1] > spot ? spot - wide - 8 : spot + 8;
        const from = Math.max(LANES.left, Math.min(width - wide - 4, left)), y = LANES.top + k * LANES.each - 10;
        c.fillStyle = colours.bg;
        c.fillRect(from - 3, y - 7, wide + 6, 14);
        c.fillStyle = colours.ink;
        c.fillText(words, from, y);
      });
      const unit = division(most, span / 90), base = high - 12;
      c.font = colours.less;
      c.fillStyle = colours.muted;
      c.strokeStyle = colours.edge;
      c.lineWidth = 1;
      c.textAlign = "center";
      for (let k = 0; k * unit <= most * 1.0001; k++) {
        const there = at(k * unit),
          label = unit >= 1 ? `${+(k * unit).toFixed(3)}${k ? "" : " s"}`
            : `${+(k * unit * 1000).toFixed(3)}${k ? "" : " ms"}`;
        c.beginPath(), c.moveTo(there, base - 11), c.lineTo(there, base - 7), c.stroke();
        c.fillText(label, there, base);
      }
      set(canvas, {
        "aria-label": `${runs.length} lanes on one axis of ${milli(most)}: `
          + `${runs.map(({ steps, at: now }, k) => `run ${"ABCD"[k]} step ${now} of ${steps.length - 1}, `
          + `${milli(steps.at(-1)?.end || 0)} in all`).join("; ")}`,
      });
    },
  };
}
