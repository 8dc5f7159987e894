/* navigation: moving through a run: to the next breakpoint, to the next step, from decision to decision. */
import { NONE, ask, errorText } from "../runs/runs.js";
import { enabledConditions, list } from "./breakpoints/breakpoints.js";
import { nearest } from "./search.js";

/** Nodes of a step in the order in which they were decided. */
const decidedNodes = (one) => (!one?.verdict ? []
  : [...new Set([...one.verdict.tried, ...(one.verdict.extra ? [one.nodes.length - 1] : [])])]);

/** go(i, node), whole(i): of lab_sync.js; tell(sentence): why it cannot move; draw(): the stop or the run's state
 *  has changed. */
export function navigation(shared, { go, whole, tell, draw }) {
  const { store, live, chosen } = shared;
  const post = (action) =>
    ask(`ds/run/${shared.pane.id}/${action}`, { method: "POST" }).catch((error) => tell(errorText(error)));

  /** Let the run continue from its pause. */
  function leave() {
    shared.stop = shared.pane.broke = shared.met = null;
    shared.mine.follow(true);
  }
  async function onward(way) {
    const { mine, pane } = shared;
    tell("");
    if (!pane?.id) return tell(NONE);
    const texts = enabledConditions().map((one) => one.text);
    if (live() && way > 0 && (mine.following || mine.at >= store().count - 1)) {
      if (pane.status !== "paused")
        return tell(
          texts.length ? "The run is going: it pauses at the next breakpoint."
            : "The run is going, and no breakpoint is on: it goes to its end."
        );
      leave();
      await post("resume");
      return draw();
    }
    if (!texts.length)
      return tell(
        list.length ? "No breakpoint is on: tick one, or add one."
          : "There is no breakpoint yet: write a condition under Breakpoints."
      );
    if (!(await find(texts, way)) && live() && way > 0) mine.follow(true); // the next Continue lets the run continue
  }
  /** Go to the next step (way 1), or the one before, at which one of the conditions holds; `around`: continue at
   *  the other end. Returns whether there was one. */
  async function find(texts, way, around = false) {
    const { pane, mine } = shared, wanted = () => shared.pane === pane;
    if (!pane?.id) return false;
    tell("");
    try {
      const from = { first: mine.at + way, way, count: store().count, again: around, wanted };
      const best = await nearest(pane, texts, from);
      if (best === null) return false;
      if (!best)
        return void tell(
          `${texts.length === 1 ? `“${texts[0]}” does not hold` : "No breakpoint is met"} `
            + `${way > 0 ? "after" : "before"} step ${mine.at}.`
        );
      shared.stop = { step: best.step, text: best.text, why: best.why };
      await whole(best.step);
      if (wanted()) go(best.step, best.node);
      draw();
      return true;
    } catch (error) {
      tell(errorText(error));
    }
    return false;
  }
  async function next() {
    const { mine, pane } = shared;
    tell("");
    if (!pane?.id) return tell(NONE);
    if (live() && mine.at >= store().count - 1) {
      if (pane.status !== "paused") return tell("The run is going: pause it first, or let it come to a breakpoint.");
      leave();
      return post("step");
    }
    if (mine.at >= store().count - 1) return tell("This is the last step.");
    mine.seek(mine.at + 1);
  }
  async function decide(way) {
    const { mine, pane } = shared;
    tell("");
    if (!pane?.id || mine.at < 0) return tell(NONE);
    try {
      let i = mine.at;
      const first = decidedNodes(await whole(i)), k = first.indexOf(chosen()) + way;
      if (k in first && (way > 0 || first.includes(chosen()))) return go(i, first[k]);
      for (i += way; i >= 0 && i < store().count && shared.pane === pane; i += way) {
        const ids = decidedNodes(await whole(i));
        if (ids.length) return go(i, way > 0 ? ids[0] : ids.at(-1));
      }
      tell(way > 0 ? "There is no further decision." : "There is no earlier decision.");
    } catch (error) {
      tell(errorText(error));
    }
  }
  return { onward, find, next, decide };
}
