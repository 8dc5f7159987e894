/* Survey: what a step compared with each other, described by its declaration: a matrix as a map of its cells, or
 * next to the rows of its tally. */
import { h, inks, pool, rgb, say, see, set, sheet } from "../shared/elements.js";
import { bring } from "../shared/extras.js";
import { evaluate, sayAll } from "./formulas.js";
import { formatCount } from "../shared/numbers.js";
import { textParts, visibleText } from "../shared/tokens.js";

// px: words at the left, the head, a row, a row with a text
const SIDE_PX = 84, HEAD_PX = 16, MAPPED_PX = 15, BESIDE_PX = 26;
const MAP_MOST = 12000, WORD_PX = 11, CELL_MOST = 44; // px of a map, of a row that has room for its word, of a cell
const TURNS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

const lineText = (text) => textParts(text).map(([, shown]) => shown.replaceAll("\n", "")).join("");
const sameCell = (a, b) => !!a && !!b && a[0] === b[0] && a[1] === b[1];
const threeDecimals = (x) => x.toFixed(3).replace("-", "−");
/** A number in the form of a sentence: a count of decimals, "n" with its thousands apart, "of" 100 cases, "g" or "". */
const formNumber = (x, form) => (form === "n" ? formatCount(x)
  : form === "of" ? `${Number((100 * x).toPrecision(3))} of 100 cases`
  : form === "g" || Number.isInteger(x) && !form ? String(x)
  : form ? x.toFixed(Number(form)).replace("-", "−") : String(Number(x.toPrecision(4))));

const reckoned = new WeakMap(); // a message -> what is computed from its numbers
/** The cells of a matrix, counted from 0: {judged(row, column): NaN if there is none, names(row, column): the
 *  values of names in a formula of the cell, weak, strong: the ends of the scale, best: the strongest cell,
 *  counted row by row}. */
function matrixCells(survey) {
  if (reckoned.has(survey)) return reckoned.get(survey);
  const bytes = Uint8Array.from(atob(survey.numbers), (c) => c.charCodeAt(0));
  const list = new Float32Array(bytes.buffer), worth = new Float64Array(list.length).fill(NaN);
  const [rows, columns] = survey.size, marks = new Map(survey.words.map((word) => [word, new Set()]));
  survey.marks.forEach(([row, column, word]) => marks.get(word).add(row * columns + column));
  const named = (k) => (name) => (name === "value" ? list[k]
    : name === "row" ? Math.floor(k / columns) + 1
    : name === "column" ? k % columns + 1
    : name === "judged" ? worth[k]
    : name === "rank" ? rank(k)
    : marks.has(name) ? Number(marks.get(name).has(k)) : null);
  if (survey.judged !== null)
    list.forEach((x, k) => Number.isFinite(x) && (worth[k] = evaluate(survey.judged, named(k)) ?? NaN));
  const low = survey.strong === "low", sorted = worth.filter((x) => !isNaN(x)).sort();
  if (!low) sorted.reverse();
  const rank = (k) => sorted.findIndex((x) => (low ? x >= worth[k] : x <= worth[k])) + 1;
  const [least, most] = survey.scale.length ? survey.scale : [sorted.at(low ? 0 : -1), sorted.at(low ? -1 : 0)];
  const inside = (row, column) => row >= 0 && column >= 0 && row < rows && column < columns;
  const result = { judged: (row, column) => (inside(row, column) ? worth[row * columns + column] : NaN),
    names: (row, column) => named(row * columns + column), best: worth.indexOf(sorted[0]),
    weak: low ? most : least, strong: low ? least : most };
  reckoned.set(survey, result);
  return result;
}

/** Sentences one after another. names: values of names in their formulas, numbers and texts. */
const joinSentences = (sentences, names) =>
  sayAll(sentences.map(([parts, where]) => [parts, {}, where]), names, formNumber);

/** The chosen cell in words. */
function surveyCellText(survey, row, column) {
  const names = matrixCells(survey).names(row, column), reach = evaluate(survey.reach ?? 1, names) ?? 1;
  return joinSentences(survey.cell, (name) => {
    if (!Object.hasOwn(survey.labels, name)) return names(name);
    const [ofRows, texts] = survey.labels[name];
    return (ofRows ? texts.slice(row, row + reach) : texts.slice(column, column + 1)).map(visibleText).join("");
  });
}

/** Colours between the two of the sheet's map: shade(0) is the weakest. */
function shadesOf(element) {
  const ink = inks(element, "mass-low", "mass-high", "accept", "reject", "ink", "muted", "ring", "bg", "gone");
  const [low, high] = [ink["mass-low"], ink["mass-high"]].map(rgb);
  const shade = (t) => `rgb(${low.map((x, k) => Math.round(x + t * (high[k] - x))).join()})`;
  return { ...ink, shade };
}
/** A frame around a cell, visible also on its own colour. */
/** @param pen
 *  @param ink
 *  @param {number[]} frame
 *  @param {string} colour
 *  @param {number[]} dash */
function strokeFrame(pen, ink, [x, y, wide, high], colour, dash = []) {
  pen.setLineDash([]);
  Object.assign(pen, { lineWidth: 4, strokeStyle: ink.bg });
  pen.strokeRect(x + 1, y + 1, wide - 2, high - 2);
  pen.setLineDash(dash);
  Object.assign(pen, { lineWidth: 2, strokeStyle: colour });
  pen.strokeRect(x + 1, y + 1, wide - 2, high - 2);
  pen.setLineDash([]);
}
/** The frames of marks; of several on a cell the first. box(row, column): the place of a cell */
function markFrames(pen, ink, { marks }, box) {
  for (const [row, column, , status] of marks.filter((one, k) =>
      marks.findIndex((x) => sameCell(x, one)) === k).reverse())
    strokeFrame(pen, ink, box(row, column), ink[status], status === "reject" ? [3, 2] : []);
}
/** The colour of a number between the ends of its scale. */
const matrixShade = (ink, { weak, strong }, x) =>
  ink.shade(weak === strong ? 1 : Math.min(1, Math.max(0, (x - weak) / (strong - weak))));

/** A map of all cells, rows downwards, columns across. */
function cellMap(context) {
  const canvas = h("canvas"), element = h("div", { class: "matrix-map", role: "group", tabindex: 0 }, canvas);
  let of = null, at = null, row = null, size = null, ink = null;
  const listed = (k) => of.listed?.find(([place]) => place === k)?.slice(1) ?? null;
  function choose(down, across) {
    if (isNaN(matrixCells(of).judged(down, across))) return;
    at = [down, across];
    const own = of.listed?.find(([, ...cell]) => sameCell(cell, at));
    if (own) context.select((row = own[0] + 1));
    else context.redraw();
  }
  canvas.addEventListener("click", ({ offsetX, offsetY }) => choose(Math.floor((offsetY - HEAD_PX) / size.high),
    Math.floor((offsetX - SIDE_PX) / size.wide)));
  element.addEventListener("keydown", (event) => {
    const way = event.shiftKey || !at ? null : TURNS[event.key];
    if (!way) return;
    event.preventDefault(), event.stopPropagation();
    choose(at[0] + way[0], at[1] + way[1]);
    element.scrollTop = Math.min(element.scrollTop, at[0] * size.high);
    element.scrollTop = Math.max(element.scrollTop, HEAD_PX + (at[0] + 1) * size.high - element.clientHeight);
  });
  function paint(survey, wide) {
    const cells = matrixCells(survey), [rows, columns] = survey.size;
    const high = Math.min(MAPPED_PX, MAP_MOST / rows);
    const cell = Math.max(5, Math.min(CELL_MOST, Math.floor((wide - SIDE_PX - 14) / columns)));
    size = { wide: cell, high };
    ink ??= shadesOf(element);
    set(canvas, { style: `width:${SIDE_PX + cell * columns + 2}px` });
    const pen = sheet(canvas, SIDE_PX + cell * columns + 2, HEAD_PX + high * rows + 2);
    const gap = high >= WORD_PX ? 1 : 0;
    pen.font = ink.mono;
    pen.textAlign = "right";
    for (let down = 0; down < rows; down++) {
      pen.fillStyle = down === at?.[0] ? ink.ink : ink.muted;
      const word = survey.side ? lineText(survey.side[down]).slice(0, 11) : String(down + 1);
      if (gap) pen.fillText(word, SIDE_PX - 6, HEAD_PX + down * high + high - 4);
      for (let across = 0; across < columns; across++) {
        const value = cells.judged(down, across);
        if (isNaN(value)) continue;
        pen.fillStyle = matrixShade(ink, cells, value);
        pen.fillRect(SIDE_PX + across * cell, HEAD_PX + down * high, cell - gap, high - gap);
      }
    }
    pen.font = ink.less;
    pen.textAlign = "center";
    pen.fillStyle = ink.muted;
    const every = cell < 18 ? 5 : 1;
    for (let across = 0; across < columns; across++)
      if (across === 0 || (across + 1) % every === 0)
        pen.fillText(survey.head ? lineText(survey.head[across]).slice(0, Math.floor(cell * every / 6))
          : String(across + 1), SIDE_PX + (across + 0.5) * cell, HEAD_PX - 4);
    const box = (down, across) =>
      [SIDE_PX + across * cell - 1, HEAD_PX + down * high - 1, cell + 1, Math.max(6, high + 1)];
    markFrames(pen, ink, survey, box);
    if (at && !sameCell(at, survey.marks[0])) strokeFrame(pen, ink, box(...at), ink.ring);
  }
  return {
    element,
    restyle: () => (ink = null),
    /** Draws it and returns the text under it. */
    draw(survey, chosen, width) {
      const before = of, columns = survey.size[1], { best } = matrixCells(survey);
      of = survey;
      if (before !== survey || (chosen !== row && listed(chosen - 1)))
        at = listed(chosen - 1) ?? survey.listed?.[0]?.slice(1) ?? survey.marks[0]?.slice(0, 2)
          ?? (best < 0 ? null : [Math.floor(best / columns), best % columns]);
      row = chosen;
      paint(survey, width);
      set(element, { "aria-label": survey.label });
      return at ? surveyCellText(survey, ...at) : "";
    },
  };
}

/** A map with the rows of a tally, which are listed next to it with their numbers as bars. */
function rowMap(context) {
  const canvas = h("canvas"), list = h("ol", { class: "beams grown" });
  const rows = pool(list, () => h("li", null, h("button", { type: "button" }, h("span", { class: "quiet n" }),
    h("span", { class: "meter" }, h("i")), h("span", { class: "quiet rate" }), h("span", { class: "text" }),
    h("span", { class: "quiet why" }))));
  const element = h("div", { class: "lineage matrix-rows" }, canvas, list);
  let of = null, pair = null, at = 0, size = 0, ink = null;
  const across = () => (of.square ? of.order : [...Array(of.size[1]).keys()]);
  function choose(k, other) {
    (pair = other ?? null), (at = k);
    const place = of.rows[k][4];
    if (place === null) context.redraw();
    else context.select(place + 1);
  }
  list.addEventListener("click", ({ target }) => {
    const row = target.closest("li");
    if (row) choose(of.order[[...list.children].indexOf(row)]);
  });
  canvas.addEventListener("click", ({ offsetX, offsetY }) => {
    const [a, b] = [Math.floor(offsetY / BESIDE_PX), Math.floor(offsetX / size)];
    if (a < of.order.length && b < of.size[1]) choose(of.order[a], across()[b]);
  });
  function paint(survey, width) {
    const columns = across(), n = columns.length, cells = matrixCells(survey), { order } = survey;
    size = Math.max(3, Math.min(BESIDE_PX, Math.floor((width < 560 ? 0.3 : 0.4) * width / n)));
    ink ??= shadesOf(element);
    set(canvas, { style: `width:${n * size}px;flex:none` });
    const pen = sheet(canvas, n * size, order.length * BESIDE_PX), gap = size > 6 ? 1 : 0;
    order.forEach((a, y) => columns.forEach((b, x) => {
      const value = cells.judged(a, b);
      if (isNaN(value)) return;
      pen.fillStyle = matrixShade(ink, cells, value);
      pen.fillRect(x * size, y * BESIDE_PX, size - gap, BESIDE_PX - 1);
    }));
    const box = (a, b) => [columns.indexOf(b) * size, order.indexOf(a) * BESIDE_PX, size, BESIDE_PX];
    markFrames(pen, ink, survey, box);
    if (order.includes(at)) strokeFrame(pen, ink, [0, order.indexOf(at) * BESIDE_PX, n * size, BESIDE_PX], ink.ring);
    if (pair !== null) strokeFrame(pen, ink, box(at, pair), ink.ink);
  }
  return {
    element,
    restyle: () => (ink = null),
    draw(survey, chosen, width) {
      if (of !== survey) (of = survey), (pair = null), (at = 0);
      const here = survey.rows.findIndex((row) => row[4] !== null && row[4] === chosen - 1);
      if (here >= 0) at = here;
      const numbers = survey.rows.map((row) => row[1] ?? 0);
      const most = Math.max(...numbers), least = Math.min(0, ...numbers);
      survey.order.forEach((k, place) => {
        const row = rows.at(place), [n, meter, rate, text, why] = row.firstChild.childNodes;
        const [words, number, holds, word] = survey.rows[k], first = k === survey.first;
        say(n, String(k + 1)), say(rate, number === null ? "" : threeDecimals(number)), say(text, lineText(words));
        const share = most > least && number !== null ? (number - least) / (most - least) : 0;
        set(meter.firstChild, { style: `width:${(100 * share).toFixed(0)}%` });
        say(why, first ? `★ ${word}` : word);
        set(row, { class: first ? "best" : holds ? null : "shut" });
        set(row.firstChild, { "aria-pressed": k === at, title: lineText(words) });
      });
      rows.trim(survey.order.length);
      paint(survey, width);
      return pair === null ? joinSentences(survey.rows[at]?.[5] ?? [], () => null)
        : surveyCellText(survey, at, pair);
    },
  };
}

/** A matrix, and under it in words the chosen cell and the meaning of its colours. */
function matrixPanel(context) {
  const maps = [cellMap(context), rowMap(context)];
  const now = h("p", { class: "took", role: "status" }), key = h("p", { class: "quiet" });
  return {
    element: h("div", { class: "survey" }, maps.map((map) => map.element), now, key),
    restyle: () => maps.forEach((map) => map.restyle()),
    /** absent(): the text instead of a matrix that is not there. */
    draw(survey, chosen, width, absent) {
      const own = survey.numbers ? maps[survey.rows ? 1 : 0] : null;
      maps.forEach((map) => see(map.element, map === own));
      see(now, own);
      if (!own) return void say(key, absent());
      say(now, own.draw(survey, chosen, width)), say(key, survey.key);
    },
  };
}

/** The matrices of a step, one below the other. */
export function surveyView(context) {
  const element = h("div"), panels = [];
  return {
    element,
    restyle: () => panels.forEach((panel) => panel.restyle()),
    draw(store, i, chosen, width) {
      const { survey, few } = store.steps[i];
      while (panels.length < survey.length) element.append(panels[panels.push(matrixPanel(context)) - 1].element);
      panels.forEach((panel, k) => see(panel.element, k < survey.length));
      survey.forEach((one, k) => panels[k].draw(one, chosen, Math.max(200, width), () =>
        few === true ? context.absent(store, "The map of this step")
          : "The map of this step is too large to be drawn, or was not kept; the card lists the best."));
    },
  };
}

bring("survey", { surveyView });
