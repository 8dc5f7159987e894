/* Pair: two to four runs side by side under one scrubber, joined by token or by clock. */
import { clocks } from "./clocks.js";
import { differences } from "./differences.js";
import { divergences } from "./divergence.js";
import { button, h, set } from "../shared/elements.js";
import { bring } from "../shared/extras.js";
import { cancelDraw, requestDraw } from "../shared/frame.js";
import { mount } from "../mount.js";
import { places } from "./places.js";
import { runHead } from "./run_header.js";
import { runSync } from "./run_sync.js";
import { watchTheme } from "../shared/theme.js";

/** Draw runs into `element`. options: count (2 to 4), base (the baseline of the others), views (of each), align
 *  ("token" or "clock"), pace, theme, empty, labels; onGap(which, from, to), onSeek({token, seconds}), onPlay(on),
 *  onAlign(way), onPane(which); of a run: tools(which), ratio(which): [large, small], why(which, split) its text
 *  parts there; spare, loads: as `mount` takes them. Messages are pushed into views[0], views[1], ..., which are
 *  as `mount` returns them. */
export function pair(element, options = {}) {
  const letters = [..."ABCD"].slice(0, options.count || 2), turn = { look, draw }, request = () => requestDraw(turn);
  const views = [], stores = [], place = places(stores, options.align);
  const { replay, to, arrive, moved, seek, seekTime, follow, align } = runSync(place, views, options, request);
  let base = options.base || 0, width = 0;

  // ---- parts

  const ways = { token: button("token position", () => align("token"), { class: null }),
    clock: button("wall clock", () => align("clock"), { class: null }) };
  const strip = differences(letters), heads = letters.map((letter, k) => runHead(letter, options.tools?.(k)));
  const moves = { to, play: () => replay.play(!replay.playing), playing: () => replay.playing, speed: replay.speed,
    faster: () => (replay.faster(), request()) };
  const clock = clocks(letters, stores, place, { moves, seek, follow, seekTime, request });
  const parts = divergences(letters, stores, { show: (token) => align("token", token), why: options.why,
    mark: (k, token) => views[k].part(token) });
  const hosts = letters.map(() => h("div", { class: "host" }));
  const root = h("div", { class: "ds pair", role: "region", "aria-label": `${letters.length} decoding runs`,
    "data-n": letters.length, tabindex: -1 },
    h("div", { class: "joined" }, h("span", { class: "quiet" }, "Align by"),
      h("span", { class: "switch", role: "group", "aria-label": "align by" }, ways.token, ways.clock), strip.element),
    h("div", { class: "sides tops" }, heads.map((one) => one.element)), clock.element, parts.element,
    h("div", { class: "sides" }, hosts));
  element.append(root);
  const digits = letters.map((_, k) => k + 1).join(" ");
  views.push(...hosts.map((host, which) =>
    mount(host, {
      views: options.views || ["tree", "text"],
      label: options.labels?.[which] || `run ${letters[which]}`,
      empty: options.empty,
      keys: [["a", "join by token, or by the clock"], [digits, `to run ${letters.join(", ")}`]],
      onGap: options.onGap && ((from, to) => options.onGap(which, from, to)),
      onSeek: (i) => moved(which, i),
      onDue: () => request(),
      onMove: options.onMove,
      spare: options.spare,
      loads: options.loads,
    })
  ));
  stores.push(...views.map((view) => view.store));

  // ---- drawing

  function look() {
    root.classList.toggle("beside", (width = root.clientWidth) >= (letters.length > 2 ? 1300 : 800));
    clock.look();
  }
  function draw() {
    const courses = place.courses(), at = place.steps(), ended = place.ended();
    const most = Math.max(1, ...courses.map((steps) => steps.at(-1)?.tokens || 0)),
      longest = Math.max(0, ...courses.map((steps) => steps.at(-1)?.end || 0));
    if (place.following) Object.assign(place, { token: most, seconds: longest });
    else arrive(at);
    for (const way of Object.keys(ways)) set(ways[way], { "aria-pressed": way === place.way });
    strip.draw(stores.map((store) => store.head));
    const against = { store: stores[base], letter: letters[base] };
    const away = parts.fromPlain();
    heads.forEach((one, k) =>
      one.draw(stores[k], against, () => options.ratio?.(k), ended, away[k], options.name?.(k)));
    const splits = parts.splits(base);
    clock.draw({ courses, at, most, longest, parts: parts.firsts(splits, base), width });
    parts.draw(splits, base, ended);
  }

  // ---- keys, sizes, theme

  // before the views, which would move only themselves
  root.addEventListener("keydown", (event) => pairKey(event, { to, align, place, replay, views, options }), true);
  let across = 0;
  const resize = new ResizeObserver(([entry]) => across !== (across = entry.contentRect.width) && request());
  resize.observe(element);
  const theme = watchTheme(root, () => (clock.restyle(), request()));

  const api = {
    views,
    root,
    /** Show a place: {token: counted from 1} or {seconds}. */
    seek,
    /** Show the newest steps from now on. */
    follow,
    play: (on) => replay.play(on),
    /** Join the runs by "token" or by "clock"; the place stays that of run A, or becomes token `at`. */
    align,
    /** Make run k the baseline; draw again. */
    against: (k = base) => ((base = k), request()),
    theme: (name) => (theme.set(name), views.forEach((view) => view.theme(name))),
    destroy() {
      cancelDraw(turn);
      clock.stop();
      replay.play(false);
      resize.disconnect();
      theme.stop();
      for (const view of views) view.destroy();
      root.remove();
    },
    get at() {
      return { token: place.token, seconds: place.seconds, steps: place.steps() };
    },
    get way() {
      return place.way;
    },
    get following() {
      return place.following;
    },
    get playing() {
      return replay.playing;
    },
  };
  api.theme(options.theme || "auto");
  request();
  return api;
}

/** A key on the runs together. */
function pairKey(event, { to, align, place, replay, views, options }) {
  // the slider of the clock has them too: most moments show what the one before shows
  const clock = place.way === "clock" && event.target.matches(".along");
  if ((event.target.closest("input, textarea, select, [contenteditable]") && !clock) || event.ctrlKey || event.metaKey
    || event.altKey || (event.target.matches(".zoomed") && event.key.startsWith("Arrow"))) return;
  const { key } = event, go = { ArrowLeft: -1, ",": -1, ArrowRight: 1, ".": 1, "<": -10, ">": 10,
    ...(clock && { ArrowDown: -1, ArrowUp: 1 }) }[key];
  if (go) to(go * (event.shiftKey && key.startsWith("Arrow") ? 10 : 1));
  else if (key === "Home") to(-Infinity);
  else if (key === "End" || key === "f") to(Infinity);
  else if (key === " " && !event.target.closest("button, a, summary")) replay.play(!replay.playing);
  else if (key === "a") align(place.way === "token" ? "clock" : "token");
  else if (views[key - 1]) options.onPane?.(key - 1), views[key - 1].root.focus();
  else return;
  event.preventDefault();
  event.stopPropagation();
}

bring("pair", { pair });
