/* Fills: what passes over a canvas settled, and the arithmetic of it. Places are positions of the text. */
import { plural } from "./numbers.js";

/** What is settled after step i: place -> {step, rule, token, text}. */
export function settled(store, i) {
  const at = new Map();
  for (let k = 0; k <= i; k++) {
    for (const [place, rule, token, text] of store.steps[k]?.fill?.now ?? [])
      at.set(place, { step: k, rule, token, text });
    for (const place of store.steps[k]?.fill?.again ?? []) at.delete(place);
  }
  return at;
}

const shaped = new WeakMap(); // fill -> its open places, made when looked at
/** The open places of a pass: place -> {place, token, text, c, bar, rank, rule}, those that it settled with their rule;
 *  null where they were left out. */
export function offered(fill) {
  if (!fill.open) return null;
  if (shaped.has(fill)) return shaped.get(fill);
  const { open, c, tokens, which, bars, order } = fill, rules = new Map(fill.now);
  const ranks = [...open.keys()].sort((a, b) => (order ? order[a] - order[b] : c[b] - c[a]) || a - b);
  const rank = new Map(ranks.map((k, n) => [k, n + 1]));
  const all = new Map(open.map((place, k) => [place, { place, token: tokens[which[k]][0], text: tokens[which[k]][1],
    c: c[k], bar: bars ? (bars[k] ?? bars[0]) : null, rank: rank.get(k), rule: rules.get(place) ?? null }]));
  shaped.set(fill, all);
  return all;
}

/** Does what was settled follow from count, ranks and bars? null where that was left out. */
export function follows(fill) {
  const all = offered(fill);
  const apart = new Set((fill.vetoes ?? []).flatMap(([place, , , together]) => together ? [place] : []));
  return all && [...all.values()].every(({ place, c, bar, rank, rule }) =>
    ((rank <= fill.count || (bar !== null && c >= bar)) && !apart.has(place)) === (rule !== null))
    && fill.now.every(([place, , token]) => all.get(place)?.token === token);
}

/** The candidates of a place in all passes up to step i: [{step, token, text, c}]. */
export const proposed = (store, i, place) =>
  store.steps.slice(0, i + 1).flatMap((step, k) => {
    const one = step?.fill && offered(step.fill)?.get(place);
    return one ? [{ step: k, ...one }] : [];
  });

/** What a step settled, in one clause. */
export const filledSays = (step) => {
  const { now, open, again } = step.fill, all = open ? plural(open.length, "open place") : "the open places";
  return `${now.length} of ${all} settled${again ? `, ${again.length} masked again` : ""}, text up to place `
    + emitted(step);
};

/** What is settled after step i and is not in the text, since a place before it is open: [{place, step, token, text}],
 *  by place. Nothing waits when the run has ended: behind the end of the text no place will be emitted. */
export function heldUp(store, i) {
  if (store.end && i === store.count - 1) return [];
  const out = store.steps[i].fill.at[0] + emitted(store.steps[i]);
  return [...settled(store, i)].filter(([place]) => place >= out).sort(([a], [b]) => a - b)
    .map(([place, one]) => ({ place, ...one }));
}

/** Places that are emitted after a step, counted from the canvas's first. */
export const emitted = (step) => Math.max(0, step.n + step.made.length - step.fill.at[0]);
