/* drafter_knobs: the drafter's own knobs, which a fork may change: another depth, tree or draft. */
import { h } from "../../scope.js";
import { ask } from "../../runs/runs.js";
import { knobSet } from "../knobs.js";

/** changed(): called when one of them has changed. */
export function drafterKnobs(changed) {
  const knobs = knobSet("input", changed),
    element = h("details", { class: "shape", hidden: "" }, h("summary", null, "Another depth, tree or draft"),
      knobs.element);
  let asked = 0;
  return {
    element,
    /** Request the knobs of the run with this id, "": there is none; they begin with the run's values. */
    async fill(run) {
      const mine = ++asked, put = (all, path) => ((element.hidden = !all.length), knobs.fill(all, path), changed());
      put([]);
      if (!run) return;
      const answer = await ask(`ds/run/${run}/knobs`).catch(() => null); // of a part that is not known here
      if (answer && mine === asked) put(answer.knobs, `ds/files/drafter/${answer.drafter}`);
    },
    /** The changed values, as parts of a change; empty: nothing. */
    change() {
      const drafter = knobs.values(true);
      return Object.keys(drafter).length ? { drafter } : {};
    },
    wrong: knobs.wrong,
  };
}
