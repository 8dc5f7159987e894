/* Verdicts judged again from the numbers of the record. */
import { nodesOf } from "./store.js";

/** A block's last i with u_i < h_i, and whether its weights follow from p and q. */
export function blockOf(step) {
  const { w, h: bounds, u } = step.rule || {};
  if (![w, bounds, u].every(Array.isArray) || bounds.length !== u.length || w.length !== u.length + 1) return null;
  const tried = nodesOf(step).filter((n) => n.r !== null);
  let last = 0;
  u.forEach((x, k) => x < bounds[k] && (last = k + 1));
  const due = tried.length === u.length ? tried.map((n, k) => Math.min(1, (w[k] * n.p) / n.q)) : [];
  const rows = u.map((x, k) => ({ k: k + 1, node: tried[k], w: w[k + 1], h: bounds[k], u: x, ok: x < bounds[k] }));
  return { last, rows, sound: due.every((x, k) => Math.abs(x - w[k + 1]) <= 1e-9 * Math.max(1, x)) };
}

/** k-SEQ's numbers at the place where `node` was tried: a success ends a place. */
export function planOf(step, node) {
  const k = step.verdict.tried.indexOf(node.id), ok = step.verdict.ok || [], rule = step.rule || {};
  let place = 0;
  for (let i = 0; i < k; i++) place += ok[i] ? 1 : 0;
  return Object.fromEntries(["alive", "rho", "b", "A", "optimum"].map((name) => [name, k < 0 ? undefined : rule[name]?.[place]]));
}

/** Is it exact matching: a greedy law, under which nothing is drawn? */
export const exact = (step) => step.verdict.tried.length > 0 && !step.rule && nodesOf(step).every((n) => n.r === null || (n.u === null && (n.p === 0 || n.p === 1)));

/** One trial judged again: true, false, or null where its numbers do not settle it. */
export function judged(step, rule, node) {
  if (node.r === null || step.forced) return null;
  rule = step.by?.name ?? rule;
  const { p, q, u, r } = node, told = step.rule, i = step.verdict.tried.indexOf(node.id);
  if (rule === "block" && told) return told.u && told.h ? told.u[i] < told.h[i] : null;
  if (rule === "typical" && told) return p > node.threshold;
  if (rule === "leniency" && told) return told.f ? u * q < told.f[i] : null;
  if (rule === "spectr" && told) return ((rho) => (rho === undefined ? null : u * (rho * q) < p))(planOf(step, node).rho);
  if (rule === "judge" && told) return told.j ? (u === null ? p > 0 : u * q < p) || told.j[i] > told.t : null;
  if (rule === "lossless" || exact(step)) return u === null ? r > 0 : u * q < r;
  return null;
}

/** Do the verdicts follow from the numbers? null where the rule says more than these. */
export function rederives(step, rule) {
  if (step.iteration) return fixedOf(step) === step.iteration.fixed;
  const nodes = nodesOf(step), tried = nodes.filter((n) => n.r !== null), { path, extra, ok } = step.verdict;
  const drawn = !extra || extra[0] === null ? null : extra[1] - 1e-12 <= extra[0] && extra[0] < extra[2] + 1e-12;
  if (!tried.length || drawn === false) return drawn;
  const verdicts = tried.map((n) => judged(step, rule, n));
  if (verdicts.includes(null)) return null;
  const by = new Map(nodes.map((n) => [n.id, n]));
  const told = ok || tried.map((n) => (n.status === "reject" ? 0 : 1));
  const order = ok ? step.verdict.tried.map((id) => by.get(id)) : tried;
  if (order.some((n, k) => !n || judged(step, rule, n) !== !!told[k])) return false;
  if (rule === "block" && step.rule) {
    const block = blockOf(step);
    return !!block && block.sound && (path.length - 1 === block.last || (!extra && path.length - 1 < block.last));
  }
  if (rule === "spectr" && step.rule) { // the path may run through another copy of an accepted token
    const kept = order.filter((n) => judged(step, rule, n)).map((n) => n.text), read = path.slice(1).map((id) => by.get(id).text);
    return read.every((text, k) => text === kept[k]) && (read.length === kept.length || !extra);
  }
  return path.slice(1).every((id) => judged(step, rule, by.get(id)) === true);
}

/** Final tokens after a pass: the guesses that it confirmed, and one more. */
export function fixedOf(step) {
  const { before, after } = step.iteration;
  let fixed = 1;
  while (fixed < before.length && before[fixed - 1][0] === after[fixed - 1][0]) fixed++;
  return Math.min(fixed, after.length);
}
