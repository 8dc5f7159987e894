/* Turns: rows in lanes over the steps, such as tokens by the model that wrote them, and the number of each against
 * its bar. */
import { figures, grid, h, hatch, inks, say, see, set, sheet, toggle } from "../shared/elements.js";
import { bring } from "../shared/extras.js";
import { tokenOf } from "../shared/marks.js";
import { percent, plural, formatFixed } from "../shared/numbers.js";
import { visibleText } from "../shared/tokens.js";

const EDGE = 40, SLOT = 22, OVER = 8, CHART = 84, BAND = 20, FOOT = 18; // px

/** The outcome of a row, in words. */
const fateOf = (form, { who, stays }) =>
  `${form.lanes.find(([sign]) => sign === who)?.[1] ?? who}${stays ? "" : `, ${form.back}`}`;

/** The lanes and the numbers above them. Shown if a step has rows in lanes. */
export function turnsView(context) {
  const sums = figures(), canvas = h("canvas"), key = h("p", { class: "quiet" }), spot = h("p", { class: "took" });
  const plot = h("div", { class: "plot", role: "slider", tabindex: 0 }, canvas), twin = h("div", { class: "twin" });
  let tabled = false, columns = [], from = 0, ink = null, width = 0;
  const title = h("h2"), says = h("span", { class: "quiet" });
  const element = h("section", { class: "turns-pane" }, h("header", null, title, says, sums.element), plot, twin, key,
  toggle("Show as table", (on) => ((tabled = on), context.redraw())), spot);
  plot.addEventListener("click", ({ offsetX }) => {
    const one = columns[from + Math.floor((offsetX - EDGE) / SLOT)];
    if (one) context.seek(one.step);
  });

  /** The tokens of the steps around step i, including those that were taken back. */
  const around = (store, i, room) => {
    const all = [];
    for (let k = Math.max(0, i - room); k < Math.min(store.count, i + room + 1); k++) {
      const { tried = [], caught = 0 } = store.steps[k]?.lanes ?? {};
      tried.forEach(([who, text, number, mean, stays], n) =>
        all.push({ step: k, who, text, number, mean, stays, caught: n ? 0 : caught, first: !n }));
    }
    return all;
  };
  function paint(shown, i, bar, most, lanes) {
    const count = lanes.length, pen = sheet(canvas, width, OVER + CHART + (count + 1) * BAND + FOOT);
    const x = (n) => EDGE + n * SLOT + SLOT / 2, place = new Map(lanes.map(([sign], k) => [sign, k]));
    const lane = (n) => OVER + CHART + n * BAND, y = (value) =>
      OVER + CHART * (1 - Math.min(1, Math.max(0, value / most)));
    pen.font = ink.less;
    [pen.textAlign, pen.textBaseline, pen.fillStyle] = ["center", "middle", ink.muted];
    [[formatFixed(most), OVER + 4], ["0", OVER + CHART - 4], ...lanes.map(([sign], k) => [sign, lane(k + 0.5)]),
      ["read", lane(count + 0.5)]].forEach(([word, at]) => pen.fillText(word, EDGE / 2 - 2, at));
    shown.forEach(({ who, stays, caught, number, step, first }, n) => {
      const left = EDGE + n * SLOT, upper = place.get(who) === 0, top = lane(place.get(who) ?? 0) + 1;
      pen.fillStyle = ink[upper ? "target" : "accept-soft"];
      if (stays) pen.fillRect(left, top, SLOT - 1, BAND - 2);
      else hatch(pen, left, top, SLOT - 1, BAND - 2, ink.reject);
      pen.fillStyle = !stays ? ink.ink : upper ? ink.bg : ink.accept;
      pen.fillText(stays ? who : "×", x(n), top + BAND / 2 - 1);
      pen.fillStyle = ink.muted;
      if (caught) pen.fillText(String(caught), x(n), lane(count + 0.5));
      if (first && (step % 5 === 0 || step === i)) pen.fillText(String(step), x(n), lane(count + 1) + 9);
      pen.fillStyle = ink.ink;
      if (number !== null) pen.fillRect(x(n) - 2, y(number) - 2, 4, 4);
    });
    pen.strokeStyle = ink.ink;
    pen.beginPath();
    shown.forEach(({ mean }, n) => mean !== null && pen[n ? "lineTo" : "moveTo"](x(n), y(mean)));
    pen.stroke();
    pen.setLineDash([5, 4]);
    pen.strokeStyle = ink.reject;
    pen.beginPath();
    if (bar !== null && bar >= 0 && bar <= most)
      pen.moveTo(EDGE, y(bar)), pen.lineTo(EDGE + shown.length * SLOT, y(bar));
    pen.stroke();
    pen.setLineDash([]);
    const own = shown.findIndex((one) => one.step === i), many = shown.filter((one) => one.step === i).length;
    pen.strokeStyle = ink.ring;
    pen.lineWidth = 2;
    if (many) pen.strokeRect(EDGE + own * SLOT - 1, lane(0) - 1, many * SLOT + 1, count * BAND + 2);
  }
  /** Shares of the uppermost lane up to step i: tokens, passes, rows read to catch up, tokens taken back. */
  function tell(store, i, form) {
    const [upper] = form.lanes[0];
    let [mine, all, passes, of, read, back] = [0, 0, 0, 0, 0, 0];
    for (const step of store.steps.slice(0, i + 1)) {
      const { tried = [], passes: [first, ...rest] = [0, 0], caught = 0 } = step?.lanes ?? {};
      for (const [who, , , , stays] of tried) stays ? (all++, mine += Number(who === upper)) : back++;
      [passes, of, read] = [passes + first, rest.reduce((sum, n) => sum + n, of + first), read + caught];
    }
    sums.tell([[percent(mine / (all || 1)), ` of tokens by ${upper}`],
      [percent(passes / (of || 1)), ` of passes by ${upper}`],
      ...(form.caught ? [[String(read), " rows read to catch up"]] : []),
      ...(back ? [[String(back), ` ${form.back}`]] : [])]);
  }
  return {
    element,
    look: () => (width = plot.clientWidth || element.clientWidth),
    restyle: () => (ink = null),
    draw(store, i) {
      const lanes = store.steps[i]?.lanes, form = store.head?.views?.[lanes?.of]?.lanes;
      see(element, form);
      if (!form || !width) return;
      see(plot, !tabled);
      see(twin, tabled);
      const name = form.title.toLowerCase();
      set(element, { "aria-label": name });
      say(title, form.title);
      say(says, form.says);
      ink = ink || inks(element, "ink", "muted", "bg", "target", "accept", "accept-soft", "reject", "ring");
      const many = Math.max(1, Math.floor((width - EDGE) / SLOT)), { bar, caught, tried } = lanes;
      columns = around(store, i, many);
      const own = columns.findIndex((one) => one.step === i);
      from = Math.max(0, Math.min(columns.length - many, own - (many >> 1)));
      const shown = columns.slice(from, from + many);
      const top = Math.max(0.1, ...shown.flatMap(({ number, mean }) => [number ?? 0, mean ?? 0]));
      paint(shown, i, bar, form.most ?? Math.max(top, bar < 2 * top ? bar : 0) * 1.05, form.lanes);
      const signs = form.lanes.map(([sign, word]) => `${sign} ${word}`).reverse().join(", ");
      say(key, `${signs}${form.back ? `, × ${form.back}` : ""}. Square: ${form.what}`
        + `${form.mean ? "; line: its mean" : ""}${bar === null ? "" : `; dashed: ${form.bar}, ${+bar.toFixed(3)}`}. `
        + (form.caught ? "Read: rows that a model had to catch up on." : ""));
      const words = `Step ${i}: ${tried.map(([who, text, number, mean, stays]) => `“${visibleText(text)}” by the `
        + fateOf(form, { who, stays })
        + (number === null ? "" : ` (${formatFixed(number)}${mean === null ? "" : `, mean ${formatFixed(mean)}`})`))
        .join(", ")}${caught ? `; ${plural(caught, "row")} read first` : ""}.`;
      say(spot, words);
      set(plot, { "aria-label": `${name}: ${form.says}`, "aria-valuemin": 0, "aria-valuemax": store.count - 1,
        "aria-valuenow": i, "aria-valuetext": words });
      const heads = ["step", "token", "by", form.head, ...(form.mean ? ["mean"] : []), "rows read"];
      if (tabled) twin.replaceChildren(grid(form.says.charAt(0).toUpperCase() + form.says.slice(1), heads,
        shown.map((one) => [one.step, tokenOf(one.text), fateOf(form, one),
          one.number === null ? "–" : formatFixed(one.number),
        ...(form.mean ? [one.mean === null ? "–" : formatFixed(one.mean)] : []), one.caught || ""])));
      tell(store, i, form);
    },
  };
}

bring("turns", { turnsView });
