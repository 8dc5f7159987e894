/* Verdicts judged again from the numbers of the record, by what the rule says of itself: the head's `telling`, or the
 * step's. */
import { follows } from "./fills.js";
import { prob } from "./numbers.js";
import { nodesOf } from "./store.js";
import { weighed } from "./tally.js";

const DOES = { "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "/": (a, b) => a / b,
  "**": (a, b) => a ** b, min: Math.min, max: Math.max, exp: Math.exp, log: Math.log };
/** Whether two numbers stand in a relation; null where one is missing. within: a share by which they may miss it. */
export function agree(a, sign, b, within) {
  if (a === null || b === null) return null;
  const near = Math.abs(a - b) <= within * Math.max(1, Math.abs(a), Math.abs(b));
  return sign === "!=" ? !near : near || (sign === "<=" ? a < b : sign === ">=" && a > b);
}

/** The number that a formula gives (a number, a name, or what is done and to what); null where one is not recorded. */
export function workOut(formula, names) {
  if (typeof formula !== "object") return typeof formula === "number" ? formula : names(formula);
  const [does, ...parts] = formula;
  if (does === "before") return names(parts[0], true);
  const numbers = parts.map((part) => workOut(part, names)),
    result = numbers.includes(null) ? null : DOES[does](...numbers);
  return Number.isFinite(result) ? result : null;
}
const written = (x, form) => (form === "g" ? String(x) : form ? x.toFixed(form) : prob(x));

/** What the rule of a step says of itself; null where that is not known. */
export const tellingOf = (step, head) => (step.telling === undefined ? head?.telling : step.telling) ?? null;

/** The tests of a step: the nodes that were tried, in order, and what follows from their numbers. `i` counts them. */
export function testsOf(step, head) {
  const telling = tellingOf(step, head), knobs = step.by ?? head?.method?.acceptance ?? {},
    by = new Map(nodesOf(step).map((n) => [n.id, n]));
  const { ok } = step.verdict, tried = step.verdict.tried.map((id) => by.get(id)).filter(Boolean),
    rule = step.rule || {};
  const matching = tried.length > 0 && !step.rule
    && tried.every((n) => (n.num ?? n.den ?? n.u) === null && [0, 1].includes(n.p));
  const path = matching || step.forced ? "walk" : telling?.path ?? "walk", seen = new Map();
  let place = 0; // a success ends a place whose copies are one; else a place is what its guesses continue
  const places = tried.map((n, i) => (path === "copies" ? (i && ok?.[i - 1] ? ++place : place)
    : (seen.has(n.parent) || seen.set(n.parent, seen.size), seen.get(n.parent)))
  );
  const num = (i) => tried[i].num ?? tried[i].r, den = (i) => tried[i].den ?? tried[i].q,
    bounded = (i) => tried[i].u === null && tried[i].den !== null;
  /** Whether the test keeps it: u * den < num, without a draw den < num, and without a bound 0 < num. */
  const passed = (i) => (tried[i].u !== null ? tried[i].u * den(i) < num(i) : num(i) > (bounded(i) ? den(i) : 0));
  /** The verdict that follows; null where the numbers do not settle it. */
  function stays(i) {
    if (step.forced || (!telling && !matching)) return null;
    if (matching || !telling.also || passed(i)) return passed(i);
    const [value, bound] = telling.also.map((one) => workOut(one, names(i)));
    return value === null || bound === null ? null : value > bound;
  }
  const last = () => tried.reduce((most, _, i) => (stays(i) ? i + 1 : most), 0);
  /** The numbers of a trial by name: its own, what the rule recorded, the rule's knobs. */
  const names = (i) => (name, before = false) => {
    const { p, r, q, u } = tried[i], own = { p, r, q, u, num: num(i), den: den(i), k: i + 1, count: tried.length };
    if (Object.hasOwn(own, name)) return own[name];
    if (name === "last") return last();
    const per = Object.hasOwn(telling?.columns ?? {}, name) ? telling.columns[name] : null, list = rule[name];
    const value = per === null ? knobs[name]
      : per === "step" ? list : list?.[per === "place" ? places[i] : i + (per === "running" && !before)];
    return typeof value === "number" ? value : null;
  };
  /** A sentence with the numbers of a trial; null where one is missing. */
  function said(i, parts) {
    const all = parts.map((part) =>
      (typeof part === "string" ? part
      : ((x) => (x === null ? null : written(x, part[1])))(workOut(part[0], names(i))))
    );
    return all.includes(null) ? null : all.join("");
  }
  const given = (wanted) => Object.entries(wanted).every(([name, value]) => knobs[name] === value);
  /** Whether what the rule says must hold of its record does. */
  const sound = () =>
    matching || !telling
    || telling.relations.every(([left, sign, right, within, when]) =>
      !given(when)
      || tried.every((_, i) => agree(workOut(left, names(i)), sign, workOut(right, names(i)), within) !== false)
    );
  return { telling, tried, matching, path, num, den, bounded, passed, stays, last, said, given, sound,
    value: (i, formula) => workOut(formula, names(i)), at: (node) => tried.indexOf(node) };
}

/** Do the verdicts follow from the numbers? null where the rule says more than these. */
export function rederives(step, head) {
  if (step.fill) return follows(step.fill);
  if (step.tally) return weighed(step.tally);
  if (step.iteration) return fixedOf(step) === step.iteration.fixed;
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

/** Final tokens after a pass: the guesses that it confirmed, and one more. */
export function fixedOf(step) {
  const { before, after } = step.iteration;
  let fixed = 1;
  while (fixed < before.length && before[fixed - 1][0] === after[fixed - 1][0]) fixed++;
  return Math.min(fixed, after.length);
}
