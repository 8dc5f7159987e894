/* Pair: two runs side by side under one scrubber, joined by the token that they wrote or by the clock. */
import { byClock, byToken, course, differing, methodName, parting } from "./alignment.js";
import { h, say, set, toggle } from "./elements.js";
import { lanesView } from "./lanes.js";
import { tokenOf } from "./marks.js";
import { mount } from "./mount.js";
import { grouped, milli, plural, size, two } from "./numbers.js";
import { player } from "./player.js";
import { themed } from "./theme.js";
import { transport } from "./time.js";

const KEYS_OF_TWO = [["a", "join by token, or by the clock"], ["1 2", "to the one run, the other"]];
const LETTERS = ["A", "B"];

/** Draw two runs into `element`. options: views (of each run), align ("token" or "clock"), pace, theme, empty, labels;
 *  onGap(which, from, to), onSeek({token, seconds}), onPlay(on), onAlign(way). What is pushed goes into views[0] and
 *  views[1], which are as `mount` gives them. */
export function pair(element, options = {}) {
  const state = { way: options.align === "clock" ? "clock" : "token", token: 1, seconds: 0, following: true };
  let own = false; // whether it is we who move the views
  const root = h("div", { class: "ds pair", role: "region", "aria-label": "two decoding runs", tabindex: -1 });
  const ways = { token: h("button", { type: "button" }, "token position"), clock: h("button", { type: "button" }, "wall clock") };
  for (const way of Object.keys(ways)) ways[way].addEventListener("click", () => api.align(way));
  const strip = h("div", { class: "differs" });
  const heads = LETTERS.map((letter) => {
    const name = h("b"), about = h("span", { class: "quiet" }), ratio = h("b", { class: "ratio" }), under = h("span", { class: "quiet" }), figures = h("div", { class: "figures" });
    return { element: h("header", { class: "run" }, h("span", { class: "letter" }, letter), h("div", null, name, about), h("div", { class: "much" }, ratio, under), figures), name, about, ratio, under, figures };
  });
  const hosts = LETTERS.map(() => h("div", { class: "host" }));
  const lanes = lanesView({ seekTime });
  const slider = h("input", { type: "range", class: "along", min: 1, max: 1, step: 1, value: 1 });
  slider.addEventListener("input", () => api.seek(state.way === "token" ? { token: Number(slider.value) } : { seconds: Number(slider.value) }));
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
    seconds: () => (next(1) === null ? 0 : Math.abs(clockOf(next(1)) - clockOf(state[state.way === "token" ? "token" : "seconds"]))),
    changed: (on) => (options.onPlay?.(on), request()),
  });
  const moves = transport({ to, play: () => replay.play(!replay.playing), playing: () => replay.playing, speed: replay.speed, faster: () => (replay.faster(), request()) }, "place");
  const live = h("button", { type: "button", class: "live" }, "● live");
  live.addEventListener("click", () => api.follow(true));
  const where = h("b", { class: "where" }), how = h("span", { class: "quiet" });
  const twin = h("div", { class: "twin" }), parts = h("p", { class: "parts" });
  let tabled = false;
  const clock = h("section", { class: "clocks" }, h("header", null, h("h2", null, "Time"), how, lanes.key), h("div", { class: "lane-of-two" }, lanes.canvas), twin,
    h("div", { class: "transport" }, moves.parts, where, slider, live, toggle("Show as table", (on) => ((tabled = on), request()))));
  root.append(h("div", { class: "joined" }, h("span", { class: "quiet" }, "Align by"), h("span", { class: "switch", role: "group", "aria-label": "align by" }, ways.token, ways.clock), strip),
    h("div", { class: "sides tops" }, heads.map((one) => one.element)), clock, parts, h("div", { class: "sides" }, hosts));
  element.append(root);
  const views = hosts.map((host, which) => mount(host, {
    views: options.views || ["tree", "text"],
    label: options.labels?.[which] || `run ${LETTERS[which]}`,
    empty: options.empty,
    keys: KEYS_OF_TWO,
    onGap: options.onGap && ((from, to) => options.onGap(which, from, to)),
    onSeek: (i) => moved(which, i),
    onDraw: () => request(),
    onMove: options.onMove,
  }));
  const stores = views.map((view) => view.store), ended = () => stores.every((store) => store.end);

  // ---- where it stands

  let kept = [];
  /** Both courses, counted anew when steps have come. */
  function courses() {
    return stores.map((store, k) => {
      const as = `${store.count} ${store.steps[store.count - 1]?.sum.decode} ${store.steps.reduce((n) => n + 1, 0)}`;
      if (kept[k]?.as !== as) kept[k] = { as, steps: course(store) };
      return kept[k].steps;
    });
  }
  /** The steps that are shown. */
  const placed = () => courses().map((steps) => (state.following ? steps.length - 1 : state.way === "token" ? byToken(steps, state.token) : byClock(steps, state.seconds)));
  /** When a place is reached: a time is one already, a token has that of the run that writes it last. */
  const clockOf = (place) => (state.way === "clock" ? place : Math.max(0, ...courses().map((steps) => (steps.length ? steps[byToken(steps, place)].end : 0))));
  /** The next place, or the one before, at which one of the runs shows another step; null where there is none. */
  function next(way) {
    const all = courses().flatMap((steps) => steps.map((x) => (state.way === "token" ? x.tokens : x.start)));
    const here = state.way === "token" ? state.token : state.seconds, further = all.filter((x) => (way > 0 ? x > here : x < here) && (state.way === "clock" || x > 0));
    return further.length ? (way > 0 ? Math.min(...further) : Math.max(...further)) : null;
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
    placed().forEach((i, k) => (state.following ? views[k].follow(true) : i >= 0 && (views[k].at !== i || views[k].following) && views[k].seek(i)));
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

  let frame = 0, told = "", differsAs = null;
  const request = () => (frame = frame || requestAnimationFrame(draw));
  function draw() {
    frame = 0;
    const both = courses(), at = placed(), most = Math.max(1, ...both.map((steps) => steps.at(-1)?.tokens || 0)), long = Math.max(0, ...both.map((steps) => steps.at(-1)?.end || 0));
    if (state.following) Object.assign(state, { token: most, seconds: long });
    if (!state.following) {
      own = true; // steps that were waited for have come
      at.forEach((i, k) => i >= 0 && views[k].at !== i && views[k].seek(i));
      own = false;
    }
    for (const way of Object.keys(ways)) set(ways[way], { "aria-pressed": way === state.way });
    root.classList.toggle("beside", root.clientWidth >= 800);
    lanes.look();
    differs();
    stores.forEach(head);
    const byTokens = state.way === "token", split = parting(...stores);
    clock.style.display = both.some((steps) => steps.length) ? "" : "none";
    say(how, byTokens ? "the same token on two clocks, each from its first step on" : "the same moment of both runs, each from its first step on");
    set(slider, byTokens ? { min: 1, max: most, step: 1, "aria-label": "token" } : { min: 0, max: long, step: long / 2000 || 1, "aria-label": "seconds" });
    slider.value = byTokens ? state.token : state.seconds;
    say(where, byTokens ? `token ${grouped(state.token)} of ${grouped(most)}` : `${milli(state.seconds)} of ${milli(long)}`);
    set(slider, { "aria-valuetext": where.textContent });
    live.style.display = state.following || ended() ? "none" : "";
    moves.draw();
    const reached = both.map((steps) => steps.length > 0 && steps.at(-1).tokens >= state.token);
    const x = both.map((steps, k) => (!steps.length ? null : byTokens ? (reached[k] ? steps[at[k]].end : null) : Math.min(state.seconds, long)));
    const words = both.map((steps, k) => {
      if (!steps.length) return "no step yet";
      if (byTokens && !reached[k]) return stores[k].end ? `ended after ${plural(steps.at(-1).tokens, "token")}` : `not yet: ${plural(steps.at(-1).tokens, "token")}`;
      if (byTokens) return `${k ? "" : `token ${grouped(state.token)} at `}${milli(steps[at[k]].end)}`;
      const over = state.seconds >= steps.at(-1).end && stores[k].end;
      return over ? `ended, ${plural(steps.at(-1).tokens, "token")}` : `step ${at[k]}, ${plural(at[k] ? steps[at[k] - 1].tokens : 0, "token")} before it`;
    });
    const parted = both.map((steps) => (split.same || !steps.length || steps.at(-1).tokens <= split.at ? null : steps[byToken(steps, split.at + 1)].end));
    lanes.canvas.style.display = tabled ? "none" : "";
    twin.style.display = tabled ? "" : "none";
    if (tabled) table(both);
    else if (root.clientWidth) lanes.draw(both.map((steps, k) => ({ store: stores[k], steps, at: at[k] })), { x, told: words, parted });
    texts(split);
  }
  function differs() {
    const [a, b] = stores.map((store) => store.head);
    strip.style.display = a && b ? "" : "none";
    if (!a || !b || (differsAs && differsAs[0] === a && differsAs[1] === b)) return;
    differsAs = [a, b];
    const rows = differing(a, b);
    strip.classList.toggle("same", !rows.length);
    if (!rows.length) return strip.replaceChildren("All settings are the same.");
    const cell = (text) => h("td", null, text);
    strip.replaceChildren(h("details", rows.length < 5 ? { open: "" } : null, h("summary", null, `${plural(rows.length, "setting")} ${rows.length === 1 ? "differs" : "differ"}: ${rows.map(([what]) => what).join(", ")}`),
      h("table", null, h("thead", null, h("tr", null, ["", "A", "B"].map((x) => h("th", { scope: "col" }, x)))), h("tbody", null, rows.map(([what, x, y]) => h("tr", null, h("th", { scope: "row" }, what), cell(x), cell(y)))))));
  }
  function head(store, k) {
    const one = heads[k], step = store.steps[store.count - 1], sum = step?.sum, rate = (x) => { const last = x.steps[x.count - 1]?.sum; return last && last.decode ? last.tokens / last.decode : 0; };
    one.element.style.display = store.head ? "" : "none";
    if (!store.head) return;
    say(one.name, methodName(store.head));
    say(one.about, `${store.head.model.name}${store.end ? "" : store.count ? ", running" : ", waiting"}`);
    const pace = stores.map(rate), ratio = pace[0] && pace[1] ? pace[1] / pace[0] : 0;
    say(one.ratio, k === 0 ? "baseline" : ratio ? `× ${two(ratio)}` : "");
    say(one.under, k === 0 ? "" : ratio ? (ended() ? "tokens/s of A, one run each" : "tokens/s of A so far") : "");
    const target = step?.kv?.find((x) => x.lane === "target"), list = sum ? [[sum.decode ? two(sum.tokens / sum.decode) : "–", " tokens/s"], [sum.passes ? two(sum.tokens / sum.passes) : "–", " tokens / pass"], [grouped(sum.tokens), " tokens"]] : [];
    if (target) list.push([size(target.bytes), " KV held"]);
    const as = JSON.stringify(list);
    if (one.as !== as) one.figures.replaceChildren(...list.map(([value, unit]) => h("span", null, h("b", null, value), unit)));
    one.as = as;
  }
  function texts(split) {
    const known = stores.every((store) => store.count), as = JSON.stringify([split, known, ended()]);
    parts.style.display = known ? "" : "none";
    if (as === told) return;
    told = as;
    for (const view of views) view.part(split.same ? null : split.at);
    if (split.same) return parts.replaceChildren(h("b", null, "Text "), ended() ? `Both wrote the same ${plural(split.at, "token")}.` : `The same so far: ${plural(split.at, "token")}.`);
    const said = (text) => (text === null ? "the end" : tokenOf(text, 16)), go = h("button", { type: "button", class: "small" }, "go there");
    go.addEventListener("click", () => api.align("token", split.at + 1));
    parts.replaceChildren(h("b", null, "Text "), split.at ? `The same up to token ${grouped(split.at)}; then A has ` : "They part at the first token: A has ", said(split.a), ", B ", said(split.b), ". ", go);
  }
  function table(both) {
    const ms = (x) => (1000 * x).toFixed(2), rows = both.flatMap((steps, k) => steps.flatMap((x, i) => (stores[k].steps[i] ? [[LETTERS[k], i, ms(x.start), ...["draft", "verify", "all"].map((part) => ms(stores[k].steps[i].dt[part])), x.tokens]] : [])));
    twin.replaceChildren(h("table", { class: "plain" }, h("caption", null, "Steps of both runs, milliseconds from the first step on"), h("thead", null, h("tr", null, ["run", "step", "start", "draft", "verify", "whole step", "tokens by its end"].map((x) => h("th", { scope: "col" }, x)))),
      h("tbody", null, rows.map((row) => h("tr", null, row.map((x) => h("td", null, String(x))))))));
  }

  // ---- keys, sizes, theme

  root.addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select, [contenteditable]") || event.ctrlKey || event.metaKey || event.altKey) return;
    const { key } = event, go = { ArrowLeft: -1, ",": -1, ArrowRight: 1, ".": 1, "<": -10, ">": 10 }[key];
    if (go) to(go * (event.shiftKey && key.startsWith("Arrow") ? 10 : 1));
    else if (key === "Home") to(-Infinity);
    else if (key === "End" || key === "f") to(Infinity);
    else if (key === " " && !event.target.closest("button, a, summary")) replay.play(!replay.playing);
    else if (key === "a") api.align(state.way === "token" ? "clock" : "token");
    else if (key === "1" || key === "2") views[Number(key) - 1].root.focus();
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
      if (way !== state.way && steps.length) Object.assign(state, way === "clock" ? { seconds: steps[here].start } : { token: Math.max(1, steps[here].tokens) });
      const changed = way !== state.way;
      state.way = way === "clock" ? "clock" : "token";
      if (changed) options.onAlign?.(state.way);
      if (at !== null) api.seek({ token: at });
      else show();
    },
    theme: (name) => (theme.set(name), views.forEach((view) => view.theme(name))),
    destroy() {
      cancelAnimationFrame(frame);
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
