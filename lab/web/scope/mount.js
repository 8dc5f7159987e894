/* Mount: puts the views of one run into an element, with cursor, keys and theme. */
import { cacheView } from "./cache.js";
import { cardView } from "./card.js";
import { firstOf } from "./decision.js";
import { h, say, see, toggle } from "./elements.js";
import { ending } from "./ends.js";
import { never, soon } from "./frame.js";
import { headline } from "./headline.js";
import { notesView } from "./notes.js";
import { plural } from "./numbers.js";
import { player } from "./player.js";
import { roofView } from "./roof.js";
import { Store } from "./store.js";
import { stripView } from "./strip.js";
import { textView } from "./text.js";
import { themed } from "./theme.js";
import { timeView } from "./time.js";
import { legend, treeView } from "./tree.js";

const VIEWS = ["strip", "tree", "card", "text", "cache", "notes", "time", "roof"];
const KEYS = [
  ["← →", "step back, on; with Shift ten"],
  ["Home End", "first, last step"],
  ["Space", "play, pause"],
  ["f", "follow the run"],
  ["h l", "in the tree: parent, child"],
  ["j k", "next, previous sibling"],
  ["Enter Esc", "to the card, and back"],
  ["r R", "next, previous rejection"],
  ["e E", "next, previous eviction"],
  ["[ ]", "along the cache map; Enter one row, j k the next"],
  ["?", "this list"],
];

/** Draw a run into `element`. options: views, label, empty (a sentence while there is no run), pace (of the replay:
 *  "1/s", "2/s", "8/s", "1×"), keys (more lines of the list of keys); onGap(from, to) is asked for steps that are
 *  missing or not whole (without it, `without` says in a sentence why some are not), onSeek(i) is told where the view
 *  stands, onPlay(on) whether it replays, onDue() that it is about to be drawn, onMove() that another step is shown or
 *  has come. */
export function mount(element, options = {}) {
  const store = new Store();
  const chosen = options.views || VIEWS;
  const context = {
    at: -1,
    following: true,
    selection: null,
    seek: (i) => view.seek(i),
    follow: (on) => view.follow(on),
    to: (way) => (way === Infinity ? view.follow(true) : view.seek(way === -Infinity ? 0 : context.at + way)),
    select: (node) => view.select({ step: context.at, node }),
    chosen: (x, i) => (context.selection?.step === i ? context.selection.node : firstOf(x.steps[i])),
    redraw: () => request(),
    play: (on = !replay.playing) => replay.play(on),
    playing: () => replay.playing,
    speed: () => replay.speed(),
    faster: () => (replay.faster(), request()),
    parted: null,
    waits: !!options.onGap,
    /** Why something of a step is not shown: it is on its way, or this place does not hold it. */
    absent(x, what) {
      if (options.onGap) return "fetching this step…";
      const held = x.steps.flatMap((step, k) => (step?.nodes ? [k] : []));
      const which = held.length
        ? `; ${held.length === 1 ? `step ${held[0]} is` : `steps ${held[0]} to ${held.at(-1)} are`} here in full, `
          + "the others with text and times" : "";
      return `${what} was left out here${which}. ${options.without || ""}`.trim();
    },
    find: (what, way) => find(what, way),
    help: () => ((help.open ? help.close() : help.show()), help.open && help.focus()),
  };
  const replay = player({
    pace: options.pace,
    begin() {
      if (context.at >= store.count - 1 && store.end) view.seek(0);
      return store.count > 0;
    },
    go() {
      if (context.at < store.count - 1) view.seek(context.at + 1, true);
      else if (!store.end) view.follow(true);
      else return false;
      return !context.following;
    },
    seconds: () => store.steps[context.at]?.dt.all,
    changed: (on) => (options.onPlay?.(on), request()),
  });
  const help = h("dialog", { class: "keys", "aria-label": "keys", tabindex: -1 },
    h("dl", null,
      [...KEYS, ...(options.keys || [])].map(([key, word]) =>
        h("div", null, h("dt", null, key), h("dd", null, word))
      )));
  const empty = h("p", { class: "empty" }, options.empty || "No run yet.");
  const veil = h("p", { class: "veil", role: "status" });
  const outcome = h("p", { class: "outcome", role: "status" });
  const reader = h("p", { class: "aloud", "aria-live": "polite" });
  const root = h("div", { class: "ds", role: "region", "aria-label": options.label || "decoding run", tabindex: -1 });
  const parts = [];
  const add = (part, parent = root) => (parts.push(part), parent.append(part.element), part);
  root.append(empty);
  if (chosen.includes("strip")) add(stripView(context));
  let tree = null, card = null;
  if (chosen.includes("tree")) {
    const section = h("section", { class: "tree-pane" });
    root.append(section);
    add(headline(context), section);
    section.append(outcome);
    tree = add(treeView(context), section);
    add(legend(toggle("Show as table", tree.table)), section);
  }
  if (chosen.includes("card")) card = add(cardView(context));
  if (chosen.includes("text")) add(textView(context));
  if (chosen.includes("cache")) add(cacheView(context));
  if (chosen.includes("notes")) add(notesView(context));
  if (chosen.includes("time")) add(timeView(context));
  if (chosen.includes("roof")) add(roofView(context));
  root.classList.toggle("roofed", chosen.includes("roof") && chosen.includes("time"));
  parts.reverse(); // canvases first: one that asks for its font waits for the style of all that changed before
  root.append(veil, help, reader);
  element.append(root);

  let width = 0, told = 0, asked = new Set(), gone = false;
  const request = () => gone || (options.onDue?.(), soon(turn));
  const turn = { look, draw, patient: () => context.following && !store.end };
  function look() {
    if (!(width = root.clientWidth)) return;
    root.classList.toggle("narrow", width < 700);
    root.classList.toggle("wide", !!card && !!tree && width >= 940);
    for (const part of parts) see(part.element, true);
    for (const part of parts) part.look?.(); // all widths are read before anything is drawn
  }
  function draw() {
    if (context.following) context.at = store.count - 1;
    const i = context.at;
    options.onMove?.();
    const end = store.end;
    if (i >= 0 && !store.whole(i) && (!context.following || end || context.selection?.step === i)) ask(i, i + 1);
    if (!width) return; // not to be seen: it is drawn when its width changes
    see(empty, !(store.head || store.count));
    for (const part of parts) part.draw(store, i, width);
    say(outcome, end && i === store.count - 1 ? ending(end) : "");
    see(outcome, outcome.textContent);
    outcome.classList.toggle("bad", !!end && !["stop_token", "max_new_tokens", "stopped_by_user"].includes(end.reason));
    if (store.map?.wants !== null && store.map?.wants <= i && store.map.upto < i)
      ask(store.map.wants, store.map.wants + 1);
    const time = performance.now();
    if (store.steps[i] && time - told > 1000) {
      told = time;
      const step = store.steps[i];
      say(reader, `step ${i}, ${step.drafted ? `${step.made.filter((m) => m[2] === "accept").length} of `
        + `${step.drafted} accepted` : plural(step.made.length, "token")}`);
    }
  }
  /** Go to the next step (way 1) or the one before (-1) in which something was refused, or evicted from the target. */
  function find(what, way) {
    const has = (step) =>
      step && (what === "refused" ? step.refused > 0 : step.kv.some((x) => x.lane === "target" && x.evicted > 0));
    let i = context.at + way;
    while (i >= 0 && i < store.count && !has(store.steps[i])) i += way;
    if (i < 0 || i >= store.count)
      return say(reader, `no ${way > 0 ? "further" : "earlier"} ${what === "refused" ? "rejection" : "eviction"}`);
    view.seek(i);
  }
  function ask(from, to) {
    const key = `${from}-${to}`;
    if (!options.onGap || asked.has(key)) return;
    asked.add(key);
    options.onGap(from, to);
  }

  let across = 0;
  const resize = new ResizeObserver(([entry]) => {
    if (across !== (across = entry.contentRect.width)) request(); // its height is our own doing
  });
  resize.observe(element);
  const restyle = () => {
    for (const part of parts) part.restyle?.();
    request();
  };
  const theme = themed(root, restyle);
  document.fonts?.ready.then(restyle);
  root.addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select, [contenteditable]") || event.ctrlKey || event.metaKey
      || event.altKey) return;
    const { key } = event, at = context.at, node = context.chosen(store, at);
    const go = { ArrowLeft: -1, ",": -1, ArrowRight: 1, ".": 1, "<": -10, ">": 10 }[key];
    if (go) view.seek(at + go * (event.shiftKey && key.startsWith("Arrow") ? 10 : 1));
    else if (key === "Home") view.seek(0);
    else if (key === "End" || key === "f") view.follow(true);
    else if (key === " " && !event.target.closest("button, a, summary")) context.play();
    else if ("jkhl".includes(key) && tree) {
      const next = tree.step(key, node);
      if (next !== null) context.select(next);
    } else if (key === "Enter" && !event.target.closest("button, a, summary") && card) {
      if (node !== null) context.select(node);
      card.focus();
    } else if (key === "Escape" && help.open) help.close();
    else if (key === "Escape" && card?.element.contains(event.target)) tree?.focus();
    else if (key === "r" || key === "R") find("refused", key === "R" ? -1 : 1);
    else if (key === "e" || key === "E") find("evicted", key === "E" ? -1 : 1);
    else if (key === "?") context.help();
    else return;
    event.preventDefault();
  });

  const view = {
    /** Append one message; a hole before it is asked for. */
    push(message) {
      if (!store.push(message)) return;
      if (message.kind === "step" && message.i > 0 && !store.steps[message.i - 1]) {
        let from = message.i - 1;
        while (from > 0 && !store.steps[from - 1]) from--;
        ask(from, message.i);
      }
      request();
    },
    /** The run has so many steps, and they are on their way; 0: all are there. */
    expect: (total) => ((store.total = total), request()),
    /** Show step i and stay there. */
    seek(i, replayed = false) {
      if (!store.count) return;
      if (!replayed) replay.play(false);
      context.at = Math.max(0, Math.min(store.count - 1, i));
      context.following = false;
      if (!store.whole(context.at)) ask(context.at, context.at + 1); // on its way while the rest is drawn
      options.onSeek?.(context.at);
      request();
    },
    /** Show the newest step from now on. */
    follow(on) {
      context.following = on;
      if (on) {
        replay.play(false);
        context.at = store.count - 1;
        options.onSeek?.(context.at);
      }
      request();
    },
    /** Ring one node of one step. */
    select({ step, node }) {
      context.selection = { step, node };
      if (step !== context.at) view.seek(step);
      options.onSelect?.(context.selection);
      request();
    },
    /** "auto", "light" or "dark". */
    theme: (name) => theme.set(name),
    /** Play the steps one after the other from here, or stop that. */
    play: (on) => replay.play(on),
    /** Mark token n of the text, counted from 0, as the one where two texts part; null: none. */
    part(n) {
      context.parted = n;
      request();
    },
    /** A sentence over the picture ("reconnecting…"); empty to take it away. */
    note(sentence) {
      say(veil, sentence);
      root.classList.toggle("veiled", !!sentence);
    },
    /** Forget everything: another run begins. */
    clear() {
      Object.assign(store, new Store());
      replay.play(false);
      asked = new Set();
      Object.assign(context, { at: -1, following: true, selection: null });
      request();
    },
    /** Forget what was asked for, so that it is asked for again. */
    retry: () => (asked.clear(), request()),
    destroy() {
      replay.play(false);
      gone = true;
      never(turn);
      resize.disconnect();
      theme.stop();
      root.remove();
    },
    get at() {
      return context.at;
    },
    get selection() {
      return context.selection;
    },
    get following() {
      return context.following;
    },
    get playing() {
      return replay.playing;
    },
    store,
    root,
  };
  view.theme(options.theme || "auto");
  request();
  return view;
}
