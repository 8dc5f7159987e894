/* Fills: the places settled by passes over a canvas, and their arithmetic. Places are positions of the text. */
import { holds, evaluate } from "../details/formulas.js";

/** The settled places after step i: place -> {step, rule, token, text}. */
export function settledAt(store, i) {
  const at = new Map();
  for (let k = 0; k <= i; k++) {
    for (const [place, rule, token, text] of store.steps[k]?.canvas?.now ?? [])
      at.set(place, { step: k, rule, token, text });
    for (const place of store.steps[k]?.canvas?.again ?? []) at.delete(place);
  }
  return at;
}

const shaped = new WeakMap(); // canvas -> its open places, computed on first use
/** The open places of a pass: place -> {place, token, text, c, bar, rank, rule, names}, settled ones with their
 *  rule; names: the values of names in the declaration's formulas. null if they were left out. */
export function openPlaces(fill) {
  if (!fill.open) return null;
  if (shaped.has(fill)) return shaped.get(fill);
  const { open, c, tokens, which, bars, order, count, form } = fill, rules = new Map(fill.now);
  const all = open.map((place, k) => ({ place, token: tokens[which[k]][0], text: tokens[which[k]][1], c: c[k],
    bar: bars ? (bars[k] ?? bars[0]) : null, rule: rules.get(place) ?? null, order: order?.[k] ?? null }));
  for (const one of all) one.names = (name) => ({ ...one, confidence: one.c, bars: one.bar, count })[name] ?? null;
  const keys = form.rank?.map((rank) => all.map(({ names }) => evaluate(rank, names)))
    .find((x) => !x.includes(null)) ?? [];
  [...all.keys()].sort((a, b) => keys[a] - keys[b] || a - b).forEach((k, n) => (all[k].rank = n + 1));
  const places = new Map(all.map((one) => [one.place, one]));
  shaped.set(fill, places);
  return places;
}

/** Whether the settled places follow from the declaration's relations; null if they were left out. */
export function agrees(fill) {
  const all = openPlaces(fill);
  const apart = new Set((fill.vetoes ?? []).flatMap(([place, , , together]) => together ? [place] : []));
  return all && [...all.values()].every(({ place, names, rule }) =>
    ((fill.form.settles ?? []).some((one) => holds(one, names)) && !apart.has(place)) === (rule !== null))
    && fill.now.every(([place, , token]) => all.get(place)?.token === token);
}

/** The places settled after step i that are not in the text, since a place before them is open: [{place, step,
 *  token, text}], by place. Nothing waits when the run has ended: after the end of the text no place will be
 *  emitted. */
export function waitingPlaces(store, i) {
  if (store.end && i === store.count - 1) return [];
  const out = store.steps[i].canvas.at[0] + emittedCount(store.steps[i]);
  return [...settledAt(store, i)].filter(([place]) => place >= out).sort(([a], [b]) => a - b)
    .map(([place, one]) => ({ place, ...one }));
}

/** Places that are emitted after a step, counted from the canvas's first. */
export const emittedCount = (step) => Math.max(0, step.n + step.made.length - step.canvas.at[0]);
