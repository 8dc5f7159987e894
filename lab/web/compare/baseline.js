/* baseline: a run compared with the baseline: its relative speed, and why their texts part. */
import { formatFixed } from "../scope.js";

const prompts = new WeakMap(); // head -> its prompt in one string
const promptOf = (head) =>
  prompts.get(head)
    ?? (prompts.set(head, JSON.stringify([head.prompt.map(([id]) => id), head.prompt_tokens])), prompts.get(head));

/** Whether an interval of ratios excludes 1, so that one of the two is faster. */
export const isSignificant = ({ interval: [low, high] }) => low > 1 || high < 1;
/** A ratio with its interval, {median, interval, n}, shown next to its own figure where it is certain. */
export function ratioText({ median, interval: [low, high], n }) {
  const figures = `${formatFixed(low)} to ${formatFixed(high)} (95 %, n = ${n})`;
  return isSignificant({ interval: [low, high] }) ? figures
    : `not distinguishable from 1: × ${formatFixed(median)}, ${figures}`;
}

/** runs(), base(): the runs and the number of the baseline; pairs(): the server's result for every two, or
 *  nothing; repeated(a, b): the ratio of their speeds in repeats, or nothing. */
export function againstBaseline({ runs, base, pairs, repeated }) {
  const pairOf = (k) => pairs()?.find((x) => x.a === Math.min(k, base()) && x.b === Math.max(k, base()));
  /** Whether a run has another prompt than the baseline. */
  function apart(k) {
    const [a, b] = [runs()[base()], runs()[k]].map((run) => run.view?.store.head);
    return a && b && promptOf(a) !== promptOf(b);
  }
  /** Speed relative to the baseline: by the repeats, else the pair's own figure from one run each. */
  function ratio(k) {
    const again = repeated(runs()[base()].id, runs()[k].id);
    if (apart(k)) return ["", "another prompt: no ratio"];
    return again ? [isSignificant(again) ? `× ${formatFixed(again.median)}` : "", ratioText(again)] : null;
  }
  /** The known facts on the token at which two texts part. */
  function why(k, split) {
    const known = split.same ? null : pairOf(k);
    if (!known?.parted || known.at !== split.at) return "";
    if (known.gap === null) return "The distribution there was not recorded.";
    const nats = known.gap < 0.01 ? known.gap.toExponential(1) : formatFixed(known.gap),
      gap = `The target's two likeliest there were ${nats} nats apart`;
    return known.due === "same" && known.tied !== null ? `${gap}: ${known.tied ? "a numerical tie" : "no tie"}.`
      : `${gap}.`;
  }
  return { apart, ratio, why };
}
