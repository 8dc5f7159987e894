/* Canvas: places that are filled in any order: the passes over them, and the text after the chosen pass. */
import { numbersTable } from "../card/arrow.js";
import { shell } from "../card/card.js";
import { grid, h, pool, say, set } from "../shared/elements.js";
import { bring } from "../shared/extras.js";
import { emittedCount, openPlaces, settledAt, waitingPlaces } from "./fills.js";
import { tokenOf } from "../shared/marks.js";
import { prob, formatFixed } from "../shared/numbers.js";
import { passesView, SIDES } from "./passes.js";
import { fedText, placeText } from "./place_text.js";
import { textParts, visibleText } from "../shared/tokens.js";

const ROWS = 14, COLUMNS = 128, SHOWN = 256; // maximum passes and places of the table, and places of the text

/** Why a place was settled by a rule: its sign, and words. */
const reasonOf = ({ form }, rule) => form.words?.[rule] ?? ["•", rule];

const quotedText = ({ text }) => `“${visibleText(text)}”`;
/** A token at its place among others; a mask where there is none. */
const cellText = (one) => (one ? textParts(one.text).map(([, word]) => word.replace("\n", "")).join("") || "·" : "▁");

/** At most `most` of `length` places from `start`: those around `at`. */
function around([start, length], most, at) {
  const from = Math.max(start, Math.min(start + length - most, at - (most >> 1)));
  return Array.from({ length: Math.min(length, most) }, (_, k) => from + k);
}

/** The cell of a place in a pass: {kind, shade, word, title}; nothing for later passes. */
function cellOf(step) {
  const { at: [start], among: [first, behind], anchors, again } = step.canvas, all = openPlaces(step.canvas);
  const now = new Map(step.canvas.now.map(([place, rule, , text]) => [place, { rule, text }]));
  return (place) => {
    const one = all?.get(place), taken = now.get(place), where = `place ${place - start + 1}: `;
    if (!one && !taken) return place >= behind || (!all && place >= first) ? null : { kind: "done" };
    const { c: shade, text } = one ?? taken, sure = shade === undefined ? "" : `, ${formatFixed(shade)}`;
    const more = `${anchors?.includes(place) ? " anchor" : ""}${again?.includes(place) ? " again" : ""}`;
    return { kind: `${taken ? "now" : "open"}${more}`, shade,
      word: taken && reasonOf(step.canvas, taken.rule)[0],
      title: `${where}${quotedText({ text })}${sure}${taken ? `, settled, ${taken.rule}` : ""}` };
  };
}

/** The passes over a canvas, and its places after the chosen pass. */
export function canvasView(context) {
  const key = h("p", { class: "quiet" }), list = h("ol", { class: "canvas", "aria-label": "places" });
  let first = 0, places = 0; // of the canvas
  const table = passesView({ label: "passes by place", seek: context.seek,
    choose: (step, place) => context.ring({ step, node: place - first + 1 }) });
  const items = pool(list, () => h("li", null, h("button", { type: "button" })));
  list.addEventListener("click", ({ target }) =>
    target.closest("button") && context.select(Number(target.closest("button").dataset.node)));
  const element = h("div", { class: "canvas-box" }, table.element, key, list);

  function draw(store, i, chosen, width) {
    const step = store.steps[i], { at, among } = step.canvas, [start] = at, place = start + chosen - 1;
    [first, places] = at;
    const passes = store.steps.slice(Math.max(0, Math.min(i - (ROWS >> 1), store.count - ROWS)))
      .filter((x) => x?.canvas).slice(0, ROWS);
    const columns = around(at, COLUMNS, (among[0] + among[1]) >> 1);
    const wide = Math.max(6, Math.min(22, Math.floor((width - SIDES) / columns.length)));
    table.draw(columns, passes.map((of) => ({ of, step: of.i, cell: cellOf(of), after: fedLine(of.canvas) })),
      { every: wide < 16 ? 8 : 4, from: start, at: i, place, wide, end: "rows fed",
        bring: SIDES + columns.length * wide > width });
    const rules = [...new Set(passes.flatMap((x) => x.canvas.now.map(([, rule]) => rule)))];
    say(key, `Shade: confidence of the candidate. Framed: settled in this pass, ${rules.map((rule) =>
      reasonOf(step.canvas, rule).slice(0, 2).join(" ")).join(", ")}.`);
    text(store, i, place);
  }
  /** The places after the pass: tokens, tokens that wait for others before them, and masks. */
  function text(store, i, chosen) {
    const { canvas: fill } = store.steps[i], [start] = fill.at, out = start + emittedCount(store.steps[i]);
    const all = settledAt(store, i), open = openPlaces(fill), places = around(fill.at, SHOWN, fill.among[0]);
    const waits = new Set(waitingPlaces(store, i).map(({ place }) => place));
    const held = list.contains(document.activeElement);
    places.forEach((place, k) => {
      const one = all.get(place), guess = open?.get(place), now = one?.step === i, button = items.at(k).firstChild;
      const words = one
        ? `${quotedText(one)}, settled in pass ${one.step}${waits.has(place) ? ", waits for places before it"
          : place < out ? "" : ", behind the end of the text"}`
        : guess ? `open, candidate ${quotedText(guess)}, ${prob(guess.c)}` : fill.cache === "kept" ? "open" : "a mask";
      say(button, cellText(one));
      set(button, { "data-node": place - start + 1, title: `place ${place - start + 1}: ${words}`,
        "aria-label": `place ${place - start + 1}: ${words}`, "aria-pressed": place === chosen,
        tabindex: place === chosen ? 0 : -1, style: one || !guess ? null : `--p:${Math.round(100 * guess.c)}%`,
        class: one ? `${now ? "now" : "set"}${waits.has(place) ? " ahead" : ""}` : guess ? "open" : "mask" });
      if (held && place === chosen) button.focus({ preventScroll: true });
    });
    items.trim(places.length);
  }
  /** h and l: the place that a key leads to; j and k: the same place in another pass. */
  function step(key, at) {
    if (key === "h" || key === "l") return Math.max(1, Math.min(places, at + (key === "h" ? -1 : 1)));
    context.seek(context.at + (key === "j" ? 1 : -1));
    return at;
  }
  return { element, step, draw, table: openTable, focus: () => list.querySelector('[tabindex="0"]')?.focus() };
}

/** Rows that a pass fed, and the age of the cached entries that it read with them. */
function fedLine({ fed: rows, stale, cache }) {
  return [`${rows}${stale ? `, ${stale} old` : ""}`, fedText({ fed: rows, stale, cache })];
}
/** The decisions of a pass, as a table. */
const openTable = ({ i, canvas: fill }) =>
  grid(`Open places in pass ${i}`, ["place", "candidate", "its confidence", "rank", "bar", "settled"],
    [...(openPlaces(fill) ?? new Map()).values()].map((x) =>
      [x.place - fill.at[0] + 1, tokenOf(x.text), prob(x.c), x.rank, x.bar ?? "–", x.rule ?? "–"]));

/** A place of a canvas. */
function canvasCard(store, i, at) {
  const { title, mark, text, where, agrees, rows, lines, before } = placeText(store, i, at);
  return [shell(mark, title, text === null ? "" : tokenOf(text, 16), where, { agrees }),
    rows.length ? numbersTable(rows) : null,
    lines.map((line) => h("p", { class: "line" }, line)),
    before.length ? [h("h3", null, "In the passes so far"), h("table", { class: "laws block" }, h("tbody", null,
      before.map(({ step, text, c, word }) => h("tr", { class: step === i ? "tried" : null },
        h("th", { scope: "row" }, `pass ${step}`), h("td", { class: "word" }, tokenOf(text, 12)),
        h("td", null, prob(c)), h("td", { class: "yes" }, word)))))] : null];
}

bring("canvas", { canvasView, canvasCard });
