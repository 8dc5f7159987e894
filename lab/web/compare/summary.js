/* summary: the figures of the compared runs, requested when steps have come: at once when all runs are complete,
 * else from time to time. */
import { ask } from "../runs/runs.js";

const FRESH = 3000; // ms between two requests for the figures of live runs

/** now: what is compared; the server's figures become its `summary`. drawn(): they may be drawn, as they are;
 *  again(): there are other figures, or none; refuse(error). Returns a function that checks whether to ask. */
export function summaryPoll(now, { drawn, again, refuse }) {
  let asked = "", timer = 0, soon = false, last = -Infinity;
  const ids = () => now.runs.map((run) => run.id).join(),
    stand = () => now.runs.map((run) => `${run.id} ${run.view?.store.count} ${run.status}`).join();

  async function read() {
    timer = 0;
    last = performance.now();
    const mine = ids();
    asked = stand();
    try {
      const answer = await ask(`ds/compare/summary?runs=${mine}`);
      if (mine !== ids() || !now.both) return;
      now.summary = answer;
      now.both.against();
    } catch (error) {
      if (now.both) refuse(error);
    }
    again();
  }
  return () => {
    const over = now.runs.every((run) => run.end);
    if (timer && over && !soon) clearTimeout(timer), (timer = 0); // all is there now
    if (stand() === asked || timer) return drawn();
    soon = over;
    timer = setTimeout(read, over ? 50 : Math.max(50, FRESH - (performance.now() - last)));
  };
}
