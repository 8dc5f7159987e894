/* grid: the passes of a method that settles blocks, pass by place of the text: what was read, what is final, and since
 * when each token was right. */
import { heard, panes, stepped } from "./runs.js";
import { button, h, prob, tokenOf } from "./scope.js";

/** The block of a step; one that came without its tree has it under another name. */
const blockOf = (step) => step?.iteration ?? step?.settling;
const ROWS = 14; // passes that are shown at once
const KEY = "A row is a pass, a column a place of the text; shade: how likely the model finds the token after the "
  + "guesses before it. Bold, left of the stair: final. Framed: right from this pass on.";

/** Passes by place: {text, since}; text: place -> id that was written there; since: place -> the first pass from which
 *  on its token was always the one that was written. */
export function settled(steps) {
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

/** The grid of the run that is shown; without passes over blocks it is hidden. */
export function grid() {
  const host = h("section", { class: "ds-grid", "aria-label": "Passes over blocks" });
  let drawnAs = "", stairs = null, stairsOf = "";
  const body = h("tbody"), head = h("thead"), counts = h("p", { class: "quiet" });
  host.replaceChildren(h("h2", null, "Passes over blocks"), h("p", { class: "quiet" }, KEY),
    h("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Passes by place" },
      h("table", null, head, body)), counts);

  function draw() {
    const view = panes[0]?.view, store = view?.store, steps = store?.steps ?? [];
    host.hidden = !steps.some(blockOf);
    if (host.hidden) return void (drawnAs = "");
    const first = Math.max(0, Math.min(view.at - ROWS / 2, steps.length - ROWS));
    const rows = steps.slice(first, first + ROWS).filter(blockOf);
    const as = [store.head.run, steps.length, view.at, rows.length].join();
    if (as === drawnAs || !rows.length) return;
    drawnAs = as;
    if (stairsOf !== `${store.head.run} ${steps.length}`) stairs = settled(steps);
    stairsOf = `${store.head.run} ${steps.length}`;
    const from = Math.min(...rows.map((x) => blockOf(x).start)),
      to = Math.max(...rows.map((x) => blockOf(x).start + blockOf(x).after.length));
    const places = Array.from({ length: to - from }, (_, k) => from + k);
    head.replaceChildren(h("tr", null, h("th", { scope: "col" }, "pass"),
      places.map((place) => h("th", { scope: "col" }, String(place)))));
    body.replaceChildren(...rows.map((step) => row(view, step, places)));
    const now = blockOf(steps[view.at]), right = now ? ahead(now) : 0;
    counts.textContent = !now ? ""
      : `Pass ${view.at}: ${now.fixed} final, ${now.fixed - 1} of them fast-forwarded (more than the one that every `
        + `pass gives); ${right} stationary (right already, while a token before is not).`;
  }
  /** Cells behind the final ones that hold the token which the text will have there. */
  function ahead({ start, fixed, after }) {
    return after.filter(([id], k) => k >= fixed && stairs.text.get(start + k) === id).length;
  }
  function row(view, step, places) {
    const { start, fixed, after, p } = blockOf(step), own = step.i === view.at;
    return h("tr", { class: own ? "own" : null },
      h("th", { scope: "row" }, button(String(step.i), () => view.seek(step.i), { "aria-label": `pass ${step.i}` })),
      places.map((place) => {
        const k = place - start, cell = after[k];
        if (!cell) return h("td");
        const right = stairs.text.get(place) === cell[0], begins = right && stairs.since.get(place) === step.i;
        const words = [k < fixed ? "final" : right ? "right, not yet final" : "a guess",
          ...(p?.[k] === undefined ? [] : [`p ${prob(p[k])}`]), ...(begins ? ["right from here on"] : [])];
        const kind = [k < fixed ? "final" : right ? "right" : "guess", ...(begins ? ["since"] : [])].join(" ");
        return h("td", { class: kind, style: p?.[k] === undefined ? null : `--p:${Math.round(60 * p[k])}%`,
          title: `pass ${step.i}, place ${place}: ${words.join(", ")}` }, tokenOf(cell[1], 8));
      }));
  }
  heard(draw);
  stepped(draw);
  return host;
}
