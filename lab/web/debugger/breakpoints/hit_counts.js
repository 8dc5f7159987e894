/* hit_counts: how often each breakpoint's condition holds in the displayed run, and where. */
import { plural } from "../../scope.js";
import { isOver } from "../../runs/runs.js";
import { allHits } from "../search.js";
import { list } from "./breakpoints.js";

/** counted(): called when another condition was counted. */
export function hitCounts(counted) {
  const all = new Map(); // text -> {as, run, steps, count, trouble}
  /** Count the hits of every condition in the run; in a live run only at its pauses. */
  function count(pane) {
    if (!pane?.id || (!isOver(pane) && pane.status !== "paused")) return;
    const as = `${pane.id} ${pane.view.store.count} ${isOver(pane)}`;
    for (const { text } of list) {
      if (all.get(text)?.as === as) continue;
      const mine = { ...(all.get(text)?.run === pane.id ? all.get(text) : {}), as, run: pane.id };
      all.set(text, mine);
      allHits(pane, text).then(
        (answer) => Object.assign(mine, answer, { trouble: "" }),
        (error) => Object.assign(mine, { steps: null, trouble: error.message })
      ).then(counted);
    }
  }
  /** [the text next to a condition while step `at` is shown, what went wrong]. */
  function words(text, pane, at) {
    const hit = all.get(text)?.run === pane.id ? all.get(text) : null;
    if (hit?.trouble) return ["!", hit.trouble];
    if (!hit?.steps) return ["", ""];
    const k = hit.steps.indexOf(at);
    return k >= 0 ? [`here, ${k + 1} of ${hit.count}`, ""]
      : [
        hit.count === 1 ? `at ${hit.steps[0]}`
          : hit.count ? plural(hit.count, "hit").replace(" ", hit.more ? "+ " : " ") : "no hit",
        "",
      ];
  }
  return { count, words };
}
