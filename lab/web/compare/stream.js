/* stream: the steps of the live runs, as the panes take them. */
import { follow } from "../events/follow.js";
import { phase } from "../runs/phase.js";
import { isOver } from "../runs/runs.js";

const GATHER = 50; // ms in which the runs that are gone are reported together

/** runs(): those that are compared. changed(): one waits, runs or pauses; over(): one has ended; lost(kept,
 *  errors): some are gone: the remaining runs, and per run the error, or null. */
export function stream({ runs, changed, over, lost }) {
  const gone = new Map(); // run -> the sentence why
  let leaves = [], reporting = 0;

  function reportGone() {
    const all = runs(), errors = all.map((run) => (gone.has(run) ? new Error(gone.get(run)) : null));
    lost(all.filter((run) => !gone.has(run)), errors);
  }
  /** Take the records of one run. */
  const takesOf = (run) => ({
    head: (head) => run.view.push(head),
    step(step) {
      run.last = Math.max(run.last, step.i);
      phase(run.view);
      run.view.push(step);
    },
    state(state) {
      Object.assign(run, { status: state.status, named: state.named });
      run.view.expect(state.of || 0);
      phase(run.view, state);
      run.stop.hidden = isOver(run);
      changed();
    },
    end(end) {
      run.end = end;
      if (!isOver(run)) run.status = "done";
      run.stop.hidden = true;
      phase(run.view);
      run.view.push(end);
      over();
    },
    lost: (text) => run.view.note(text),
    gone(sentence) {
      gone.set(run, sentence);
      clearTimeout(reporting);
      reporting = setTimeout(reportGone, GATHER);
    },
  });
  function close() {
    clearTimeout(reporting);
    gone.clear();
    for (const leave of leaves.splice(0)) leave();
  }
  return {
    close,
    connect() {
      close();
      leaves = runs().filter((run) => !run.end).map((run) => follow(run.id, run.last, takesOf(run), true));
    },
  };
}
