/* grid: the passes of a method that settles blocks, by pass and place of the text: which tokens were read, which
 * are final, and since when each token was right. */
import { onChange, panes, onStep } from "../runs/runs.js";
import { h, passesView, prob, tokenOf } from "../scope.js";

/** The block of a step; a step without its tree has it under another name. */
const blockOf = (step) => step?.chain ?? step?.settling;
const ROWS = 14; // passes that are shown at once
const KEY = "A row is a pass, a column a place of the text; shade: how likely the model finds the token after the "
  + "guesses before it. Bold, left of the stair: final. Framed: right from this pass on.";

/** Passes by place: {text, since}; text: place -> id that was written there; since: place -> the first pass from
 *  which on its token was always the written one. */
export function settledPlaces(steps) {
  const text = new Map(), since = new Map();
  for (const step of steps) step?.made.forEach(([id], k) => text.set(step.n + k, id));
  for (const step of steps) {
    blockOf(step)?.after.forEach(([id], k) => {
      const place = blockOf(step).start + k;
      if (id !== text.get(place)) since.delete(place);
      else if (!since.has(place)) since.set(place, step.i);
    });
  }
  return { text, since };
}

/** The grid of the displayed run; without passes over blocks it is hidden. */
export function grid() {
  let drawnAs = "", stairs = null, stairsOf = "", view = null;
  const table = passesView({ label: "passes by place", seek: (step) => view.seek(step), choose });
  const counts = h("p", { class: "quiet" });
  const title = "Passes over blocks";
  const host = h("section", { class: "ds-grid", "aria-label": title }, h("h2", null, title),
    h("p", { class: "quiet" }, KEY), table.element, counts);

  function draw() {
    view = panes[0]?.view;
    const store = view?.store, steps = store?.steps ?? [];
    host.hidden = !steps.some(blockOf);
    if (host.hidden) return void (drawnAs = "");
    const first = Math.max(0, Math.min(view.at - ROWS / 2, steps.length - ROWS));
    const rows = steps.slice(first, first + ROWS).filter(blockOf), chosen = view.selection;
    const as = [store.head.run, steps.length, view.at, rows.length, chosen?.step, chosen?.node].join();
    if (as === drawnAs || !rows.length) return;
    drawnAs = as;
    const upto = `${store.head.run} ${steps.length}`;
    if (stairsOf !== upto) stairs = settledPlaces(steps);
    stairsOf = upto;
    const from = Math.min(...rows.map((x) => blockOf(x).start)),
      to = Math.max(...rows.map((x) => blockOf(x).start + blockOf(x).after.length));
    const places = Array.from({ length: to - from }, (_, k) => from + k), now = blockOf(steps[view.at]);
    table.draw(places, rows.map((of) => ({ of, step: of.i, cell: cellOf(of), after: finals(blockOf(of)) })),
      { every: 1, from: 1, at: view.at, upto, end: "final", bring: true,
        place: now && chosen?.step === view.at ? now.start + chosen.node - 1 : null });
    const right = now ? ahead(now) : 0;
    counts.textContent = !now ? ""
      : `Pass ${view.at}: ${now.fixed} final, ${now.fixed - 1} of them fast-forwarded (more than the one that every `
        + `pass gives); ${right} stationary (right already, while a token before is not).`;
  }
  /** Go to a place of a pass; if its block does not have that place, only to the pass. */
  function choose(step, place) {
    const { start, after } = blockOf(view.store.steps[step]), node = place - start + 1;
    if (node >= 1 && node <= after.length) view.select({ step, node });
    else view.seek(step);
  }
  /** Cells after the final ones that contain the token which the text will have there. */
  function ahead({ start, fixed, after }) {
    return after.filter(([id], k) => k >= fixed && stairs.text.get(start + k) === id).length;
  }
  /** The cell of a place in a pass. */
  function cellOf(step) {
    const { start, fixed, after, p } = blockOf(step);
    return (place) => {
      const k = place - start, cell = after[k];
      if (!cell) return null;
      const right = stairs.text.get(place) === cell[0], begins = right && stairs.since.get(place) === step.i;
      const words = [k < fixed ? "final" : right ? "right, not yet final" : "a guess",
        ...(p?.[k] === undefined ? [] : [`p ${prob(p[k])}`]), ...(begins ? ["right from here on"] : [])];
      return { kind: [k < fixed ? "final" : right ? "right" : "guess", ...(begins ? ["since"] : [])].join(" "),
        shade: p?.[k], word: tokenOf(cell[1], 8), title: `pass ${step.i}, place ${place}: ${words.join(", ")}` };
    };
  }
  /** What a pass made final. */
  const finals = ({ fixed, after }) => [String(fixed), `${fixed} of ${after.length} places are final after the pass`];
  onChange(draw);
  onStep(draw);
  return host;
}
