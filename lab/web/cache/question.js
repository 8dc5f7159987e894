/* question: the request of a section to the server. */
import { ask, errorText } from "../runs/runs.js";

const WAIT = 90; // ms in which questions are gathered into one

/** A question that is sent when its path differs from the last one; of several in a short time only the last is
 *  sent. path() -> the address, or null if there is nothing to ask; take(answer, trouble): a sentence if it
 *  failed. */
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
