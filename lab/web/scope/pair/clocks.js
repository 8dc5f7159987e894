/* The clocks of several runs: their lanes under one scrubber, and the same as a table. */
import { byToken } from "./alignment.js";
import { button, grid, h, say, see, set, toggle } from "../shared/elements.js";
import { lanesView } from "./lanes.js";
import { formatCount, formatTime, plural } from "../shared/numbers.js";
import { transport } from "../time/time.js";

const PACE = 120; // ms between two drawings of the lanes while steps come
// steps of a run in the table, half of them before the displayed one
const LISTED = 400;
const LISTS = ["run", "step", "start", "draft", "verify", "whole step", "tokens by its end"];

/** place: of the runs; moves: the argument of `transport`; seek and follow as of the pair; seekTime(which,
 *  seconds); request(): ask for a drawing. */
export function clocks(letters, stores, place, { moves, seek, follow, seekTime, request }) {
  const lanes = lanesView({ seekTime, request }), steps = transport(moves, "place");
  const slider = h("input", { type: "range", class: "along", min: 1, max: 1, step: 1, value: 1 });
  slider.addEventListener("input",
    () => seek(place.way === "token" ? { token: Number(slider.value) } : { seconds: Number(slider.value) }));
  const live = button("● live", () => follow(true), { class: "live" });
  const where = h("b", { class: "where" }), how = h("span", { class: "quiet" }), twin = h("div", { class: "twin" });
  let tabled = false, drawn = 0, later = 0;
  const element = h("section", { class: "clocks" }, h("header", null, h("h2", null, "Time"), how, lanes.key,
      lanes.tools), lanes.element, twin,
    h("div", { class: "transport" }, steps.parts, where, slider, live,
      toggle("Show as table", (on) => ((tabled = on), request()))));

  /** courses, at: the steps of the runs and the displayed step of each; most tokens and longest seconds of them;
   *  parts: the token from which on a text differs; width: px, 0 if it is invisible. */
  function draw({ courses, at, most, longest, parts, width }) {
    const tokens = place.way === "token";
    see(element, courses.some((course) => course.length));
    say(how, `the same ${tokens ? "token" : "moment"}, each clock from the first step on`);
    set(slider, tokens ? { min: 1, max: most, step: 1, "aria-label": "token" }
      : { min: 0, max: Math.ceil(1000 * longest) / 1000, step: 0.001, "aria-label": "seconds" });
    slider.value = place.here();
    say(where, tokens ? `token ${formatCount(place.token)} of ${formatCount(most)}`
      : `${formatTime(place.seconds)} of ${formatTime(longest)}`);
    set(slider, { "aria-valuetext": where.textContent });
    see(live, !(place.following || place.ended()));
    steps.draw();
    for (const part of [lanes.element, lanes.tools]) see(part, !tabled);
    see(twin, tabled);
    if (tabled) twin.replaceChildren(table(courses, at));
    else if (width && due()) paint(courses, at, longest, parts);
  }
  function paint(courses, at, longest, parts) {
    const tokens = place.way === "token";
    const reached = courses.map((course) => course.length > 0 && course.at(-1).tokens >= place.token);
    const x = courses.map((course, k) =>
      !course.length ? null
      : tokens ? (reached[k] ? course[at[k]].end : null) : Math.min(place.seconds, longest));
    const words = courses.map((course, k) => caption(course, at[k], k, reached[k]));
    const parted = courses.map((course, k) =>
      !course.length || course.at(-1).tokens <= parts[k] ? null : course[byToken(course, parts[k] + 1)].end);
    lanes.draw(courses.map((course, k) => ({ store: stores[k], steps: course, at: at[k] })),
      { x, words, parted });
  }
  /** The text next to the marker in the lane of run k. */
  function caption(course, step, k, reached) {
    if (!course.length) return "no step yet";
    const last = course.at(-1), end = stores[k].end, all = plural(last.tokens, "token");
    if (place.way === "token") {
      if (!reached) return end ? `ended after ${all}` : `not yet: ${all}`;
      return `${k ? "" : `token ${formatCount(place.token)} at `}${formatTime(course[step].end)}`;
    }
    if (place.seconds >= last.end && end) return `ended, ${all}`;
    return `step ${step}, ${plural(step ? course[step - 1].tokens : 0, "token")} before it`;
  }
  /** Whether the lanes are drawn with this frame: while steps come, a few times a second. */
  function due() {
    const now = performance.now(), wait = place.following && !place.ended() ? drawn + PACE - now : 0;
    clearTimeout(later);
    if (wait > 0) later = setTimeout(request, wait + 1);
    else drawn = now;
    return wait <= 0;
  }
  function table(courses, at) {
    const ms = (seconds) => (1000 * seconds).toFixed(2);
    const rows = courses.flatMap((course, k) => {
      const from = Math.max(0, Math.min(at[k] - LISTED / 2, course.length - LISTED));
      return course.slice(from, from + LISTED).flatMap((x, n) => {
        const i = from + n, dt = stores[k].steps[i]?.dt;
        return dt ? [[letters[k], i, ms(x.start), ms(dt.draft), ms(dt.verify), ms(dt.all), x.tokens]] : [];
      });
    });
    return grid(`Steps of the runs, milliseconds from the first step on; at most ${LISTED} of each`, LISTS, rows);
  }
  return { element, draw, look: lanes.look, restyle: lanes.restyle, stop: () => clearTimeout(later) };
}
