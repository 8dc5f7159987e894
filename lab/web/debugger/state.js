/* state: shared by the parts of the Debugger: the run as the Lab has it, the Debugger's own view of it, and where
 * it was stopped. */
import { firstOf } from "../scope.js";
import { isOver } from "../runs/runs.js";

/** State that the page passes to its parts. The page adds `mine`, the view that it has mounted. */
export function debuggerState() {
  const shared = {
    mine: null,
    pane: null, // the run that is shown
    stop: null, // {step, text, why}: where a condition held
    met: null, // the stop of a live run that was already shown
    store: () => shared.mine.store,
    theirs: () => shared.pane?.view,
    live: () => !!shared.pane?.id && !isOver(shared.pane),
    /** The chosen node of the displayed step, else its first. */
    chosen: () => {
      const { mine } = shared;
      return mine.selection?.step === mine.at ? mine.selection.node : firstOf(mine.store.steps[mine.at]);
    },
  };
  return shared;
}
