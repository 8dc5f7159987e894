/* question: what a section asks of the server. */
import { ask, errorText } from "../runs/runs.js";

const WAIT = 90; // ms in which questions are gathered into one

/** A question that is asked when its path differs from the last one; of several in a short time the last one counts.
 *  path() -> where to ask, or null where there is nothing to ask; take(answer, trouble): a sentence where it failed. */
export function question(path, take) {
  let last = null, timer = 0;
  const fire = async () => {
    const mine = path();
    timer = 0;
    if (mine === last) return;
    last = mine;
    if (mine === null) return take(null);
    try {
      const answer = await ask(mine);
      if (mine === last) take(answer);
    } catch (error) {
      if (mine === last) take(null, errorText(error));
    }
    if (path() !== last) tick();
  };
  const tick = () => {
    if (path() !== last && !timer) timer = setTimeout(fire, WAIT);
  };
  return { tick, forget: () => (last = null) };
}
