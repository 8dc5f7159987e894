/* Mount: puts the views of one run into an element, with cursor, keys and theme. */
import { cacheView } from "./cache/cache.js";
import { cardView } from "./card/card.js";
import { cursor } from "./cursor.js";
import { button, h, say, see, toggle } from "./shared/elements.js";
import { endText } from "./ends.js";
import { partFetcher, lateView } from "./shared/extras.js";
import { cancelDraw, requestDraw } from "./shared/frame.js";
import { headline } from "./headline.js";
import { keyList, runKey } from "./keys.js";
import { modelLink } from "./model/model_link.js";
import { notesView } from "./notes/notes.js";
import { plural } from "./shared/numbers.js";
import { roofView } from "./time/roof.js";
import { slotsView } from "./tree/slots.js";
import { Store } from "./store.js";
import { stripView } from "./strip.js";
import { tips } from "./shared/terms.js";
import { textView } from "./text/text.js";
import { watchTheme } from "./shared/theme.js";
import { timeView } from "./time/time.js";
import { legend, treeView } from "./tree/tree.js";

const VIEWS = ["strip", "tree", "card", "depth", "text", "cache", "notes", "model", "time", "roof"];
const PLAIN_ENDS = ["stop_token", "max_new_tokens", "stopped_by_user", "picture_full"]; // nothing went wrong

/** Put the views that are named in `chosen` into `root`: `now`, which shows what the step is, and `then`, which
 *  shows its other details; tree and card also by name. `outcome` is above the tree. */
function fill(root, context, chosen, outcome, extras) {
  const now = [], then = [];
  const add = (part, parent = root, parts = then) => (parts.unshift(part), parent.append(part.element), part);
  if (chosen.includes("strip")) add(stripView(context), root, now);
  let tree = null, card = null;
  if (chosen.includes("tree")) {
    const section = h("section", { class: "tree-pane" });
    root.append(section);
    const head = headline();
    section.append(head.element, outcome);
    tree = add(treeView(context), section, now);
    add(slotsView(context), section, now);
    add(legend(toggle("Show as table", tree.table), button("terms", context.help, { class: "small" })), section, now);
    now.splice(now.indexOf(tree), 1), now.unshift(tree), now.push(head);
  }
  if (chosen.includes("card")) card = add(cardView(context));
  if (chosen.includes("depth")) {
    add(lateView("depth", ({ depthView }) => depthView(context)));
    add(lateView("turns", ({ turnsView }) => turnsView(context)));
    add(lateView("scale", ({ scaleView }) => scaleView(context)));
  }
  if (chosen.includes("text")) {
    add(lateView("picture", ({ pictureView }) => pictureView(context)));
    add(lateView("prompt_compression", ({ compressionView }) => compressionView()));
    add(textView(context));
  }
  if (chosen.includes("cache")) add(cacheView(context));
  if (chosen.includes("notes")) {
    add(notesView(context));
    add(lateView("repeats", ({ repeatsView }) => repeatsView(context)));
  }
  if (chosen.includes("model") && extras.has("model")) add(modelLink(context, extras.want));
  if (chosen.includes("time")) add(timeView(context), root, now);
  if (chosen.includes("roof")) add(roofView(context));
  root.classList.toggle("roofed", chosen.includes("roof") && chosen.includes("time"));
  return { now, then, parts: [...now, ...then], tree, card };
}

/** The other details of a step, drawn in a frame of their own. wide(): px of the page. */
function restView(parts, store, context, wide, ask) {
  return { since: -Infinity, draw() {
    const i = context.at;
    for (const part of parts) part.draw(store, i, wide());
    if (store.map?.wants !== null && store.map?.wants <= i && store.map.upto < i)
      ask(store.map.wants, store.map.wants + 1);
  } };
}

/** Request steps, each stretch once: ask(from, to). */
function gapRequests(onGap) {
  const asked = new Set();
  const ask = (from, to) => {
    const key = `${from}-${to}`;
    if (!onGap || asked.has(key)) return;
    asked.add(key);
    onGap(from, to);
  };
  return { ask, forget: () => asked.clear() };
}

/** Let parts measure their widths, before anything is drawn; all: including the hidden ones, which are shown for
 *  it. */
function measure(parts, all) {
  if (all) for (const part of parts) see(part.element, true);
  for (const part of parts) if (all || part.element.style.display !== "none") part.look?.();
}

/** Draw a run into `element`. options: views, label, empty (a sentence while there is no run), pace (of the
 *  replay: "1/s", "2/s", "8/s", "1×"), keys (more lines of the list of keys); onGap(from, to) is asked for steps
 *  that are missing or not whole (without it, `without` says in a sentence why some are not), onSeek(i) is called
 *  with the view's step, onPlay(on) when replay starts or stops, onDue() when it is about to be drawn, onMove()
 *  when another step is shown or has come; spare: what may be missing of a step, as `Store.whole` takes it; loads:
 *  name -> how a part that few runs need is fetched, of those that are not here. */
export function mount(element, options = {}) {
  const store = new Store(), { ask, forget } = gapRequests(options.onGap), turn = { look, draw,
    patient: () => context.following && !store.end };
  let width = 0, looked = 0, heard = 0, across = 0, gone = false;
  const request = () => gone || (options.onDue?.(), requestDraw(turn)), extras = partFetcher(options.loads, request);
  const help = keyList(options.keys);
  const empty = h("p", { class: "empty" }, options.empty || "No run yet.");
  const veil = h("p", { class: "veil", role: "status" }), outcome = h("p", { class: "outcome", role: "status" }),
    reader = h("p", { class: "aloud", "aria-live": "polite" });
  const root = h("div", { class: "ds", role: "region", "aria-label": options.label || "decoding run", tabindex: -1 },
    empty);
  const context = cursor(store, options, { request, ask, tell: (sentence) => say(reader, sentence) });
  context.help = () => ((help.open ? help.close() : help.showModal()), help.open && help.focus());
  const { now, then, parts, tree, card } = fill(root, context, options.views || VIEWS, outcome, extras);
  const rest = restView(then, store, context, () => width, ask);
  root.append(veil, help, reader);
  element.append(root);
  tips(root);

  function look() {
    if (!(width = root.clientWidth)) return;
    root.classList.toggle("narrow", width < 700);
    root.classList.toggle("wide", !!card && !!tree && width >= 940);
    measure(parts, looked !== (looked = width)); // while the page has the same width, hidden parts have it too
  }
  function draw() {
    if (context.following) context.at = store.count - 1;
    const i = context.at;
    options.onMove?.();
    const end = store.end, stands = !context.following || end || context.selection?.step === i;
    if (i >= 0 && stands && !store.whole(i, options.spare)) ask(i, i + 1);
    if (!width || extras.due) return; // invisible: it is drawn when its width changes, or all of it is loaded
    see(empty, !(store.head || store.count));
    for (const part of now) part.draw(store, i, width);
    requestDraw(rest);
    say(outcome, end && i === store.count - 1 ? endText(end) : "");
    see(outcome, outcome.textContent);
    outcome.classList.toggle("bad", !!end && !PLAIN_ENDS.includes(end.reason));
    if (store.steps[i]) read(store.steps[i], i);
  }
  /** Announce a step to screen readers, at most one a second. */
  function read(step, i) {
    const time = performance.now();
    if (time - heard <= 1000) return;
    heard = time;
    say(reader, `step ${i}, ${step.drafted ? `${step.made.filter((m) => m[2] === "accept").length} of `
      + `${step.drafted} accepted` : plural(step.made.length, "token")}`);
  }

  const resize = new ResizeObserver(([entry]) => {
    if (across !== (across = entry.contentRect.width)) request(); // its height is our own doing
  });
  resize.observe(element);
  const restyle = () => {
    for (const part of parts) part.restyle?.();
    looked = 0;
    request();
  };
  const theme = watchTheme(root, restyle);
  document.fonts?.ready.then(restyle);
  root.addEventListener("keydown", (event) => runKey(event, context, store, { tree, card, help }));

  const view = {
    /** Append one message; a hole before it is requested. */
    push(message) {
      if (!store.push(message)) return;
      extras.ask(message);
      if (message.kind === "step" && message.i > 0 && !store.steps[message.i - 1]) {
        let from = message.i - 1;
        while (from > 0 && !store.steps[from - 1]) from--;
        ask(from, message.i);
      }
      request();
    },
    /** The run has so many steps, and they are being loaded; 0: all are there. */
    expect: (total) => ((store.total = total), request()),
    /** Show step i and stay there. */
    seek: (i) => context.seek(i),
    /** Show the newest step from now on. */
    follow: (on) => context.follow(on),
    /** Select one node of one step: {step, node}. */
    select: (selection) => context.ring(selection),
    /** "auto", "light" or "dark". */
    theme: (name) => theme.set(name),
    /** Play the steps one after another from here, or stop. */
    play: (on) => context.play(!!on),
    /** Mark token n of the text, counted from 0, as the one where two texts part; null: none. */
    part: (n) => ((context.parted = n), request()),
    /** A sentence over the picture ("reconnecting…"); empty to remove it. */
    note(sentence) {
      say(veil, sentence);
      root.classList.toggle("veiled", !!sentence);
    },
    /** Forget everything: another run begins. */
    clear() {
      Object.assign(store, new Store());
      context.play(false);
      forget();
      Object.assign(context, { at: -1, following: true, selection: null });
      request();
    },
    /** Forget what was requested, so that it is requested again. */
    retry: () => (forget(), request()),
    destroy() {
      context.play(false);
      gone = true;
      [turn, rest].forEach(cancelDraw);
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
      return context.playing();
    },
    store,
    root,
  };
  view.theme(options.theme || "auto");
  request();
  return view;
}
