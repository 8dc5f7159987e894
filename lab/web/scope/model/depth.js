/* Depth: which layers each pass of the target ran, token by layer, and every exit test. */
import { figures, grid, h, hatch, inks, say, see, set, sheet, toggle } from "../shared/elements.js";
import { bring } from "../shared/extras.js";
import { tokenOf } from "../shared/marks.js";
import { plural, formatFixed } from "../shared/numbers.js";
import { visibleText } from "../shared/tokens.js";

const MARGIN = 34, ABOVE = 4, BELOW = 18, BROAD = 24, SLIM = 14; // px around the cells, and of a column
/** The state of a layer: its letter, a word, and its painting. */
export const DID = { r: ["R", "ran", "full"], a: ["A", "attention alone", "upper"],
  f: ["F", "feed-forward alone", "lower"], p: ["P", "propagated", "lines"], c: ["C", "copied", "dots"],
  w: ["W", "waiting", "frame"], l: ["L", "ran later", "later"], s: ["S", "run by some of its rows", "later"],
  b: ["", "in another pass of the step", ""], "-": ["", "absent", ""] };

/** The passes of a step: [letters, rows, whether it drafted]; a step without a record has one over all layers. */
const ranIn = (step, layers) => step.depth?.ran ?? [["r".repeat(layers), step.made.length, 0]];

/** Where a pass exited: the layer above which no layer ran; null for a pass that checks what others began, or with
 * rows that chose. */
export function leftAt([letters, , drafted, chose], many) {
  const at = Math.max(...["r", "a", "f"].map((x) => letters.lastIndexOf(x))) + 1;
  return chose || (many > 1 && !drafted) ? null : at;
}

/** When the layers that a pass waited for ran, up to step i: pass -> [step by layer]. The longest wait goes first. */
export function laterBy(store, i, layers) {
  const waits = Array.from({ length: layers }, () => []), later = new Map();
  for (let k = 0; k <= i; k++) {
    const { ran = [], went = [] } = store.steps[k]?.depth ?? {};
    for (const row of ran)
      for (let x = 0; row[0].includes("w") && x < layers; x++) if (row[0][x] === "w") waits[x].push(row);
    went.forEach((many, x) => waits[x].splice(0, many).forEach((row) =>
      later.set(row, Object.assign(later.get(row) ?? [], { [x]: k }))));
  }
  return later;
}

/** Letters in words: "layers 0 to 4 ran, 5 to 7 propagated". */
export const layersText = (letters) =>
  "layers " + [...letters.matchAll(/(.)\1*/g)].map(({ 0: run, 1: one, index }) =>
    `${index}${run.length > 1 ? ` to ${index + run.length - 1}` : ""} ${DID[one][1]}`).join(", ");

/** The router results of a pass in which each row chose alone what it ran, in the same shape. */
function scoresOfPass({ open, over, scores }, layers) {
  const ran = (score) => (score > over ? "ran" : "left out");
  const title = open === undefined ? "Routers chose what ran"
    : `${Math.round(100 * open)} % of ${2 * layers} sub-layers ran`;
  const lines = ["In front of every sub-layer a router scores the token; it runs the block where the score is above "
    + `${formatFixed(over ?? 0)}.`];
  if (!scores) lines.push("Each of the pass's rows chose alone.");
  return { title, lines, heads: ["layer", "attention", "", "feed-forward", ""], rows: !scores ? []
    : Array.from({ length: layers },
      (_, i) => [i, formatFixed(scores[2 * i]), ran(scores[2 * i]), formatFixed(scores[2 * i + 1]),
      ran(scores[2 * i + 1])]) };
}

/** The tests of a pass: {title, lines, heads, rows}. */
export function testsOfPass(left, layers) {
  if (left.asks === "router") return scoresOfPass(left, layers);
  const { depth, tests, closed, below, rows, whole, known } = left, early = depth < layers, lines = [];
  const free = !tests.length && !left.asks && left.by;
  const title = free ? `${depth} of ${layers} layers, by ${free}` : closed
    ? (closed.length ? `${plural(closed.length, "feed-forward block")} left out` : "All feed-forward blocks ran")
    : early ? `Left after ${depth} of ${layers} layers` : `All ${layers} layers ran`;
  const passed = ([, score, bound]) => (below ? score < bound : score >= bound);
  const named = tests.some((test) => test.length > 3), agreed = whole?.[0];
  lines.push(closed ? "Behind a feed-forward block the pass asks how alike the states are that entered and left it; "
    + "where they are alike enough, blocks further up are left out. Attention runs in every layer."
    : tests.length ? "In front of a layer the pass asks how sure the target already is, and leaves at the first bound "
      + "that is reached."
    : left.asks ? "No layer of this pass was asked: it had nothing to compare with, or no layer was due."
    : "The rule asks nothing: position or token say how deep the pass goes.");
  if (closed?.length) lines.push(`Left out: those of the layers ${closed.join(", ")}; their weights were not read.`);
  if (rows?.length > 1) lines.push(`By themselves the rows were sure before the layers ${rows.join(", ")}; the least `
    + "sure decided for all.");
  if (known) lines.push(`Of ${plural(known[1], "state")} that entered layer ${layers - depth}, ${known[0]} stood in `
    + `the table of ${known[2].toLocaleString("en")} bytes; the rest was worked out from three tokens alone.`);
  if (agreed) lines.push(`At full depth it would have been “${visibleText(agreed[1])}”.`);
  const heads = [closed ? "behind layer" : "before layer", "score", "bound", ...(named ? ["best token"] : []), ""];
  return { title, lines, heads, rows: tests.map((test) => [test[0], formatFixed(test[1]),
    `${test[1] < test[2] ? "<" : "≥"} ${formatFixed(test[2])}`,
    ...(named ? [[tokenOf(test[4]), agreed?.[0] === test[3] ? " ◆" : ""]] : []),
    passed(test) ? (closed ? "left out above" : "it leaves") : closed ? "it runs" : "it goes on"]) };
}

/** Paint the state of a layer into its cell. */
function layerCell(pen, ink, letter, x, y, wide, tall) {
  const [sign, , way] = DID[letter], [w, t] = [wide - 1, tall - 1], dark = way === "full";
  pen.fillStyle = ink[dark ? "time-3" : way === "later" ? "time-2" : "gone"];
  pen.fillRect(x, y, w, t);
  pen.fillStyle = ink["time-2"];
  if (way === "upper" || way === "lower") pen.fillRect(x, way === "upper" ? y : y + t / 2, w, t / 2);
  if (way === "lines") hatch(pen, x, y, w, t, ink["time-2"]);
  for (let k = 2; way === "dots" && k < w; k += 4)
    for (let m = 2; m < t; m += 4) pen.fillRect(x + k, y + m, 1.5, 1.5);
  if (way === "frame") {
    pen.strokeStyle = ink.muted;
    pen.setLineDash([2, 2]);
    pen.strokeRect(x + 0.5, y + 0.5, w - 1, t - 1);
    pen.setLineDash([]);
  }
  if (tall < 13 || !sign) return;
  pen.fillStyle = dark ? ink.bg : ink.ink;
  pen.fillText(sign, x + w / 2, y + t / 2 + 0.5);
}

/** The map, and under it the tests of the chosen pass. Shown if layers were skipped, or could have been. */
export function depthView(context) {
  const sums = figures(), canvas = h("canvas"), key = h("p", { class: "quiet" }), spot = h("p", { class: "took" });
  const plot = h("div", { class: "plot", role: "slider", tabindex: 0, "aria-label": "depth map: layers by pass" },
    canvas);
  const twin = h("div", { class: "twin" }), card = h("div", { class: "tests" });
  let tabled = false, chosen = 0, at = -1, columns = [], wide = 0, from = 0, ink = null, width = 0;
  const element = h("section", { class: "depth-pane", "aria-label": "depth" }, h("header", null, h("h2", null, "Depth"),
    h("span", { class: "quiet" }, "layer by pass"), sums.element), plot, twin, key,
  toggle("Show as table", (on) => ((tabled = on), context.redraw())), spot, card);
  const go = (one) => {
    if (!one) return;
    [at, chosen] = [one.step, one.k];
    if (context.at === one.step) context.redraw();
    else context.seek(one.step);
  };
  plot.addEventListener("click", ({ offsetX }) => go(columns[from + Math.floor((offsetX - MARGIN) / wide)]));
  plot.addEventListener("keydown", (event) => {
    const way = { ArrowUp: -1, ArrowDown: 1 }[event.key]; // left and right are the steps, as everywhere
    if (!way) return;
    event.preventDefault();
    go(columns[columns.findIndex((x) => x.step === at && x.k === chosen) + way]);
  });

  /** The passes of the steps around step i, each with its letters by then. */
  function passes(store, i, room, layers) {
    const later = laterBy(store, i, layers), all = [];
    for (let k = Math.max(0, i - room); k < Math.min(store.count, i + room); k++) {
      const step = store.steps[k], ran = step ? ranIn(step, layers) : [];
      ran.forEach((row, n) => all.push({ step: k, k: n, row, left: leftAt(row, ran.length),
        exit: step.depth?.exits?.find((x) => x.of === n),
        name: row[2] ? step.nodes?.[n + 1]?.[1] : step.made.at(-1)?.[1],
        letters: [...row[0]].map((x, layer) => (x === "w" && later.get(row)?.[layer] >= 0 ? "l"
          : x === "-" && ran.length > 1 ? "b" : x)).join("") }));
    }
    return all;
  }
  function paint(shown, layers, tall) {
    const pen = sheet(canvas, width, ABOVE + layers * tall + BELOW), y = (layer) => ABOVE + layer * tall;
    pen.font = ink.less;
    [pen.textAlign, pen.textBaseline] = ["center", "middle"];
    shown.forEach(({ letters, step, k, exit, left }, n) => {
      const x = MARGIN + n * wide;
      for (let layer = 0; layer < layers; layer++) layerCell(pen, ink, letters[layer] ?? "-", x, y(layer), wide, tall);
      pen.fillStyle = ink.muted;
      if (!k && (shown[n + 1]?.step === step || step % (wide < 20 ? 10 : 5) === 0))
        pen.fillText(String(step), x + wide / 2, y(layers) + 9);
      if (!exit?.whole || left >= layers) return;
      pen.fillStyle = ink.ink;
      pen.fillText("◆", x + wide / 2, y(left));
    });
    pen.fillStyle = ink.muted;
    for (let layer = 0; layer < layers; layer += tall < 13 ? 8 : 1) pen.fillText(`L${layer}`, 14, y(layer) + tall / 2);
    const line = shown.some(({ left }) => left !== null && left < layers);
    pen.strokeStyle = ink.ink;
    pen.lineWidth = 2;
    pen.beginPath();
    shown.forEach(({ left }, n) => {
      if (!line || left === null) return;
      pen[n && shown[n - 1].left !== null ? "lineTo" : "moveTo"](MARGIN + n * wide, y(left));
      pen.lineTo(MARGIN + (n + 1) * wide - 1, y(left));
    });
    pen.stroke();
    const own = shown.findIndex((x) => x.step === at && x.k === chosen);
    pen.strokeStyle = ink.ring;
    if (own >= 0) pen.strokeRect(MARGIN + own * wide - 1, ABOVE - 2, wide + 1, layers * tall + 3);
    return line;
  }
  /** The tests of the chosen pass, and their results. */
  function tests(store, step, own, layers) {
    const lacks = !own.exit && step.depth?.ran && (step.brief || step.few || step.cut);
    const said = own.exit && testsOfPass(own.exit, layers);
    card.replaceChildren(...(said ? [h("h3", null, said.title), said.lines.map((x) => h("p", { class: "line" }, x)),
      said.rows.length ? grid(`Tests of pass ${own.k + 1} of step ${own.step}`, said.heads, said.rows) : []].flat(2)
      : lacks ? [h("p", { class: "quiet" }, context.absent(store, "The tests of this pass"))] : []));
  }
  return {
    element,
    look: () => (width = plot.clientWidth || element.clientWidth),
    restyle: () => (ink = null),
    draw(store, i) {
      const { head } = store, layers = head?.model.n_layers;
      const rule = head?.parts.adaptive_depth, ruled = rule && !rule.usual;
      const some = store.steps.some((step) => step?.depth), step = store.steps[i];
      see(element, layers && step && (some || ruled));
      if (!layers || !step || !(some || ruled) || !width) return;
      see(plot, some && !tabled);
      see(twin, some && tabled);
      see(key, some);
      if (!some) return void (say(spot, "This trace does not say which layers ran."),
        sums.tell([]), card.replaceChildren());
      ink = ink || inks(element, "ink", "muted", "bg", "gone", "time-2", "time-3", "ring");
      if (at !== i) [at, chosen] = [i, Math.max(0, ...(step.depth?.exits ?? []).map((x) => x.of))];
      const room = Math.floor((width - MARGIN) / SLIM);
      columns = passes(store, i, room, layers);
      wide = Math.max(SLIM, Math.min(BROAD, Math.floor((width - MARGIN) / columns.length)));
      const many = Math.floor((width - MARGIN) / wide), own = columns.findIndex((x) => x.step === i && x.k === chosen);
      from = Math.max(0, Math.min(columns.length - many, own - (many >> 1)));
      const shown = columns.slice(from, from + many), one = columns[own];
      const line = paint(shown, layers, layers > 16 ? 9 : 18);
      const used = [...new Set(shown.flatMap((x) => [...x.letters]))], marks = shown.some((x) => x.exit?.whole);
      say(key, `${used.map((x) => `${DID[x][0] || "blank"} ${DID[x][1]}`).join(", ")}.`
        + `${line ? " Line: where passes left." : ""}${marks ? " ◆ the full depth's own choice." : ""}`);
      const rest = one ? `${one.row[1] > 1 ? `, ${one.row[1]} rows` : ""}: ${layersText(one.letters)}.` : "";
      const words = one ? `Step ${i}${one.row[2] ? `, draft ${one.k + 1}` : ""}`
        + `${one.name ? `, “${visibleText(one.name)}”` : ""}${rest}` : "";
      say(spot, words);
      set(plot, { "aria-valuemin": 0, "aria-valuemax": store.count - 1, "aria-valuenow": i, "aria-valuetext": words });
      if (tabled) twin.replaceChildren(grid("Layers by pass", ["step", "pass", "token", "layers"],
        shown.map((x) => [x.step, x.row[2] ? "draft" : "target", x.name ? tokenOf(x.name) : "–",
          layersText(x.letters)])));
      const saved = store.steps.slice(0, i + 1).map((x) => x?.depth?.saved ?? 0), { tokens } = step.sum;
      const all = saved.reduce((a, b) => a + b, 0) / (tokens || 1);
      sums.tell([[formatFixed(Math.abs(saved[i])),
        ` layers ${saved[i] < -0.005 ? "more than plain, with" : "saved, net of"} `
        + "tests"],
        [formatFixed(Math.abs(all)), ` ${all < 0 ? "more" : "saved"} a token so far`]]);
      if (one) tests(store, step, one, layers);
    },
  };
}

bring("depth", { depthView });
