/* Verdicts judged again from the recorded numbers, by the evidence of the rule: the head's `telling`, or the
 * step's. */
import { agrees } from "../canvas/fills.js";
import { evaluate, holds, saySentence, writeNumber } from "../details/formulas.js";
import { nodesOf } from "../store.js";
import { tallyAgrees } from "./tally.js";

/** The evidence of a step's rule; null if it is unknown. */
export const tellingOf = (step, head) => (step.telling === undefined ? head?.telling : step.telling) ?? null;

/** The tests of a step: the tried nodes, in order, and the consequences of their numbers. `i` counts them. */
export function testsOf(step, head) {
  const telling = tellingOf(step, head), knobs = step.by ?? head?.method?.acceptance ?? {},
    by = new Map(nodesOf(step).map((n) => [n.id, n]));
  const { ok } = step.verdict, tried = step.verdict.tried.map((id) => by.get(id)).filter(Boolean),
    rule = step.rule || {};
  const matching = tried.length > 0 && !step.rule
    && tried.every((n) => n.num === null && n.den === null && n.u === null && (n.p === 0 || n.p === 1));
  const path = matching || step.forced ? "walk" : telling?.path ?? "walk", seen = new Map();
  let place = 0; // a success ends a place with copies that count as one; else a place is what its guesses continue
  const places = tried.map((n, i) => (path === "copies" ? (i && ok?.[i - 1] ? ++place : place)
    : (seen.has(n.parent) || seen.set(n.parent, seen.size), seen.get(n.parent)))
  );
  const num = (i) => tried[i].num ?? tried[i].r, den = (i) => tried[i].den ?? tried[i].q,
    bounded = (i) => tried[i].u === null && tried[i].den !== null;
  /** Whether the test keeps it: u * den < num, without a draw den < num, and without a bound 0 < num. */
  const passed = (i) => (tried[i].u !== null ? tried[i].u * den(i) < num(i) : num(i) > (bounded(i) ? den(i) : 0));
  /** The verdict that follows; null if the numbers do not determine it. */
  function stays(i) {
    if (step.forced || (!telling && !matching)) return null;
    if (matching || !telling.also || passed(i)) return passed(i);
    const [value, bound] = telling.also.map((one) => evaluate(one, names(i)));
    return value === null || bound === null ? null : value > bound;
  }
  const last = () => tried.reduce((most, _, i) => (stays(i) ? i + 1 : most), 0);
  /** The numbers of a trial by name: its own, what the rule recorded, the rule's knobs. */
  const names = (i) => (name, before = false) => {
    const own = { p: tried[i].p, r: tried[i].r, q: tried[i].q, u: tried[i].u, num: num(i), den: den(i), k: i + 1,
      count: tried.length };
    if (Object.hasOwn(own, name)) return own[name];
    if (name === "last") return last();
    const per = Object.hasOwn(telling?.columns ?? {}, name) ? telling.columns[name] : null, list = rule[name];
    const value = per === null ? knobs[name]
      : per === "step" ? list : list?.[per === "place" ? places[i] : i + (per === "running" && !before)];
    return typeof value === "number" ? value : null;
  };
  /** A sentence with the numbers of a trial; null where one is missing. */
  const said = (i, parts) => saySentence([parts], names(i), (x, form) => writeNumber(x, form || "p"));
  const given = (wanted) => Object.entries(wanted).every(([name, value]) => knobs[name] === value);
  /** Whether the record satisfies the rule's own conditions. */
  const sound = () =>
    matching || !telling
    || telling.relations.every((one) => !given(one[4]) || tried.every((_, i) => holds(one, names(i)) !== false));
  return { telling, tried, matching, path, num, den, bounded, passed, stays, last, said, given, sound,
    value: (i, formula) => evaluate(formula, names(i)), at: (node) => tried.indexOf(node) };
}

/** Whether the verdicts follow from the numbers; null if the rule depends on more than these. */
export function rederives(step, head) {
  if (step.canvas) return agrees(step.canvas);
  if (step.tally) return tallyAgrees(step.tally);
  if (step.chain) return fixedOf(step) === step.chain.fixed;
  const tests = testsOf(step, head), { tried, path: settled } = tests, { path, extra, ok } = step.verdict;
  const drawn = !extra || extra[0] === null ? null : extra[1] - 1e-12 <= extra[0] && extra[0] < extra[2] + 1e-12;
  if (!tried.length || drawn === false) return drawn;
  const stay = tried.map((_, i) => tests.stays(i));
  if (stay.includes(null)) return null;
  if (tried.length !== step.verdict.tried.length
    || stay.some((x, i) => x !== (ok ? !!ok[i] : tried[i].status !== "reject")) || !tests.sound()) return false;
  const kept = path.slice(1).map((id) => nodesOf(step).find((n) => n.id === id));
  if (settled === "last") return kept.length === tests.last() || (!extra && kept.length < tests.last());
  if (settled !== "copies") return kept.every((n) => stay[tests.at(n)] === true);
  // the path may run through another copy of an accepted token
  const due = tried.filter((_, i) => stay[i]).map((n) => n.text);
  return kept.every((n, k) => n.text === due[k]) && (kept.length === due.length || !extra);
}

/** Places of a row that a pass settles: those after places for which the declaration's relation holds. */
export function fixedOf({ chain: { form, before, after } }) {
  let fixed = 1;
  while (fixed < after.length && form.run && holds(form.run, (of) =>
    (of === "candidate" ? after : before)[fixed - 1]?.[0] ?? null)) fixed++;
  return Math.min(fixed, after.length);
}
