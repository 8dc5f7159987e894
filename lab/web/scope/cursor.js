/* Cursor: the position of a view in a run: its step, whether it follows the newest, what is selected; and its
 * replay. */
import { firstOf } from "./card/decision.js";
import { player } from "./player.js";

/** The context that the views of a run share. request(): ask for a drawing; ask(from, to): request steps;
 *  tell(sentence): announce it to screen readers. */
export function cursor(store, options, { request, ask, tell }) {
  const replay = player({
    pace: options.pace,
    begin() {
      if (context.at >= store.count - 1 && store.end) context.seek(0);
      return store.count > 0;
    },
    go() {
      if (context.at < store.count - 1) context.seek(context.at + 1, true);
      else if (!store.end) context.follow(true);
      else return false;
      return !context.following;
    },
    seconds: () => store.steps[context.at]?.dt.all,
    changed: (on) => (options.onPlay?.(on), request()),
  });
  const context = {
    at: -1,
    following: true,
    selection: null,
    parted: null, // the token of the text, counted from 0, where another text parts from it
    linked: null, // the text position of the token that is pointed at, or that it is a copy of
    waits: !!options.onGap,
    /** Show step i and stay there; `replayed`: the replay came here, and continues. */
    seek(i, replayed = false) {
      if (!store.count) return;
      if (!replayed) replay.play(false);
      context.at = Math.max(0, Math.min(store.count - 1, i));
      context.following = false;
      // it is requested while the rest is drawn
      if (!store.whole(context.at, options.spare)) ask(context.at, context.at + 1);
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
    to: (way) => (way === Infinity ? context.follow(true) : context.seek(way === -Infinity ? 0 : context.at + way)),
    /** Go to the next step (way 1) or the one before (-1) with a rejection, or with an eviction from the target. */
    find(what, way) {
      const has = (step) =>
        step && (what === "refused" ? step.refused > 0 : step.kv.some((x) => x.lane === "target" && x.evicted > 0));
      let i = context.at + way;
      while (i >= 0 && i < store.count && !has(store.steps[i])) i += way;
      if (i < 0 || i >= store.count)
        return tell(`no ${way > 0 ? "further" : "earlier"} ${what === "refused" ? "rejection" : "eviction"}`);
      context.seek(i);
    },
    /** Select one node, of this step or of another. */
    select: (node) => context.ring({ step: context.at, node }),
    ring({ step, node }) {
      context.selection = { step, node };
      if (step !== context.at) context.seek(step);
      options.onSelect?.(context.selection);
      request();
    },
    /** The node of step i that is chosen; of a canvas, which has no root, a place. */
    chosen(x, i) {
      const node = context.selection?.step === i ? context.selection.node : null, length = x.steps[i]?.canvas?.at[1];
      return node === null || (length && !(node >= 1 && node <= length)) ? firstOf(x.steps[i]) : node;
    },
    redraw: () => request(),
    play: (on = !replay.playing) => replay.play(on),
    playing: () => replay.playing,
    speed: () => replay.speed(),
    faster: () => (replay.faster(), request()),
    /** Why something of a step is not shown: it is being loaded, or is not available here. */
    absent(x, what) {
      if (options.onGap) return "fetching this step…";
      const held = x.steps.flatMap((step, k) => (step?.nodes ? [k] : []));
      const which = held.length
        ? `; ${held.length === 1 ? `step ${held[0]} is` : `steps ${held[0]} to ${held.at(-1)} are`} here in full, `
          + "the others with text and times" : "";
      return `${what} was left out here${which}. ${options.without || ""}`.trim();
    },
  };
  return context;
}
