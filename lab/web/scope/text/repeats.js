/* Repeats: repeated stretches of a text, as bands between the places; and the certainty of the model in a loop, by
 * round. */
import { figures, grid, h, inks, say, see, set, sheet, toggle } from "../shared/elements.js";
import { bring } from "../shared/extras.js";
import { tokenOf } from "../shared/marks.js";
import { percent, plural, prob } from "../shared/numbers.js";

const GRAM = 4; // equal tokens that count as a repetition; the same as in engine/trace/query/repeats.py
const ARCS = { bar: 12, foot: 16, rise: 84 }, CURVES = { tall: 132, left: 34 }; // px
const DRAWN_TOKENS = 400, WORDS_OF_LOOP = 40; // of the text, the newest ones; of a loop, the first ones
/** @type {[string, string, string, number[]][]} */
const ROUND_LINES = [["TP", "mean probability of a token", "accept", []],
  ["IP", "tokens more likely than in the first round", "target", [6, 4]],
  ["WR", "tokens that are the likeliest", "ink", [2, 3]]];

/** The stretches up to step i, [[at, period, tokens], ...], each as far as it goes by then, and the rounds of its
 *  loop by where it begins. */
export function repeatsAt(store, i) {
  const stretches = new Map(), rounds = new Map();
  for (const step of store.steps.slice(0, i + 1)) {
    for (const one of step?.again ?? []) stretches.set(one[0], one);
    for (const [at, n, ...figures] of step?.rounds ?? []) rounds.set(at, [...(rounds.get(at) ?? []), [n, ...figures]]);
  }
  return { stretches: [...stretches.values()], rounds };
}

/** The bands of a stretch: [from, end, to], the tokens from..end and as many from `to` on are the same; for a loop
 *  one per round. */
export function bandsOf([at, period, lasts]) {
  const bands = [];
  for (let k = 0; k < lasts; k += period) bands.push([at + k - period, Math.min(at + k, at - period + lasts), at + k]);
  return bands;
}

/** TP, IP and WR by round. */
function paintRounds(pen, ink, rounds, wide) {
  const last = Math.max(2, rounds.at(-1)?.[0] ?? 2);
  const x = (n) => CURVES.left + 6 + ((n - 1) * (wide - CURVES.left - 18)) / (last - 1);
  const y = (share) => 8 + (1 - share) * (CURVES.tall - 30);
  Object.assign(pen, { font: ink.less, fillStyle: ink.muted, strokeStyle: ink.line, lineWidth: 1,
    textBaseline: "middle", textAlign: "right" });
  for (const share of [0, 0.5, 1]) {
    pen.fillText(String(share), CURVES.left - 6, y(share));
    pen.beginPath(), pen.moveTo(CURVES.left, y(share)), pen.lineTo(wide, y(share)), pen.stroke();
  }
  pen.textAlign = "center";
  const skip = Math.ceil(last / Math.max(1, (wide - CURVES.left) / 28));
  for (let n = 1; n <= last; n += skip) pen.fillText(String(n), x(n), CURVES.tall - 8);
  ROUND_LINES.forEach(([, , colour, dash], k) => {
    Object.assign(pen, { strokeStyle: ink[colour], fillStyle: ink[colour], lineWidth: 2 });
    pen.setLineDash(dash);
    pen.beginPath();
    const points = rounds.filter((row) => row[k + 1] !== null);
    points.forEach((row, n) => pen[n ? "lineTo" : "moveTo"](x(row[0]), y(row[k + 1])));
    pen.stroke();
    pen.setLineDash([]);
    for (const row of points) pen.fillRect(x(row[0]) - 2.5, y(row[k + 1]) - 2.5, 5, 5);
  });
}

/** The picture of the text, and the curves of its last loop. Shown if a text loops. */
export function repeatsView(context) {
  const sums = figures(), graph = h("canvas"), curve = h("canvas"), loop = h("p", { class: "loop" });
  const plot = h("div", { class: "plot", role: "slider", tabindex: 0, "aria-label": "what the text says again" },
    graph);
  const spot = h("p", { class: "took" }), key = h("p", { class: "quiet lines" }, ROUND_LINES.map(([name, words]) =>
    h("span", { class: `line ${name.toLowerCase()}` },
      h("b", null, name), ` ${words}`)));
  const twin = h("div", { class: "twin" }), half = h("div", { class: "half" }, h("div", null, curve, twin), key);
  let tabled = false, width = 0, wide = 0, ink = null, first = 0, count = 0, texts = [], known = null;
  const element = h("section", { class: "repeats-pane", "aria-label": "repeats" }, h("header", null,
    h("h2", null, "Repeats"), h("span", { class: "quiet" }, "what the text says again"), sums.element), plot, spot,
  loop, half, toggle("Show as table", (on) => ((tabled = on), context.redraw())));
  plot.addEventListener("click", ({ offsetX }) => {
    const token = texts[first + Math.floor((offsetX / width) * (count - first))];
    if (token) context.seek(token.step);
  });

  /** The tokens that were written up to step i: [{step, text}, ...]. */
  function written(store, i) {
    if (known !== store.steps) (texts = []), (known = store.steps);
    for (let k = texts.length ? texts.at(-1).step + 1 : 0; k < store.count && store.steps[k]; k++)
      for (const [, text] of store.steps[k].made) texts.push({ step: k, text });
    return store.steps[i]?.sum.tokens ?? 0;
  }
  /** The text as a bar, and over it a band from each place to its repetition. */
  function paint(stretches, i) {
    const pen = sheet(graph, width, ARCS.rise + ARCS.bar + ARCS.foot), each = width / Math.max(1, count - first);
    const x = (token) => (Math.max(first, token) - first) * each;
    const bands = stretches.flatMap((one) => bandsOf(one).map((band) => [...band, one[2] >= one[1]]));
    const longest = Math.max(...bands.map(([from, behind, to]) => to + behind - from - Math.max(first, from)), 1);
    for (const [from, behind, to, round] of bands) {
      if (to + behind - from <= first) continue;
      const last = to + behind - from, [a, b, c, d] = [from, behind, to, last].map(x), middle = (a + d) / 2;
      const high = ARCS.rise * Math.min(1, 0.35 + (0.65 * (last - from)) / longest);
      const inner = Math.max(0, (c - b) / 2), low = inner ? (2 * high * inner) / (d - a) : 0;
      pen.fillStyle = ink[round ? "reject" : "time-2"];
      pen.globalAlpha = round ? 0.3 : 0.55;
      pen.beginPath();
      pen.moveTo(a, ARCS.rise), pen.ellipse(middle, ARCS.rise, (d - a) / 2, high, 0, Math.PI, 0);
      pen.lineTo(c, ARCS.rise), pen.ellipse((b + c) / 2, ARCS.rise, inner, low, 0, 0, Math.PI, true);
      pen.closePath(), pen.fill();
      pen.globalAlpha = 1;
    }
    pen.fillStyle = ink["time-1"];
    pen.fillRect(0, ARCS.rise, width, ARCS.bar);
    for (const [at, period, lasts] of stretches) {
      pen.fillStyle = ink[lasts >= period ? "reject" : "time-3"];
      if (at + lasts > first) pen.fillRect(x(at), ARCS.rise, x(at + lasts) - x(at), ARCS.bar);
    }
    pen.fillStyle = ink.bg; // a cut at the beginning of each round that is wide enough
    for (const [from, , to, round] of bands)
      if (round && to > first && each * (to - from) > 4) pen.fillRect(x(to) - 0.5, ARCS.rise, 1, ARCS.bar);
    pen.strokeStyle = ink.ring;
    pen.lineWidth = 2;
    const own = texts.findIndex((one) => one.step === i), many = texts.filter((one) => one.step === i).length;
    const left = Math.min(x(own), width - 4);
    if (many) pen.strokeRect(left + 1, ARCS.rise - 1, Math.max(4, many * each) - 2, ARCS.bar + 2);
    pen.font = ink.less;
    pen.fillStyle = ink.muted;
    pen.textAlign = "left", pen.fillText(first ? `token ${first}` : "token 0", 0, ARCS.rise + ARCS.bar + ARCS.foot - 2);
    pen.textAlign = "right", pen.fillText(String(count), width, ARCS.rise + ARCS.bar + ARCS.foot - 2);
  }
  /** The loop in words, and the figures of its rounds. */
  function words([at, period, lasts], rounds) {
    const weighed = rounds.filter((row) => row[1] !== null), [one, last] = [weighed[0], weighed.at(-1)];
    const times = Math.floor(lasts / period) + 1;
    return [`From token ${at} on the text goes round, ${plural(period, "token")} again and again: `
      + `${plural(times, "whole round")} so far.`, !last ? "How likely its tokens were is not recorded."
      : one === last ? `In round ${one[0]} a token has ${prob(one[1])} on average.`
      : `In round ${one[0]} a token had ${prob(one[1])} on average, in round ${last[0]} it has ${prob(last[1])}.`]
      .join(" ");
  }
  return {
    element,
    look: () => ((width = plot.clientWidth || element.clientWidth),
      (wide = Math.min(560, curve.parentNode.clientWidth || element.clientWidth))),
    restyle: () => (ink = null),
    draw(store, i) {
      const { stretches, rounds } = repeatsAt(store, i);
      const loops = stretches.filter(([, period, lasts]) => lasts >= period);
      see(element, loops.length);
      if (!loops.length || !width) return;
      ink = ink || inks(element, "ink", "muted", "bg", "line", "accept", "target", "reject", "time-1", "time-2",
        "time-3", "ring");
      count = written(store, i);
      first = Math.max(0, count - DRAWN_TOKENS);
      paint(stretches, i);
      const last = loops.at(-1), own = rounds.get(last[0]) ?? [], grams = Math.max(1, count - GRAM + 1);
      const again = stretches.reduce((sum, [, , lasts]) => sum + lasts - GRAM + 1, 0);
      sums.tell([[percent(again / grams), ` of the ${GRAM}-grams said before`],
        [String(stretches.length), stretches.length === 1 ? " stretch" : " stretches"],
        [String(loops.length), loops.length === 1 ? " loop" : " loops"]]);
      const sentence = words(last, own);
      say(spot, sentence);
      set(plot, { "aria-valuemin": 0, "aria-valuemax": store.count - 1, "aria-valuenow": i,
        "aria-valuetext": sentence });
      const whole = texts.slice(last[0] - last[1], last[0]);
      loop.replaceChildren(...whole.slice(0, WORDS_OF_LOOP).map(({ text }) => tokenOf(text, 16)),
        whole.length > WORDS_OF_LOOP ? " …" : "");
      const drawable = own.some((row) => row[1] !== null);
      see(half, drawable), see(curve, !tabled), see(twin, tabled);
      if (drawable && !tabled) paintRounds(sheet(curve, wide, CURVES.tall), ink, own, wide);
      if (tabled) twin.replaceChildren(grid("The loop, round by round", ["round", ...ROUND_LINES.map(([name]) => name)],
        own.map(([n, ...figures]) => [n, ...figures.map((x) => (x === null ? "–" : prob(x)))])));
    },
  };
}

bring("repeats", { repeatsView });
