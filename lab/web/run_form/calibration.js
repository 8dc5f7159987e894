/* calibration: the risk of a calibrated knob by its value, its bound, the value that was chosen, and the choices
 * of the same test on halves of the texts. The server reads the file, by its name. */
import { ask, errorText } from "../runs/runs.js";
import { grid, formatCount, h, plural, prob, s, toggle } from "../scope.js";

const LEFT = 52, TOP = 14, CHART = 180, GAP = 20, BARS = 48, FOOT = 36, RIGHT = 12; // px
const HIGH = TOP + CHART + GAP + BARS + FOOT;
const TESTS = { binomial: "a binomial test", hoeffding: "Hoeffding's bound",
  hoeffding_bentkus: "the bound of Hoeffding and Bentkus" };

/** The words for one point: a value, its risk, and the test result. */
function pointText({ curve, value, halves }, k) {
  const [at, risk, p, passed] = curve[k], first = curve.findIndex((x) => !x[3]);
  const fate = passed ? (at === value ? "passed, chosen" : "passed")
    : k === first ? "not passed, the walk ends here" : "behind the end of the walk, not tested";
  return `${at}: risk ${prob(risk)}, p ${prob(p)}, ${fate}; `
    + `${formatCount(halves.chosen[k])} of ${formatCount(halves.count)} `
    + "halves chose it.";
}
/** The promise, and the result on halves of the texts. */
function linesOf({ word, test, delta, eps, n, models, max_new_tokens: most, halves }) {
  const { count, none, held, above } = halves, names = Object.values(models);
  return [
    `With a chance of at least ${+(100 * (1 - eps)).toFixed(2)} % over the texts that were drawn, the expected loss of `
    + `a further one, the ${word}, is at most ${delta}: by ${TESTS[test] ?? test} on `
    + `${formatCount(n)} texts of at most `
    + `${plural(most, "new token")}${names.length ? `, on ${names.join(" and ")}` : ""}.`,
    held === undefined ? `On none of ${formatCount(count)} random halves of the texts the same test lets a value pass.`
      : `On ${formatCount(count)} random halves of the texts the same test chooses as the bars say`
      + `${none ? `, on ${formatCount(none)} of them nothing` : ""}; the other half then loses `
      + `${prob(held)} in the mean, `
      + `and more than delta in ${above ? `${formatCount(above)} of them` : "none of them"}.`,
  ];
}

/** For thresholds by exit: the procedure's promise, and their results on the tokens that they were computed from. */
const exitLines = ({ promise, wrong, models }) => [`Thresholds ${promise}${Object.values(models).length
  ? `, on ${Object.values(models).join(" and ")}` : ""}.`,
`Of these tokens ${prob(wrong)} leave at an exit that disagrees with the whole model.`];

/** The curve as a table. */
function curveGrid({ part, knob, curve, value, halves }) {
  const heads = ["value", "risk", "p", "passed", "halves that chose it"];
  return grid(`Risk by ${part}.${knob}`, heads, curve.map(([x, risk, p, passed], k) => [
    `${x}${x === value && passed ? ", chosen" : ""}`, prob(risk), prob(p), passed ? "yes" : "no", halves.chosen[k]]));
}

/** The thresholds as a table. */
const exitGrid = ({ part, knob, exits }) => grid(`${part}.${knob}`, ["exit", "threshold", "agreed", "leave there"],
  exits.map((shares, k) => [k + 1, ...shares.map(prob)]));

/** The drawing, `wide` px across; at: the selected point. */
function drawCurve(one, wide, at) {
  const { curve, delta, value, halves } = one, n = curve.length, each = (wide - LEFT - RIGHT) / n;
  const top = 1.15 * Math.max(delta, ...curve.map((x) => x[1])), low = TOP + CHART, foot = low + GAP + BARS;
  const x = (k) => LEFT + (k + 0.5) * each, y = (risk) => TOP + CHART * (1 - risk / top);
  const most = Math.max(1, ...halves.chosen), every = Math.ceil(44 / each);
  const word = (text, x, y, props) => s("text", { x, y, ...props }, text);
  const shown = [s("rect", { class: "at", x: x(at) - each / 2, y: TOP - 6, width: each, height: foot - TOP + 6 }),
    s("path", { class: "axis", d: `M${LEFT},${low}H${wide - RIGHT}M${LEFT},${foot}H${wide - RIGHT}` }),
    word("0", LEFT - 8, low + 4, { "text-anchor": "end" }),
    word(prob(top / 1.15), LEFT - 8, y(top / 1.15) + 4, { "text-anchor": "end" }),
    word("risk", LEFT - 8, TOP + CHART / 2, { "text-anchor": "end" }),
    word("halves", LEFT - 8, foot - 4, { "text-anchor": "end" }),
    s("path", { class: "bound", d: `M${LEFT},${y(delta)}H${wide - RIGHT}` }),
    word(`delta ${delta}`, wide - RIGHT, y(delta) - 6, { "text-anchor": "end", class: "named" }),
    s("path", { class: "line", d: curve.map((p, k) => `${k ? "L" : "M"}${x(k)},${y(p[1])}`).join("") })];
  curve.forEach(([at, risk, , passed], k) => {
    const up = y(risk), tall = BARS * (halves.chosen[k] / most), column = Math.min(28, 0.7 * each);
    const left = x(k) - column / 2, ends = foot - tall;
    if (tall) shown.push(s("rect", { class: "half", x: left, y: ends, width: column, height: tall }));
    if (tall && each > 26) shown.push(word(String(halves.chosen[k]), x(k), ends - 4, { "text-anchor": "middle" }));
    shown.push(s("circle", { class: passed ? "passed" : "failed", cx: x(k), cy: up, r: 4.5 }));
    if (at === value && passed) shown.push(s("circle", { class: "chosen", cx: x(k), cy: up, r: 9 }));
    if (k % every === 0) shown.push(word(String(at), x(k), foot + 15, { "text-anchor": "middle" }));
  });
  shown.push(word(`${one.part}.${one.knob}, from the safe end on`, wide - RIGHT, HIGH - 4, { "text-anchor": "end" }));
  return shown;
}

/** An empty view; show(name, its): a calibration in it, `its`: the description in the head of a run. */
export function calibration() {
  const title = h("h2"), lead = h("span", { class: "quiet" }), other = h("p", { class: "ds-refusal", role: "alert" });
  const svg = s("svg", { height: HIGH, "aria-hidden": "true" }), twin = h("div", { class: "twin" });
  const plot = h("div", { class: "plot", role: "slider", tabindex: 0, "aria-label": "risk by value" }, svg);
  const key = h("p", { class: "quiet" }, "Filled: passed. Hollow: not passed. Ringed: chosen. Dashed: delta. Bars: how "
    + "many halves of the texts choose the value."), spot = h("p", { class: "took", role: "status" }), says = h("div");
  const table = toggle("Show as table", (on) => ((plot.hidden = key.hidden = on), (twin.hidden = !on)));
  const body = h("div", null, plot, twin, key, table, spot, says), trouble = h("p", { role: "status" });
  const element = h("section", { class: "ds-calibration", "aria-label": "calibration" }, h("header", null, title, lead),
    other, trouble, body);
  let one = null, at = 0, turn = 0;
  twin.hidden = body.hidden = other.hidden = true;

  function draw() {
    const wide = plot.clientWidth;
    if (!one?.curve) return;
    const words = pointText(one, at), state = { "aria-valuemin": 0, "aria-valuemax": one.curve.length - 1,
      "aria-valuenow": at, "aria-valuetext": words };
    for (const [name, value] of Object.entries(state)) plot.setAttribute(name, value);
    spot.textContent = words;
    if (!wide) return;
    svg.setAttribute("width", wide);
    svg.replaceChildren(...drawCurve(one, wide, at));
  }
  const go = (k) => ((at = Math.max(0, Math.min(one.curve.length - 1, k))), draw());
  new ResizeObserver(draw).observe(plot);
  plot.addEventListener("click", ({ offsetX }) => one?.curve
    && go(Math.floor((offsetX - LEFT) / ((plot.clientWidth - LEFT - RIGHT) / one.curve.length))));
  plot.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, Home: -Infinity, End: Infinity }[event.key];
    if (!way || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    go(at + way);
  });

  /** Show a calibration; the promise resolves when it is shown, or a sentence says why not. */
  async function show(name, its = null) {
    const mine = ++turn;
    title.textContent = `Calibration ${name}`;
    try {
      const answer = await ask(`ds/calibrations/${encodeURIComponent(name)}`);
      if (mine !== turn) return;
      one = answer;
      at = one.curve?.findLastIndex((x) => x[3] && x[0] === one.value) ?? 0;
      plot.hidden = key.hidden = table.hidden = spot.hidden = !one.curve;
      twin.hidden = !!one.curve;
      lead.textContent = `${one.part}.${one.knob} = ${one.value} was chosen`;
      const same = !its || ["risk", "delta", "how", "eps", "n"].every((x) => its[x] === undefined || its[x] === one[x]);
      other.hidden = same;
      const theirs = its?.how ? `by exit, ${its.how}` : `risk ${its?.risk} at most ${its?.delta}`;
      other.textContent = same ? "" : `The run has another calibration of this name, ${theirs}, eps ${its.eps}, `
        + `${its.n} texts: what is drawn is the one that lies here.`;
      says.replaceChildren(...(one.curve ? linesOf : exitLines)(one).map((line) => h("p", null, line)));
      twin.replaceChildren(one.curve ? curveGrid(one) : exitGrid(one));
      trouble.textContent = "";
    } catch (error) {
      if (mine !== turn) return;
      one = null;
      other.hidden = true;
      lead.textContent = "";
      trouble.textContent = errorText(error);
    }
    body.hidden = !one;
    draw();
  }
  return { element, show };
}
