/* stream: the steps of the live runs, from one stream of the server; a refused stream is requested again. */
import { phase } from "../runs/phase.js";
import { ask, isUnreachable, isOver, GONE } from "../runs/runs.js";

const WAIT = 500; // ms before a refused stream is requested again; doubled each time

/** runs(): those that are compared. changed(): one waits, runs or pauses; over(): one has ended; lost(kept,
 *  errors): some are gone: the remaining runs, and per run the error, or null. */
export function stream({ runs, changed, over, lost }) {
  let source = null, wait = WAIT;
  const later = (mine) => (setTimeout(reopen, wait, mine), (wait = Math.min(2 * wait, 15000)));

  function connect() {
    const going = runs().filter((run) => !run.end);
    if (!going.length) return;
    const mine =
      (source = new EventSource(`ds/compare/events?runs=${going.map((x) => x.id)}&after=${going.map((x) => x.last)}`));
    going.forEach((run, k) =>
      hear(run, (kind, act) =>
        mine.addEventListener(`${k}-${kind}`, (event) => mine === source && act(JSON.parse(event.data)))));
    mine.addEventListener("error", () => {
      if (mine !== source || going.every((run) => run.end)) return;
      mine.close();
      for (const run of going)
        if (!run.end)
          run.view.note(
            wait > 4 * WAIT ? GONE : run.last < 0 ? "reconnecting…" : `reconnecting, last step ${run.last}`
          );
      later(mine);
    });
    /** Take the messages of one run. */
    function hear(run, on) {
      on("head", (head) => run.view.push(head));
      on("step", (step) => {
        run.last = Math.max(run.last, step.i);
        wait = WAIT;
        phase(run.view);
        run.view.push(step);
      });
      on("state", (state) => {
        Object.assign(run, { status: state.status, named: state.named });
        run.view.expect(state.of || 0);
        phase(run.view, state);
        run.stop.hidden = isOver(run);
        changed();
      });
      on("end", (end) => {
        run.end = end;
        if (!isOver(run)) run.status = "done";
        run.stop.hidden = true;
        phase(run.view);
        run.view.push(end);
        if (going.every((x) => x.end)) mine.close();
        over();
      });
    }
  }
  /** The stream was refused: check which runs still exist, and continue with those. */
  async function reopen(mine) {
    const there = await Promise.all(runs().map((run) => ask(`ds/run/${run.id}`).then(() => null, (error) => error)));
    if (mine !== source) return;
    const errors = there.map((error) => (error && !isUnreachable(error) ? error : null));
    if (errors.some(Boolean)) lost(runs().filter((run, k) => !errors[k]), errors);
    else if (there.some(Boolean)) {
      for (const run of runs()) if (!run.end) run.view.note(GONE);
      later(mine);
    } else connect();
  }
  return { connect, close: () => (source?.close(), (source = null)) };
}
