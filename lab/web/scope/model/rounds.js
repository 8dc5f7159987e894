/* Rounds: the progress of a search or a training on a model, one generation or step after another. */
import { h, s, say, see, set } from "../shared/elements.js";

const ROUND_PX = { wide: 560, tall: 96, edge: 8 }; // in units of its own

/** The lines of the rounds, and a slider through them; nothing if no transform recorded any. */
export function roundsView() {
  const charts = h("div", { class: "rounds" });
  const range = h("input", { type: "range", min: 0, step: 1, "aria-label": "round" });
  const spot = h("output"), single = h("p", { class: "quiet" });
  const slider = h("label", { class: "budget" }, h("span", { class: "quiet" }, "round"), range, spot);
  const element = h("div", { class: "rounds-pane" }, single, charts, slider);
  let lines = [], words = [], marks = [];
  const shown = (x) => (typeof x === "number" ? String(Number(x.toPrecision(4))) : String(x ?? "–"));

  function point() {
    const k = Number(range.value);
    marks.forEach((put) => put(k));
    const said = ({ word, unit, values }) => `${word} ${shown(values[k])}${unit && values[k] ? ` ${unit}` : ""}`;
    say(spot, `Round ${k}. ${[...lines, ...words].map(said).join(", ")}.`);
  }
  range.addEventListener("input", point);
  range.addEventListener("keydown", (event) => event.key.startsWith("Arrow") && event.stopPropagation());

  /** One line over the rounds: its least and its most at the left. */
  function chart({ word, unit, by, what, values }) {
    const some = values.filter((x) => x !== null), [low, high] = [Math.min(...some), Math.max(...some)];
    const { wide, tall, edge } = ROUND_PX;
    const x = (k) => edge + ((wide - 2 * edge) * k) / Math.max(1, values.length - 1);
    const y = (v) => tall - edge - ((tall - 2 * edge) * (v - low)) / (high - low || 1);
    const path = values.map((v, k) => v !== null && `${x(k).toFixed(1)},${y(v).toFixed(1)}`).filter(Boolean).join(" ");
    const mark = s("line", { y1: 0, y2: tall });
    marks.push((k) => set(mark, { x1: x(k), x2: x(k) }));
    const about = ` ${unit ? `in ${unit}, ` : ""}by round: ${what} (${by})`;
    return h("figure", null, h("figcaption", null, h("b", null, word), about),
      h("div", { class: "ends" }, h("span", null, shown(high)), h("span", null, shown(low))),
      s("svg", { viewBox: `0 0 ${ROUND_PX.wide} ${ROUND_PX.tall}`, preserveAspectRatio: "none", role: "img",
        "aria-label": `${word}, from ${shown(some[0])} to ${shown(some[some.length - 1])} in ${values.length} rounds` },
      s("polyline", { points: path }), mark));
  }
  return {
    element,
    /** Show the findings on a model round by round. */
    tell({ findings }) {
      const own = findings.filter((x) => x.over === "round" && x.values.length > 1), one = findings.filter((x) =>
        x.over === "model" && x.values.length);
      lines = own.filter((x) => x.values.every((v) => v === null || typeof v === "number"));
      words = own.filter((x) => !lines.includes(x));
      marks = [];
      charts.replaceChildren(...lines.map(chart));
      see(slider, own.length);
      say(single, one.map((x) => `${x.word}: ${shown(x.values[0])}${x.unit ? ` ${x.unit}` : ""}, ${x.what} (${x.by}).`)
        .join(" "));
      see(single, one.length);
      set(range, { max: Math.max(0, ...own.map((x) => x.values.length)) - 1 });
      range.value = range.max;
      if (own.length) point();
    },
  };
}
