/* prices: the time of a run's passes, measured and by the cost model, here and on another machine. */
import { formatCount, h, passWord, roofPoint, plural, formatFixed } from "../scope.js";
import { kindOf, phaseIcon, time } from "./roofline.js";
import { BOUNDS, row, table } from "./tables.js";

const times = (x) => `× ${formatFixed(x)}`;
const off = (x) => x.s / x.model; // for a kind of passes: clock over model
/** The error of the model on the run's own machine, shown with every price of another one. home: prices there, or
 *  null. */
export function errorOf(home) {
  const ratios = (home?.rows || []).map(off);
  if (!ratios.length) return "How far the model is off on this run's own machine is not known.";
  const [low, high] = [Math.min(...ratios), Math.max(...ratios)].map(formatFixed);
  return `On this run's own machine the clock took ${low === high ? `× ${low}` : `× ${low} to × ${high}`} of the `
    + "model's time, by kind of pass.";
}

const percent = (x) => (x === null || x === undefined ? "–" : `${(100 * x).toFixed(x < 0.1 ? 1 : 0)} %`);
/** The share of the machine's limits that the steps reached, and how much of that work was kept, in words.
 *  steps: of `worked`, or null. */
export function workedOf(steps) {
  if (!steps?.rows) return "";
  const all = `Of ${formatCount(steps.rows)} rows that were checked ${formatCount(steps.tokens)} tokens stayed `
    + `(${percent(steps.kept)}): useful work is ${percent(steps.useful_share)} of what was executed`;
  return steps.reached === null ? `${all}.`
    : `${all}. Attainable time is ${percent(steps.reached)} of the measured one, so ${percent(steps.efficiency)} of `
      + "what the machine could do went into the text. MBU counts weights and cache, MFU all operations.";
}

/** The number of threads of passes on the server's machine, who set it, and the time of passes in each number; ""
 *  if it does not say. */
export function threadsOf(threads) {
  if (!threads) return "";
  const { number, of, fixed, rows, ms } = threads, took = Object.entries(ms).map(([n, each]) =>
    `${each.map((x) => x.toFixed(1)).join(" and ")} ms in ${n}`);
  return ` Passes here run in ${number} of ${plural(of, "thread")}${fixed ? `, as ${fixed} says` : ", by timing"}`
    + (took.length ? `: over ${rows.join(" and ")} rows ${took.join(", ")}.` : ".");
}

/** The passes by kind as a table. machine: that of the run; home, there: prices on it and on another, or null;
 *  worked: the performance of the run on its own machine. */
export function passesTable(machine, home, there, worked) {
  const rows = home?.rows || there?.rows || [],
    beside = (x) => there?.rows.find((y) => y.lane === x.lane && y.phase === x.phase);
  const each = (x, n) => time(x / n);
  const heads = ["pass", "passes", "FLOP / byte", "measured",
    ...(home ? ["model, here", "measured / model", "of roof", "MBU", "MFU", "bound here"] : []),
    ...(there ? ["model, there", "bound there"] : [])];
  return table("Passes of the run by kind: measured, and by the cost model", heads, rows.map((x) => {
    const at = roofPoint(machine, { ...x, kept: 0 }), y = beside(x),
      used = worked?.rows.find((y) => y.lane === x.lane && y.phase === x.phase);
    return row(h("span", { class: "what" }, phaseIcon(x.lane === "target" ? kindOf(x) : "draft", true), passWord(x)), [
      formatCount(x.n),
      (x.flops / x.bytes).toFixed(2),
      h("b", null, each(x.s, x.n)),
      ...(home
        ? [each(x.model, x.n), formatFixed(x.s / x.model), at.roof ? `${(100 * at.share).toFixed(0)} %` : "–",
          percent(used?.mbu), percent(used?.mfu), BOUNDS[x.bound] ?? x.bound] : []),
      ...(there
        ? [y ? [each(y.model, y.n), h("small", { class: "quiet error" }, home ? ` here ${times(off(x))}` : "")] : "–",
          y ? BOUNDS[y.bound] ?? y.bound : "–"] : []),
    ]);
  }));
}

/** Time per token as bars, a group for each priced machine; empty if there is none. */
export function tokenBars(home, there) {
  const groups = [];
  if (home?.token)
    groups.push(["Its own machine", home, [
      ["measured", home.measured, true], ["modelled", home.token, false], ["one by one", home.plain, false],
    ]]);
  if (there?.token)
    groups.push([`${there.name}, modelled`, there, [
      ["this run", there.token, false], ["one by one", there.plain, false],
    ]]);
  return groups.map(([name, one, all]) => {
    const list = all.filter(([, x]) => x !== null), most = Math.max(...list.map(([, x]) => x));
    return h("div", { class: "group" },
      h("div", { class: "over" }, h("span", null, name), one.speedup
        && h("span", null, h("b", null, times(one.speedup)), h("small", { class: "quiet" }, " modelled / modelled"))),
      list.map(([word, x, measured]) =>
        h("div", { class: "bar" }, h("span", null, word),
          h("i", { class: measured ? "full" : "hollow", style: `--w: ${((100 * x) / most).toFixed(1)}%` }),
          h("span", { class: "n" }, time(x)))
      ), one === there && h("p", { class: "quiet error" }, errorOf(home)));
  });
}

/** The effect of the other machine, in a sentence; both gains are the model's. */
export function verdictOf(home, there) {
  const bound = (one) => [...one.rows].filter((x) => x.phase !== "prefill").sort((a, b) => b.model - a.model)[0];
  const gain = home && there && home.speedup && there.speedup ? there.speedup / home.speedup : 0,
    most = there && bound(there);
  return !gain ? ""
    : (`By the model this method gains ${gain > 1.03 ? "more" : gain < 0.97 ? "less" : "as much"} there as `
      + `here${most ? `: most of its time goes to ${passWord(most)}, bound by `
        + `${BOUNDS[most.bound] ?? most.bound}` : ""}.`).replace(/(more|less) there as/, "$1 there than");
}
