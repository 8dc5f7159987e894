/* Turns: two models write one text. Who wrote each token, and the number that decided it, against tau. */
import { figures, grid, h, hatch, inks, say, see, set, sheet, toggle } from "./elements.js";
import { bring } from "./extras.js";
import { tokenOf } from "./marks.js";
import { percent, plural, two } from "./numbers.js";
import { spoken } from "./tokens.js";

const EDGE = 40, SLOT = 22, OVER = 8, CHART = 84, BAND = 20, FOOT = 18; // px
const MODELS = { S: "small model", M: "large model" };

/** What became of a token, in words. */
const fateOf = ({ who, stays }) => `${MODELS[who]}${stays ? "" : ", taken back"}`;

/** The lanes and the numbers above them. Shown where a router chose between two models token by token. */
export function turnsView(context) {
  const sums = figures(), canvas = h("canvas"), key = h("p", { class: "quiet" }), spot = h("p", { class: "took" });
  const plot = h("div", { class: "plot", role: "slider", tabindex: 0, "aria-label": "two lanes: who wrote each token" },
    canvas), twin = h("div", { class: "twin" });
  let tabled = false, columns = [], from = 0, ink = null, width = 0;
  const element = h("section", { class: "turns-pane", "aria-label": "two lanes" }, h("header", null,
    h("h2", null, "Two lanes"), h("span", { class: "quiet" }, "who wrote each token"), sums.element), plot, twin, key,
  toggle("Show as table", (on) => ((tabled = on), context.redraw())), spot);
  plot.addEventListener("click", ({ offsetX }) => {
    const one = columns[from + Math.floor((offsetX - EDGE) / SLOT)];
    if (one) context.seek(one.step);
  });

  /** The tokens of the steps around step i, also those that were taken back. */
  const around = (store, i, room) => {
    const all = [];
    for (let k = Math.max(0, i - room); k < Math.min(store.count, i + room + 1); k++) {
      const { tried = [], caught = 0 } = store.steps[k]?.lanes ?? {};
      tried.forEach(([who, text, number, mean, stays], n) =>
        all.push({ step: k, who, text, number, mean, stays, caught: n ? 0 : caught, first: !n }));
    }
    return all;
  };
  function paint(shown, i, tau, most) {
    const pen = sheet(canvas, width, OVER + CHART + 3 * BAND + FOOT), x = (n) => EDGE + n * SLOT + SLOT / 2;
    const lane = (n) => OVER + CHART + n * BAND, y = (value) =>
      OVER + CHART * (1 - Math.min(1, Math.max(0, value / most)));
    pen.font = ink.less;
    [pen.textAlign, pen.textBaseline, pen.fillStyle] = ["center", "middle", ink.muted];
    [[two(most), OVER + 4], ["0", OVER + CHART - 4], ["M", lane(0.5)], ["S", lane(1.5)], ["read", lane(2.5)]].forEach(
      ([word, at]) => pen.fillText(word, EDGE / 2 - 2, at));
    shown.forEach(({ who, stays, caught, number, step, first }, n) => {
      const left = EDGE + n * SLOT, top = lane(who === "M" ? 0 : 1) + 1;
      pen.fillStyle = ink[who === "M" ? "target" : "accept-soft"];
      if (stays) pen.fillRect(left, top, SLOT - 1, BAND - 2);
      else hatch(pen, left, top, SLOT - 1, BAND - 2, ink.reject);
      pen.fillStyle = !stays ? ink.ink : who === "M" ? ink.bg : ink.accept;
      pen.fillText(stays ? who : "×", x(n), top + BAND / 2 - 1);
      pen.fillStyle = ink.muted;
      if (caught) pen.fillText(String(caught), x(n), lane(2.5));
      if (first && (step % 5 === 0 || step === i)) pen.fillText(String(step), x(n), lane(3) + 9);
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
    if (tau >= 0 && tau <= most) pen.moveTo(EDGE, y(tau)), pen.lineTo(EDGE + shown.length * SLOT, y(tau));
    pen.stroke();
    pen.setLineDash([]);
    const own = shown.findIndex((one) => one.step === i), many = shown.filter((one) => one.step === i).length;
    pen.strokeStyle = ink.ring;
    pen.lineWidth = 2;
    if (many) pen.strokeRect(EDGE + own * SLOT - 1, lane(0) - 1, many * SLOT + 1, 2 * BAND + 2);
  }
  /** Shares as far as step i: tokens, passes, rows read to catch up, tokens taken back. */
  function tell(store, i) {
    let [large, all, passes, of, read, back] = [0, 0, 0, 0, 0, 0];
    for (const step of store.steps.slice(0, i + 1)) {
      const { tried = [], passes: [small, big] = [0, 0], caught = 0 } = step?.lanes ?? {};
      for (const [who, , , , stays] of tried) stays ? (all++, large += who === "M") : back++;
      [passes, of, read] = [passes + big, of + small + big, read + caught];
    }
    sums.tell([[percent(large / (all || 1)), " of tokens by M"], [percent(passes / (of || 1)), " of passes by M"],
      [String(read), " rows read to catch up"], ...(back ? [[String(back), " taken back"]] : [])]);
  }
  return {
    element,
    look: () => (width = plot.clientWidth || element.clientWidth),
    restyle: () => (ink = null),
    draw(store, i) {
      const lanes = store.steps[i]?.lanes;
      see(element, lanes);
      if (!lanes || !width) return;
      see(plot, !tabled);
      see(twin, tabled);
      ink = ink || inks(element, "ink", "muted", "bg", "target", "accept", "accept-soft", "reject", "ring");
      const many = Math.max(1, Math.floor((width - EDGE) / SLOT)), { tau, judged, caught, tried } = lanes;
      columns = around(store, i, many);
      const own = columns.findIndex((one) => one.step === i);
      from = Math.max(0, Math.min(columns.length - many, own - (many >> 1)));
      const shown = columns.slice(from, from + many);
      const top = Math.max(0.1, ...shown.flatMap(({ number, mean }) => [number ?? 0, mean ?? 0]));
      paint(shown, i, tau, judged ? 1 : Math.max(top, tau < 2 * top ? tau : 0) * 1.05);
      const what = judged ? "the small model's largest probability" : "entropy of the writer's law, bits";
      say(key, `S ${MODELS.S}, M ${MODELS.M}${judged ? ", × taken back" : ""}. Square: ${what}`
        + `${judged ? "" : "; line: its mean"}; dashed: tau, ${+tau.toFixed(3)}. `
        + `Read: rows that a model had to catch up on.`);
      const words = `Step ${i}: ${tried.map(([who, text, number, mean, stays]) => `“${spoken(text)}” by the `
        + fateOf({ who, stays })
        + (number === null ? "" : ` (${two(number)}${mean === null ? "" : `, mean ${two(mean)}`})`))
        .join(", ")}${caught ? `; ${plural(caught, "row")} read first` : ""}.`;
      say(spot, words);
      set(plot, { "aria-valuemin": 0, "aria-valuemax": store.count - 1, "aria-valuenow": i, "aria-valuetext": words });
      if (tabled) twin.replaceChildren(grid("Who wrote each token", ["step", "token", "by", judged ? "p" : "bits",
        ...(judged ? [] : ["mean"]), "rows read"], shown.map((one) => [one.step, tokenOf(one.text), fateOf(one),
        one.number === null ? "–" : two(one.number), ...(judged ? [] : [one.mean === null ? "–" : two(one.mean)]),
        one.caught || ""])));
      tell(store, i);
    },
  };
}

bring("turns", { turnsView });
