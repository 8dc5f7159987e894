/* Pair: two to four runs side by side under one scrubber, joined by the token that they wrote or by the clock. */
import { byClock, byToken, course, differing, parting } from "./alignment.js";
import { button, figures, grid, h, say, see, set, toggle } from "./elements.js";
import { never, soon } from "./frame.js";
import { lanesView } from "./lanes.js";
import { tokenOf } from "./marks.js";
import { mount } from "./mount.js";
import { grouped, milli, plural, size, two } from "./numbers.js";
import { player } from "./player.js";
import { themed } from "./theme.js";
import { transport } from "./time.js";

const PACE = 120; // ms between two drawings of the lanes while steps come

/** Draw runs into `element`. options: count (2 to 4), base (what the others are measured against), views (of each),
 *  align ("token" or "clock"), pace, theme, empty, labels; onGap(which, from, to), onSeek({token, seconds}),
 *  onPlay(on), onAlign(way), onPane(which); of a run: tools(which), ratio(which): [large, small], why(which, split) its
 *  text parts there. What is pushed goes into views[0], views[1], ..., which are as `mount` gives them. */
export function pair(element, options = {}) {
  const letters = [..."ABCD"].slice(0, options.count || 2);
  let base = options.base || 0;
  const state = { way: options.align === "clock" ? "clock" : "token", token: 1, seconds: 0, following: true };
  let own = false; // whether it is we who move the views
  const turn = { look, draw }, request = () => soon(turn);
  const root = h("div", { class: "ds pair", role: "region", "aria-label": `${letters.length} decoding runs`,
    "data-n": letters.length, tabindex: -1 });
  const ways = { token: button("token position", () => api.align("token"), { class: null }),
    clock: button("wall clock", () => api.align("clock"), { class: null }) };
  const strip = h("div", { class: "differs" });
  const heads = letters.map((letter, k) => {
    const name = h("b"), about = h("span", { class: "quiet" }), ratio = h("b", { class: "ratio" }),
      under = h("span", { class: "quiet" }), sums = figures();
    return {
      element: h("header", { class: "run" }, h("span", { class: "letter" }, letter), h("div", null, name, about),
        h("div", { class: "much" }, ratio, under), sums.element, options.tools?.(k)),
      name,
      about,
      ratio,
      under,
      tell: sums.tell,
    };
  });
  const hosts = letters.map(() => h("div", { class: "host" }));
  const lanes = lanesView({ seekTime });
  const slider = h("input", { type: "range", class: "along", min: 1, max: 1, step: 1, value: 1 });
  slider.addEventListener("input",
    () => api.seek(state.way === "token" ? { token: Number(slider.value) } : { seconds: Number(slider.value) }));
  const replay = player({
    pace: options.pace,
    begin() {
      if (next(1) === null && ended()) api.seek(state.way === "token" ? { token: 1 } : { seconds: 0 });
      return courses().some((steps) => steps.length);
    },
    go() {
      const there = next(1);
      if (there !== null) move(there);
      else if (!ended()) api.follow(true);
      return there !== null;
    },
    seconds: () => (next(1) === null ? 0
      : Math.abs(clockOf(next(1)) - clockOf(state[state.way === "token" ? "token" : "seconds"]))),
    changed: (on) => (options.onPlay?.(on), request()),
  });
  const moves = transport({ to, play: () => replay.play(!replay.playing), playing: () => replay.playing,
    speed: replay.speed, faster: () => (replay.faster(), request()) }, "place");
  const live = button("● live", () => api.follow(true), { class: "live" });
  const where = h("b", { class: "where" }), how = h("span", { class: "quiet" });
  const twin = h("div", { class: "twin" }), parts = h("div", { class: "parts" });
  let tabled = false;
  const clock = h("section", { class: "clocks" }, h("header", null, h("h2", null, "Time"), how, lanes.key),
    h("div", { class: "lane-of-two" }, lanes.canvas), twin,
    h("div", { class: "transport" }, moves.parts, where, slider, live,
      toggle("Show as table", (on) => ((tabled = on), request()))));
  root.append(
    h("div", { class: "joined" }, h("span", { class: "quiet" }, "Align by"),
      h("span", { class: "switch", role: "group", "aria-label": "align by" }, ways.token, ways.clock), strip),
    h("div", { class: "sides tops" }, heads.map((one) => one.element)),
    clock,
    parts,
    h("div", { class: "sides" }, hosts)
  );
  element.append(root);
  const views = hosts.map((host, which) =>
    mount(host, {
      views: options.views || ["tree", "text"],
      label: options.labels?.[which] || `run ${letters[which]}`,
      empty: options.empty,
      keys: [["a", "join by token, or by the clock"], [letters.map((x, k) => k + 1).join(" "),
        `to run ${letters.join(", ")}`]],
      onGap: options.onGap && ((from, to) => options.onGap(which, from, to)),
      onSeek: (i) => moved(which, i),
      onDue: () => request(),
      onMove: options.onMove,
    })
  );
  const stores = views.map((view) => view.store), ended = () => stores.every((store) => store.end);

  // ---- where it stands

  let kept = [];
  /** All courses, counted anew when steps have come. */
  function courses() {
    return stores.map((store, k) => {
      const as = `${store.count} ${store.come}`;
      if (kept[k]?.as !== as)
        kept[k] = { as, whole: store.come === store.count,
          steps: course(store, kept[k]?.whole && kept[k].steps.length <= store.count ? kept[k].steps : []) };
      return kept[k].steps;
    });
  }
  /** The steps that are shown. */
  const placed = () =>
    courses().map((steps) =>
      (state.following ? steps.length - 1
      : state.way === "token" ? byToken(steps, state.token) : byClock(steps, state.seconds))
    );
  /** When a place is reached: a time is one already, a token has that of the run that writes it last. */
  const clockOf = (place) => (state.way === "clock" ? place
    : Math.max(0, ...courses().map((steps) => (steps.length ? steps[byToken(steps, place)].end : 0))));
  /** The next place, or the one before, at which one of the runs shows another step; null where there is none. */
  function next(way) {
    const by = state.way === "token", here = by ? state.token : state.seconds;
    let found = null;
    for (const steps of courses())
      for (const step of steps) {
        const x = by ? step.tokens : step.start;
        if ((x - here) * way > 0 && (!by || x > 0) && (found === null || (found - x) * way > 0)) found = x;
      }
    return found;
  }
  function to(way) {
    if (way === Infinity) return api.follow(true);
    if (way === -Infinity) return api.seek(state.way === "token" ? { token: 1 } : { seconds: 0 });
    replay.play(false);
    for (let k = 0; k < Math.abs(way); k++) {
      const there = next(Math.sign(way));
      if (there !== null) move(there);
    }
  }
  /** Go to a token or a time, whichever the way counts. */
  function move(place) {
    state[state.way === "token" ? "token" : "seconds"] = place;
    state.following = false;
    show();
  }
  function show() {
    own = true;
    placed().forEach((i, k) => (state.following ? views[k].follow(true)
      : i >= 0 && (views[k].at !== i || views[k].following) && views[k].seek(i))
    );
    own = false;
    options.onSeek?.({ token: state.token, seconds: state.seconds });
    request();
  }
  /** A reader went to a step of one run. */
  function moved(which, i) {
    if (own) return;
    const step = courses()[which][i];
    if (!step) return;
    replay.play(false);
    Object.assign(state, { token: Math.max(1, step.tokens), seconds: step.start, following: false });
    show();
  }
  function seekTime(which, seconds) {
    const steps = courses()[which];
    if (state.way === "clock") api.seek({ seconds });
    else if (steps.length) api.seek({ token: Math.max(1, steps[byClock(steps, seconds)].tokens) });
  }

  // ---- drawing

  let width = 0, told = "", differsAs = null, drawn = 0, later = 0;
  function look() {
    root.classList.toggle("beside", (width = root.clientWidth) >= (letters.length > 2 ? 1300 : 800));
    lanes.look();
  }
  function draw() {
    const both = courses(), at = placed(), most = Math.max(1, ...both.map((steps) => steps.at(-1)?.tokens || 0)),
      long = Math.max(0, ...both.map((steps) => steps.at(-1)?.end || 0));
    if (state.following) Object.assign(state, { token: most, seconds: long });
    if (!state.following) {
      own = true; // steps that were waited for have come
      at.forEach((i, k) => i >= 0 && views[k].at !== i && views[k].seek(i));
      own = false;
    }
    for (const way of Object.keys(ways)) set(ways[way], { "aria-pressed": way === state.way });
    differs();
    stores.forEach(head);
    const byTokens = state.way === "token", splits = stores.map(parted);
    see(clock, both.some((steps) => steps.length));
    say(how, `the same ${byTokens ? "token" : "moment"}, each clock from the first step on`);
    set(slider, byTokens ? { min: 1, max: most, step: 1, "aria-label": "token" }
      : { min: 0, max: long, step: long / 2000 || 1, "aria-label": "seconds" });
    slider.value = byTokens ? state.token : state.seconds;
    say(where,
      byTokens ? `token ${grouped(state.token)} of ${grouped(most)}` : `${milli(state.seconds)} of ${milli(long)}`);
    set(slider, { "aria-valuetext": where.textContent });
    see(live, !(state.following || ended()));
    moves.draw();
    const reached = both.map((steps) => steps.length > 0 && steps.at(-1).tokens >= state.token);
    const x = both.map((steps, k) =>
      (!steps.length ? null : byTokens ? (reached[k] ? steps[at[k]].end : null) : Math.min(state.seconds, long))
    );
    const words = both.map((steps, k) => {
      if (!steps.length) return "no step yet";
      if (byTokens && !reached[k])
        return stores[k].end ? `ended after ${plural(steps.at(-1).tokens, "token")}`
          : `not yet: ${plural(steps.at(-1).tokens, "token")}`;
      if (byTokens) return `${k ? "" : `token ${grouped(state.token)} at `}${milli(steps[at[k]].end)}`;
      const over = state.seconds >= steps.at(-1).end && stores[k].end;
      return over ? `ended, ${plural(steps.at(-1).tokens, "token")}`
        : `step ${at[k]}, ${plural(at[k] ? steps[at[k] - 1].tokens : 0, "token")} before it`;
    });
    const places = splits.map((split) => (split.same ? Infinity : split.at));
    places[base] = Math.min(...places);
    const ends = both.map((steps, k) =>
      (!steps.length || steps.at(-1).tokens <= places[k] ? null : steps[byToken(steps, places[k] + 1)].end)
    );
    see(lanes.canvas, !tabled);
    see(twin, tabled);
    if (tabled) table(both);
    else if (width && due())
      lanes.draw(both.map((steps, k) => ({ store: stores[k], steps, at: at[k] })), { x, told: words, parted: ends });
    texts(splits, places);
  }
  /** Whether the lanes are drawn with this frame: while steps come, some times a second. */
  function due() {
    const now = performance.now(), wait = state.following && !ended() ? drawn + PACE - now : 0;
    clearTimeout(later);
    if (wait > 0) later = setTimeout(request, wait + 1);
    else drawn = now;
    return wait <= 0;
  }
  function differs() {
    const all = stores.map((store) => store.head), there = all.every((x) => x);
    see(strip, there);
    if (!there || differsAs?.every((x, k) => x === all[k])) return;
    differsAs = all;
    const rows = differing(...all);
    strip.classList.toggle("same", !rows.length);
    if (!rows.length) return strip.replaceChildren("All settings are the same.");
    const cell = (text) => h("td", null, text);
    strip.replaceChildren(
      h("details", rows.length < 5 ? { open: "" } : null,
        h("summary", null, `${plural(rows.length, "setting")} ${rows.length === 1 ? "differs" : "differ"}: `
          + `${rows.map(([what]) => what).join(", ")}`),
        h("table", null, h("thead", null, h("tr", null, ["", ...letters].map((x) => h("th", { scope: "col" }, x)))),
          h("tbody", null,
            rows.map(([what, ...told]) => h("tr", null, h("th", { scope: "row" }, what), told.map(cell))))))
    );
  }
  function head(store, k) {
    const one = heads[k], step = store.steps[store.count - 1], sum = step?.sum, rate = (x) => {
      const last = x.steps[x.count - 1]?.sum;
      return last && last.decode ? last.tokens / last.decode : 0;
    };
    see(one.element, store.head);
    if (!store.head) return;
    say(one.name, store.head.called);
    say(one.about, `${store.head.model.name}${store.end ? "" : store.count ? ", not ended yet" : ", waiting"}`);
    const ratio = rate(store) / rate(stores[base]), known = Number.isFinite(ratio) && ratio > 0;
    const [much, under] = k === base ? ["baseline", ""]
      : options.ratio?.(k)
        || (known ? [`× ${two(ratio)}`, `tokens/s of ${letters[base]}${ended() ? ", one run each" : " so far"}`]
          : ["", ""]);
    say(one.ratio, much);
    say(one.under, under);
    const target = step?.kv?.find((x) => x.lane === "target"),
      list = sum
        ? [
          [sum.decode ? two(sum.tokens / sum.decode) : "–", " tokens/s"],
          [sum.passes ? two(sum.tokens / sum.passes) : "–", " tokens / pass"],
          [grouped(sum.tokens), " tokens"],
        ] : [];
    if (target) list.push([size(target.bytes), " KV held"]);
    one.tell(list);
  }
  let partings = [];
  function parted(store, k) {
    if (partings[k]?.from !== base || partings[k].count > store.count)
      partings[k] = { from: base, split: parting(stores[base], store) };
    partings[k].count = store.count;
    return partings[k].split();
  }
  function texts(splits, places) {
    const known = stores.every((store) => store.count),
      as = JSON.stringify([splits, known, splits.map((split, k) => options.why?.(k, split))]);
    see(parts, known);
    if (as === told) return;
    told = as;
    views.forEach((view, k) => view.part(places[k] === Infinity ? null : places[k]));
    const said = (text) => (text === null ? "the end" : tokenOf(text, 16)), one = letters[base];
    parts.replaceChildren(...splits.flatMap((split, k) => {
      if (k === base) return [];
      const both = h("b", null, `${one} and ${letters[k]} `),
        go = button("go there", () => api.align("token", split.at + 1), { class: "small" });
      if (split.same)
        return h("p", null, both, ended() ? "wrote the same " : "are the same so far: ", plural(split.at, "token"),
          ".");
      return h("p", null, both,
        split.at ? `are the same up to token ${grouped(split.at)}; then ` : "part at the first token: ", `${one} has `,
        said(split.a), `, ${letters[k]} `, said(split.b), ". ", options.why?.(k, split), " ", go);
    }));
  }
  function rowsOf(steps, k) {
    const from = Math.max(0, Math.min(placed()[k] - 200, steps.length - 400)), ms = (x) => (1000 * x).toFixed(2);
    return steps.slice(from, from + 400).flatMap((x, i) => {
      const dt = stores[k].steps[i += from]?.dt;
      return dt ? [[letters[k], i, ms(x.start), ms(dt.draft), ms(dt.verify), ms(dt.all), x.tokens]] : [];
    });
  }
  function table(both) {
    twin.replaceChildren(
      grid("Steps of the runs, milliseconds from the first step on; at most 400 of each", ["run", "step", "start",
        "draft", "verify", "whole step", "tokens by its end"], both.flatMap(rowsOf))
    );
  }

  // ---- keys, sizes, theme

  root.addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select, [contenteditable]") || event.ctrlKey || event.metaKey
      || event.altKey) return;
    const { key } = event, go = { ArrowLeft: -1, ",": -1, ArrowRight: 1, ".": 1, "<": -10, ">": 10 }[key];
    if (go) to(go * (event.shiftKey && key.startsWith("Arrow") ? 10 : 1));
    else if (key === "Home") to(-Infinity);
    else if (key === "End" || key === "f") to(Infinity);
    else if (key === " " && !event.target.closest("button, a, summary")) replay.play(!replay.playing);
    else if (key === "a") api.align(state.way === "token" ? "clock" : "token");
    else if (views[key - 1]) options.onPane?.(key - 1), views[key - 1].root.focus();
    else return;
    event.preventDefault();
    event.stopPropagation(); // before the views, which would move only themselves
  }, true);
  let across = 0;
  const resize = new ResizeObserver(([entry]) => across !== (across = entry.contentRect.width) && request());
  resize.observe(element);
  const theme = themed(root, () => (lanes.restyle(), request()));

  const api = {
    views,
    root,
    /** Show a place: {token: counted from 1} or {seconds}. */
    seek({ token, seconds }) {
      replay.play(false);
      if (token !== undefined) state.token = Math.max(1, token);
      if (seconds !== undefined) state.seconds = Math.max(0, seconds);
      state.following = false;
      show();
    },
    /** Show the newest steps from now on. */
    follow(on) {
      state.following = on;
      if (on) replay.play(false);
      show();
    },
    play: (on) => replay.play(on),
    /** Join the runs by "token" or by "clock"; the place stays that of run A, or becomes token `at`. */
    align(way, at = null) {
      const [steps] = courses(), [here] = placed();
      if (way !== state.way && steps.length)
        Object.assign(state,
          way === "clock" ? { seconds: steps[here].start } : { token: Math.max(1, steps[here].tokens) });
      const changed = way !== state.way;
      state.way = way === "clock" ? "clock" : "token";
      if (changed) options.onAlign?.(state.way);
      if (at !== null) api.seek({ token: at });
      else show();
    },
    /** Measure against run k; draw again. */
    against: (k = base) => ((base = k), request()),
    theme: (name) => (theme.set(name), views.forEach((view) => view.theme(name))),
    destroy() {
      never(turn);
      clearTimeout(later);
      replay.play(false);
      resize.disconnect();
      theme.stop();
      for (const view of views) view.destroy();
      root.remove();
    },
    get at() {
      return { token: state.token, seconds: state.seconds, steps: placed() };
    },
    get way() {
      return state.way;
    },
    get following() {
      return state.following;
    },
    get playing() {
      return replay.playing;
    },
  };
  api.theme(options.theme || "auto");
  request();
  return api;
}
