/* The clock: one block per step, and the scrubber. */
import { h, hatch, icon, say, set } from "./elements.js";
import { milli } from "./numbers.js";

/** First, back, play, on, last; and the speed. context: to(way) with -Infinity, -1, 1 or Infinity, play, playing, speed,
 *  faster; `what` is what one goes along, in a word. */
export function transport(context, what = "step") {
  const act = (name, title, way) => {
    const button = h("button", { type: "button", class: "bare", title, "aria-label": title }, icon(name));
    button.addEventListener("click", () => context.to(way));
    return button;
  };
  const play = h("button", { type: "button", class: "bare play-pause" }, icon("play"));
  play.addEventListener("click", () => context.play());
  const speed = h("button", { type: "button", class: "small speed" });
  speed.addEventListener("click", () => context.faster());
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
      set(speed, { "aria-label": `speed of the replay: ${context.speed().told}` });
    },
  };
}

/** One block per step, all of one width, as high as it took; counts above, refusals below. It is also the scrubber. */
export function timeView(context) {
  const canvas = h("canvas", { class: "lane" });
  const slider = h("input", { type: "range", min: 0, max: 0, value: 0, class: "scrub", "aria-label": "step" });
  slider.addEventListener("input", () => context.seek(Number(slider.value)));
  const moves = transport(context);
  const jump = (word, title, run) => {
    const button = h("button", { type: "button", class: "small", title }, word);
    button.addEventListener("click", run);
    return button;
  };
  const refusal = jump("next rejection", "r", () => context.find("refused", 1)), eviction = jump("next eviction", "e", () => context.find("evicted", 1));
  const live = h("button", { type: "button", class: "live" }, "● live");
  live.addEventListener("click", () => context.follow(true));
  const rate = h("span", { class: "quiet" });
  const element = h("footer", { class: "time-pane" },
    h("div", { class: "transport" }, h("h2", null, "Time"), rate,
      moves.parts, live, h("span", { class: "jumps" }, refusal, eviction, jump("keys", "?", () => context.help()))),
    h("div", { class: "lane-box" }, canvas, slider));
  let colours = null, width = 0;
  return {
    element,
    look: () => (width = canvas.parentElement.clientWidth),
    restyle: () => (colours = null),
    draw(store, i) {
      element.style.display = store.count ? "" : "none";
      if (!store.count) return;
      if (Number(slider.max) !== store.count - 1) slider.max = store.count - 1;
      if (Number(slider.value) !== i) slider.value = i;
      slider.setAttribute("aria-valuetext", `step ${i} of ${store.count}`);
      live.style.display = context.following || store.end ? "none" : "";
      moves.draw();
      refusal.style.display = store.steps.some((x) => x.refused) ? "" : "none";
      eviction.style.display = store.steps.some((x) => x.kv.some((k) => k.lane === "target" && k.evicted)) ? "" : "none";
      const now = store.steps[i];
      say(rate, now?.sum.decode ? `${milli(now.sum.decode)}, step ${i} of ${store.count - 1}` : "");
      const style = colours ? null : getComputedStyle(element);
      colours = colours || Object.fromEntries(["time-1", "time-2", "time-3", "reject", "muted", "ink", "ring", "bg", "sans"].map((c) => [c, style.getPropertyValue("--" + c).trim()]));
      const ratio = window.devicePixelRatio || 1, height = 54;
      if (canvas.width !== Math.round(width * ratio) || canvas.height !== height * ratio) {
        canvas.width = Math.round(width * ratio);
        canvas.height = height * ratio;
        canvas.style.height = height + "px";
      }
      const c = canvas.getContext("2d");
      c.setTransform(ratio, 0, 0, ratio, 0, 0);
      c.clearRect(0, 0, width, height);
      c.font = `11px ${colours.sans}`;
      c.textAlign = "center";
      const each = width / store.count, top = 18, tall = 20; // equal widths, so that the slider's thumb is on its step
      const longest = store.steps.reduce((most, x) => Math.max(most, x ? x.dt.all : 0), 1e-9);
      for (let k = 0; k < store.count; k++) {
        const step = store.steps[k], x = k * each, w = Math.max(0.5, each - (each > 4 ? 1.5 : 0));
        if (!step) {
          c.strokeStyle = colours.reject; // a step that has not come
          c.lineWidth = 1;
          c.setLineDash([2, 2]);
          c.strokeRect(x + 0.5, top + 0.5, Math.max(1, w - 1), tall - 1);
          c.setLineDash([]);
          continue;
        }
        const { draft, verify, all } = step.dt;
        const high = Math.max(3, tall * Math.sqrt(all / longest)), y = top + tall - high;
        const part = all > 0 ? [draft / all, verify / all] : [0, 1];
        c.fillStyle = colours["time-2"];
        c.fillRect(x, y, w, high);
        c.fillStyle = colours["time-1"];
        c.fillRect(x, y, w, high * part[0]);
        hatch(c, x, y, w, high * part[0], colours["time-2"]);
        c.fillStyle = colours["time-3"];
        c.fillRect(x, top + tall - high * Math.max(0, 1 - part[0] - part[1]), w, high * Math.max(0, 1 - part[0] - part[1]));
        if (each >= 12) {
          c.fillStyle = k === i ? colours.ink : colours.muted;
          c.fillText(String(step.made.length), x + w / 2, 11);
        }
        if (step.refused) {
          c.strokeStyle = colours.reject;
          c.lineWidth = 1.25;
          const many = each >= 8 ? Math.min(step.refused, Math.max(1, Math.floor(each / 6))) : 1, r = each >= 8 ? 2 : 1;
          for (let m = 0; m < many; m++) {
            const mx = x + w / 2 + (m - (many - 1) / 2) * 6, my = top + tall + 7;
            c.beginPath();
            c.moveTo(mx - r, my - r), c.lineTo(mx + r, my + r), c.moveTo(mx + r, my - r), c.lineTo(mx - r, my + r);
            c.stroke();
          }
        }
        if (k === i) {
          c.strokeStyle = colours.ring;
          c.lineWidth = 2;
          c.strokeRect(Math.max(1, x - 1.5), top - 3, Math.max(4, w + 2), tall + 6);
        }
      }
    },
  };
}
