/* The clock: one block per step, and the scrubber. */
import { button, h, hatch, icon, inks, say, see, set, sheet } from "./elements.js";
import { grouped, milli } from "./numbers.js";

const TOP = 18, TALL = 20; // px of the blocks

/** First, back, play, on, last; and the speed. context: to(way) with -Infinity, -1, 1 or Infinity, play, playing,
 *  speed, faster; `what` is what one goes along, in a word. */
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

/** One block per step, all of one width, as high as it took; counts above, refusals below. It is also the scrubber. */
export function timeView(context) {
  const canvas = h("canvas", { class: "lane" });
  const slider = h("input", { type: "range", min: 0, max: 0, value: 0, class: "scrub", "aria-label": "step" });
  slider.addEventListener("input", () => context.seek(Number(slider.value)));
  const moves = transport(context);
  const jump = (word, title, run) => button(word, run, { class: "small", title });
  const refusal = jump("next rejection", "r", () => context.find("refused", 1)),
    eviction = jump("next eviction", "e", () => context.find("evicted", 1));
  const live = button("● live", () => context.follow(true), { class: "live" });
  const rate = h("span", { class: "quiet" });
  const element = h("footer", { class: "time-pane" },
    h("div", { class: "transport" }, h("h2", null, "Time"), rate, moves.parts, live,
      h("span", { class: "jumps" }, refusal, eviction, jump("keys", "?", () => context.help()))),
    h("div", { class: "lane-box" }, canvas, slider));
  const lane = document.createElement("canvas"); // the blocks, as they were painted last
  let colours = null, width = 0, painted = "";
  /** Equal widths: the slider's thumb is on its step. Of steps thinner than a pixel the longest is seen. */
  function paint(store, i) {
    const many = Math.max(1, Math.min(store.count, Math.floor(width))), each = width / many,
      w = Math.max(0.5, each - (each > 4 ? 1.5 : 0));
    const c = sheet(lane, width, 54);
    c.font = colours.less;
    c.textAlign = "center";
    for (let q = 0; q < many; q++) {
      const x = q * each;
      let step = null, refused = 0;
      for (let k = Math.floor((q * store.count) / many), end = Math.floor(((q + 1) * store.count) / many); k < end;
        k++) {
        const one = store.steps[k];
        if (one && (!step || one.dt.all > step.dt.all)) step = one;
        if (one?.refused > refused) refused = one.refused;
      }
      if (!step) {
        c.strokeStyle = colours.reject; // a step that has not come
        c.lineWidth = 1;
        c.setLineDash([2, 2]);
        c.strokeRect(x + 0.5, TOP + 0.5, Math.max(1, w - 1), TALL - 1);
        c.setLineDash([]);
        continue;
      }
      const { draft, verify, all } = step.dt;
      const high = Math.max(3, TALL * Math.sqrt(all / store.longest)), y = TOP + TALL - high;
      const part = all > 0 ? [draft / all, verify / all] : [0, 1], rest = high * Math.max(0, 1 - part[0] - part[1]);
      c.fillStyle = colours["time-2"];
      c.fillRect(x, y, w, high);
      c.fillStyle = colours["time-1"];
      c.fillRect(x, y, w, high * part[0]);
      hatch(c, x, y, w, high * part[0], colours["time-2"]);
      c.fillStyle = colours["time-3"];
      c.fillRect(x, TOP + TALL - rest, w, rest);
      if (each >= 12) {
        c.fillStyle = q === i ? colours.ink : colours.muted;
        c.fillText(String(step.made.length), x + w / 2, 11);
      }
      if (!refused) continue;
      c.strokeStyle = colours.reject;
      c.lineWidth = 1.25;
      const marks = each >= 8 ? Math.min(refused, Math.max(1, Math.floor(each / 6))) : 1, r = each >= 8 ? 2 : 1;
      for (let m = 0; m < marks; m++) {
        const mx = x + w / 2 + (m - (marks - 1) / 2) * 6, my = TOP + TALL + 7;
        c.beginPath();
        c.moveTo(mx - r, my - r), c.lineTo(mx + r, my + r), c.moveTo(mx + r, my - r), c.lineTo(mx - r, my + r);
        c.stroke();
      }
    }
  }
  return {
    element,
    look: () => (width = canvas.parentElement.clientWidth),
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
      const now = store.steps[i];
      say(rate, now?.sum.decode
        ? `${milli(now.sum.decode)}, step ${i} of `
          + `${store.count - 1}${store.total > store.count ? `, reading ${grouped(store.total)}` : ""}` : "");
      colours = colours || inks(element, "time-1", "time-2", "time-3", "reject", "muted", "ink", "ring", "bg");
      const as = [store.count, store.come, width, window.devicePixelRatio, width / store.count >= 12 && i].join();
      if (as !== painted) (painted = as), paint(store, i);
      const c = sheet(canvas, width, 54), each = width / store.count;
      c.drawImage(lane, 0, 0, width, 54);
      c.strokeStyle = colours.ring;
      c.lineWidth = 2;
      if (now) c.strokeRect(Math.max(1, i * each - 1.5), TOP - 3, Math.max(4, each + (each > 4 ? 0.5 : 2)), TALL + 6);
    },
  };
}
