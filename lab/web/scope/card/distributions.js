/* Distributions: the distributions at a place, and the residual of the target's after earlier rejections. */
import { nodesOf } from "../store.js";

// distributions are recorded in single precision: a smaller sum is rounding
const SURE = 1e-4;
/** The distributions at a place, after the trials in `refused` took their share: rows with the rest as the last
 *  one, so that p and left each add up to one; total is the residual's sum before normalization. Null where none
 *  are recorded; left is null where it cannot be computed. */
export function distributionsAt(step, place, refused = [], most = 5) {
  const tops = (step.tops || []).find(([at]) => at === place);
  if (!tops) return null;
  const [, entropy, rest, shown] = tops, by = new Map(nodesOf(step).map((n) => [n.id, n]));
  const ids = shown.map(([token]) => token), p = shown.map((x) => x[2]), q = shown.map((x) => x[3]);
  const sum = (list) => list.reduce((a, b) => a + b, 0);
  let left = null, total = null;
  if (refused.length && step.proposal === "onehot") {
    const gone = new Set(refused.map((n) => n.token)), over = p.map((x, k) => (gone.has(ids[k]) ? 0 : x)),
      all = sum(over) + rest[0];
    total = 1 - sum(refused.map((n) => n.p));
    if (total >= SURE) left = over.map((x) => x / all);
  } else if (refused.length && step.proposal !== "mixed" && sum(q) + rest[1] > SURE) {
    let r = p, law = q;
    for (let k = 0; k < refused.length && r; k++) {
      const over = r.map((x, j) => Math.max(0, x - law[j]));
      if (k === 0) total = sum(over) + rest[2];
      else {
        // the record no longer has the residual of the rest, but the next recorded number gives the scale
        const next = refused[k + 1]
          || [...by.values()].find((n) => n.r !== null && n.parent === place && n.id > refused[k].id);
        const extra = step.verdict.extra,
          own = extra && step.verdict.path.at(-1) === place ? [...by.values()].pop() : null;
        const known = next ? [next.token, next.r] : own ? [own.token, extra[2] - extra[1]] : null,
          at = known ? ids.indexOf(known[0]) : -1;
        total = at >= 0 && known[1] > SURE ? over[at] / known[1] : null;
      }
      r = total !== null && total >= SURE ? over.map((x) => x / total) : null;
      const taken = step.proposal === "without_replacement" ? ids.indexOf(refused[k].token) : -1;
      if (taken >= 0) law = law[taken] < 1 ? law.map((x, j) => (j === taken ? 0 : x / (1 - law[taken]))) : law;
    }
    if (r && sum(r) <= 1 + SURE) left = r;
  }
  const tried = [...by.values()].filter((n) => n.r !== null && n.parent === place).map((n) => n.token);
  const worth = (k) => (left ? left[k] : 0) + p[k] + q[k] / 1000;
  const ranked = ids.map((_, k) => k).sort((a, b) => worth(b) - worth(a)).slice(0, most);
  const order = [...new Set([...tried.map((token) => ids.indexOf(token)).filter((k) => k >= 0), ...ranked])];
  const other = ids.map((_, k) => k).filter((k) => !order.includes(k));
  const rows = order.map((k) => ({ token: ids[k], text: shown[k][1], p: p[k], q: q[k], left: left && left[k],
    tried: tried.includes(ids[k]) })
  );
  rows.push({ token: null, text: "", p: sum(other.map((k) => p[k])) + rest[0], q: sum(other.map((k) => q[k])) + rest[1],
    left: left && Math.max(0, 1 - sum(order.map((k) => left[k]))), tried: false });
  return { entropy, rows, total, drawn: sum(q) + rest[1] > SURE, left: !!left };
}
