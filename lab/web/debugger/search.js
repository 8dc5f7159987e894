/* search: where a condition holds in a run, by the server's search. */
import { ask } from "../runs/runs.js";

/** The server's answer on the first step from `first` on (way 1), or backwards (-1), at which a condition holds:
 *  {step, node, why}; step null: none, or {more, next}: none as far as it has searched. */
export const firstHit = (pane, text, first, way) =>
  ask(`ds/run/${pane.id}/find?condition=${encodeURIComponent(text)}&from=${first}&way=${way}`);

/** All steps of a run at which a condition holds: {steps, count, more}. */
export const allHits = (pane, text) => ask(`ds/run/${pane.id}/find?condition=${encodeURIComponent(text)}&all=1`);

/** The nearest step from `first` on at which one of the conditions holds, {step, node, text, why}, or undefined;
 *  null if it is not wanted() any more. again: if there is none, from the beginning. */
export async function nearest(pane, texts, { first, way, count, again, wanted }) {
  const asked = async (text, from) => {
    const hit = await firstHit(pane, text, from, way);
    return hit.step === null && hit.more && wanted() ? asked(text, hit.next) : { ...hit, text };
  };
  const reach = first >= 0 && first < count;
  let all = reach ? await Promise.all(texts.map((text) => asked(text, first))) : [];
  if (again && !all.some((one) => one.step !== null)) all = await Promise.all(texts.map((text) => asked(text, 0)));
  if (!wanted()) return null;
  return all.filter((one) => one.step !== null).sort((a, b) => way * (a.step - b.step))[0];
}
