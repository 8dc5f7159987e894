/* The clock: one block per step, and the scrubber. */
import { button, h, hatch, icon, inks, say, see, set, sheet } from "../shared/elements.js";
import { formatCount, formatTime, plural, formatFixed } from "../shared/numbers.js";
import { zoom } from "../shared/zoom.js";

const TOP = 18, TALL = 20, HIGH = 54; // px of the blocks, and of all
const SHORTEST = 8; // steps: the shortest stretch that is shown

/** First, back, play, on, last; and the speed. context: to(way) with -Infinity, -1, 1 or Infinity, play, playing,
 *  speed, faster; `what` is moved along, in a word. */
export function transport(context, what = "step") {
  const act = (name, title, way) =>
    button(icon(name), () => context.to(way), { class: "bare", title, "aria-label": title });
  const play = button(icon("play"), () => context.play(), { class: "bare play-pause" }),
    speed = button("", () => context.faster(), { class: "small speed" });
  const [first, prev] = [act("first", `first ${what}`, -Infinity), act("prev", `previous ${what}`, -1)];
  const [next, last] = [act("next", `next ${what}`, 1), act("last", `last ${what}`, Infinity)];
  return {
    parts: [h("span", { class: "buttons" }, first, prev, play, next, last), speed],
    draw() {
      const playing = context.playing();
      if (play.dataset.on !== String(playing)) {
        play.dataset.on = playing;
        play.replaceChildren(icon(playing ? "pause" : "play"));
        set(play, { "aria-label": playing ? "pause the replay" : "play the steps", title: "Space" });
      }
      say(speed, context.speed().word);
      set(speed, { "aria-label": `speed of the replay: ${context.speed().aloud}` });
    },
  };
}

/** The steps of one column: the longest that has come, or null, the most rejections of one, and whether threads
 *  were timed after one. */
function column(store, from, to) {
  let longest = null, refused = 0, timed = false;
  for (let k = from; k < to; k++) {
    const step = store.steps[k];
    if (step && (!longest || step.dt.all > longest.dt.all)) longest = step;
    if (step?.refused > refused) refused = step.refused;
    if (step?.environment) timed = true;
  }
  return { step: longest, refused, timed };
}

/** The reaction after a step to other programs on the machine, in words; "" if there was none. */
export function surroundings(step) {
  if (!step?.environment) return "";
  const { before, after, slower } = step.environment;
  const why = slower ? `a pass took ${formatFixed(slower)}× as long` : "all numbers were timed again";
  return before === after ? `still ${plural(after, "thread")}: ${why}, and no other number is better`
    : `${before} → ${plural(after, "thread")}: ${why}`;
}

/** A mark after a block: threads were timed there. */
function wedge(c, x) {
  c.beginPath();
  c.moveTo(x - 3, TOP - 6), c.lineTo(x + 3, TOP - 6), c.lineTo(x, TOP - 1);
  c.fill();
  c.fillRect(x - 0.5, TOP - 2, 1, TALL + 4);
}

/** A step as a block at x, as high as its time, in the colours of its parts. */
function block(c, colours, { draft, verify, all }, longest, x, w) {
  const high = Math.max(3, TALL * Math.sqrt(all / longest)), y = TOP + TALL - high;
  const part = all > 0 ? [draft / all, verify / all] : [0, 1], rest = high * Math.max(0, 1 - part[0] - part[1]);
  c.fillStyle = colours["time-2"];
  c.fillRect(x, y, w, high);
  c.fillStyle = colours["time-1"];
  c.fillRect(x, y, w, high * part[0]);
  hatch(c, x, y, w, high * part[0], colours["time-2"]);
  c.fillStyle = colours["time-3"];
  c.fillRect(x, TOP + TALL - rest, w, rest);
}

/** Crosses under a block, one for each rejection as far as there is room. */
function crosses(c, refused, middle, each) {
  const marks = each >= 8 ? Math.min(refused, Math.max(1, Math.floor(each / 6))) : 1, r = each >= 8 ? 2 : 1;
  for (let m = 0; m < marks; m++) {
    const x = middle + (m - (marks - 1) / 2) * 6, y = TOP + TALL + 7;
    c.beginPath();
    c.moveTo(x - r, y - r), c.lineTo(x + r, y + r), c.moveTo(x + r, y - r), c.lineTo(x - r, y + r);
    c.stroke();
  }
}

/** The blocks of `wide` steps from step `from` on, of equal widths; step i has its count in ink. If steps are
 *  thinner than a pixel, the longest is drawn. */
function columns(c, colours, store, { from, wide, width, i }) {
  const per = Math.max(1, wide / Math.max(1, Math.floor(width))), each = (per / wide) * width,
    w = Math.max(0.5, each - (each > 4 ? 1.5 : 0));
  c.font = colours.less;
  c.textAlign = "center";
  for (let q = Math.floor(from / per); q * per < from + wide - 1e-6; q++) {
    const x = ((q * per - from) / wide) * width, first = Math.round(q * per * 1e6) / 1e6;
    const last = Math.min(store.count, Math.floor(first + per + 1e-6));
    const { step, refused, timed } = column(store, Math.floor(first), last);
    if (!step) {
      c.strokeStyle = colours.reject; // a step that has not come
      c.lineWidth = 1;
      c.setLineDash([2, 2]);
      c.strokeRect(x + 0.5, TOP + 0.5, Math.max(1, w - 1), TALL - 1);
      c.setLineDash([]);
      continue;
    }
    block(c, colours, step.dt, store.longest, x, w);
    if (each >= 12) {
      c.fillStyle = q === i ? colours.ink : colours.muted;
      c.fillText(String(step.made.length), x + w / 2, 11);
    }
    c.strokeStyle = colours.reject;
    c.lineWidth = 1.25;
    if (refused) crosses(c, refused, x + w / 2, each);
    c.fillStyle = colours.ink;
    if (timed) wedge(c, x + each);
  }
}

/** One block per step, all of one width, as high as its time; counts above, rejections below. It is also the
 *  scrubber; a stretch of it can be shown alone. */
export function timeView(context) {
  const canvas = h("canvas", { class: "lane" });
  const slider = h("input", { type: "range", min: 0, max: 0, value: 0, class: "scrub", "aria-label": "step" });
  slider.addEventListener("input", () => context.seek(Number(slider.value)));
  const moves = transport(context);
  const jump = (word, title, run) => button(word, run, { class: "small", title });
  const refusal = jump("next rejection", "r", () => context.find("refused", 1)),
    eviction = jump("next eviction", "e", () => context.find("evicted", 1));
  const live = button("● live", () => context.follow(true), { class: "live" });
  const rate = h("span", { class: "quiet" }), box = h("div", { class: "lane-box" }, canvas, slider);
  let colours = null, width = 0, painted = "", hint = (_) => "";
  box.addEventListener("pointermove",
    ({ clientX }) => set(box, { title: hint(clientX - box.getBoundingClientRect().left) || null }));
  const stretch = zoom(box, { least: SHORTEST, edges: () => [0, width], what: "steps in time", request: context.redraw,
    seek: (x) => context.seek(Math.floor(x)) });
  const element = h("footer", { class: "time-pane" },
    h("div", { class: "transport" }, h("h2", null, "Time"), rate, moves.parts, live, stretch.tools,
      h("span", { class: "jumps" }, refusal, eviction, jump("keys", "?", () => context.help()))), box);
  const lane = document.createElement("canvas"); // the blocks, as they were painted last
  /** The present position, in words. */
  function place(store, i, from, wide) {
    const reading = store.total > store.count ? `, reading ${formatCount(store.total)}` : "",
      seen = stretch.near() ? `; steps ${Math.floor(from)} to ${Math.ceil(from + wide) - 1} are seen` : "";
    const done = surroundings(store.steps[i]), { cost = "" } = store.steps[i];
    return `${formatTime(store.steps[i].sum.decode)}, step ${i} of ${store.count - 1}${reading}${seen}${cost}`
      + (done && `; ${done}`);
  }
  return {
    element,
    look: () => (width = box.clientWidth),
    restyle: () => ((colours = null), (painted = "")),
    draw(store, i) {
      see(element, store.count);
      if (!store.count) return;
      if (Number(slider.max) !== store.count - 1) slider.max = store.count - 1;
      if (Number(slider.value) !== i) slider.value = i;
      slider.setAttribute("aria-valuetext", `step ${i} of ${store.count}`);
      see(live, !(context.following || store.end));
      moves.draw();
      see(refusal, store.refused);
      see(eviction, store.evicted);
      const now = store.steps[i], [from, wide] = stretch.stretch(store.count, i + 0.5), each = width / wide;
      const near = (x, k) => surroundings(store.steps[Math.round(from + x / each) - k]);
      hint = (x) => near(x, 1) || near(x, 0);
      say(rate, now?.sum.decode ? place(store, i, from, wide) : "");
      colours = colours || inks(element, "time-1", "time-2", "time-3", "reject", "muted", "ink", "ring", "bg");
      const as = [store.count, store.come, width, from, wide, window.devicePixelRatio, each >= 12 && i].join();
      if (as !== painted) (painted = as), columns(sheet(lane, width, HIGH), colours, store, { from, wide, width, i });
      const c = sheet(canvas, width, HIGH);
      c.drawImage(lane, 0, 0, width, HIGH);
      stretch.bar(c, colours.muted, 0, width, HIGH - 3);
      c.strokeStyle = colours.ring;
      c.lineWidth = 2;
      const x = Math.max(1, (i - from) * each - 1.5);
      if (now && i + 1 > from && i < from + wide)
        c.strokeRect(x, TOP - 3, Math.max(4, each + (each > 4 ? 0.5 : 2)), TALL + 6);
    },
  };
}
