/* tools: the actions on one of the compared runs, in its header, and the run that it was forked from. */
import { button, h } from "../scope.js";
import { ask, isOver, open, paneTitle } from "../runs/runs.js";
import { go } from "../shared/address.js";
import { forms, saveMenu, viewsOf } from "../export/save.js";
import { LETTERS } from "./letters.js";

/** runs(): those that are compared; root(): the joint picture; refuse(error); choose(ids): compare these. Returns
 *  the elements of run k, and a function that redraws the origins of forks. */
export function toolsOf({ runs, root, refuse, choose }) {
  function tools(k) {
    const run = runs()[k],
      stop = button("Stop", () => ask(`ds/run/${run.id}/stop`, { method: "POST" }).catch(refuse), {
        "aria-label": `stop run ${LETTERS[k]}`,
      });
    run.stop = stop;
    run.origin = h("p", { class: "quiet origin" });
    stop.hidden = isOver(run);
    const views =
      () => [...viewsOf(root(), `of ${runs().map(paneTitle).join(" and ")}`),
        ...viewsOf(run.view.root, `${paneTitle(run)} step ${run.view.at}`, LETTERS[k])];
    const save = saveMenu(views, () => forms(run.id, isOver(run)), "Save");
    save.firstElementChild.setAttribute("aria-label", `save run ${LETTERS[k]}`);
    return h("div", { class: "tools" }, stop, save,
      button("In the Lab", () => (open(run.id), go("lab")), { "aria-label": `open run ${LETTERS[k]} in the Lab` }),
      button("Remove", () => choose(runs().filter((x) => x !== run).map((x) => x.id)), {
        "aria-label": `remove run ${LETTERS[k]}`,
      }), run.origin);
  }
  /** For a fork: the run that it continues, the step, and the fork's name. */
  function origins() {
    for (const run of runs()) {
      const fork = run.view?.store.head?.fork, k = fork ? runs().findIndex((x) => x.id === fork.of) : -1;
      const said = fork
        ? `fork of ${k < 0 ? `run ${String(fork.of).slice(0, 8)}` : LETTERS[k]} from step `
          + `${fork.step}${fork.name ? `: ${fork.name}` : ""}` : "";
      if (run.origin && run.origin.textContent !== said) run.origin.textContent = said;
    }
  }
  return { tools, origins };
}
