/* Arrow: pictures and tables of the card: box, ink and arrow; distributions; sums. */
import { h, s } from "../shared/elements.js";
import { outline, tokenOf } from "../shared/marks.js";
import { prob, share } from "../shared/numbers.js";
import { addTerm } from "../shared/terms.js";

/** The dart: its mark stays clear of the card's edge, the line above it is where u fell. */
const arrowHead = (u, W, status) => s("path",
  { class: `throw ${status}`, d: outline("target", 6), transform: `translate(${Math.max(2, Math.min(W - 2, u))},19)` });
const inkText = (x, y, kind, said, anchor) => s("text", { x, y, class: kind, "text-anchor": anchor }, said);
/** The box is the draft's claim, the ink the part that the target backs, u is thrown at the box. */
export function arrow(box, width, status) {
  const ratio = box.box > 0 ? box.ink / box.box : 0, over = Math.min(1.45, Math.max(1, ratio)), W = width - 2,
    wide = W / over, ink = Math.min(1, ratio) * wide;
  const svg = s("svg", { class: "dart", width, height: box.u === undefined ? 66 : 88,
    viewBox: `-1 ${box.u === undefined ? -2 : -24} ${width} ${box.u === undefined ? 66 : 88}`, "aria-hidden": "true" });
  if (ratio > 1) svg.append(s("rect", { class: "owed", x: wide, y: 7, width: W - wide, height: 24 }));
  svg.append(s("rect", { class: "paper", x: 0, y: 0, width: wide, height: 38, rx: 2 }),
    s("rect", { class: "ink", x: 0, y: 0, width: ink, height: 38 }),
    s("rect", { class: "box", x: 0, y: 0, width: wide, height: 38, rx: 2 }));
  const name = box.name || "p";
  if (ink > 26) svg.append(inkText(9, 23, "on-ink", name, "start"));
  const side = box.mark === undefined ? box.side ?? "q" : "";
  if (wide - ink > 19 + 7 * side.length) svg.append(inkText(wide - 9, 23, "on-paper", side, "end"));
  const share = Math.min(1, ratio), mark = box.mark !== undefined ? box.mark : share;
  const at = mark * wide,
    label = box.mark !== undefined ? `bound ${prob(box.mark)}`
      : ratio >= 1 ? "" : `${box.against ?? "p/q"} ${prob(ratio)}`;
  const half = label.length * 3.4, x = Math.max(half, Math.min(W - half, at));
  if (label) svg.append(s("path", { class: "tick", d: `M${at},38v6` }),
    inkText(x, 52, "scale strong", label, "middle"));
  if (!label || x - half > 14) svg.append(inkText(0, 52, "scale", "0", "start"));
  if (!label || x + half < wide - 10) svg.append(inkText(wide, 52, "scale", "1", ratio > 1 ? "middle" : "end"));
  if (box.u !== undefined && box.u !== null) {
    const u = box.u * wide, label = `u ${prob(box.u)}`, h2 = label.length * 3.3;
    svg.append(s("path", { class: "aim " + status, d: `M${u},-9V14` }),
      arrowHead(u, W, status),
      inkText(Math.max(h2, Math.min(W - h2, u)), -13, "scale strong", label, "middle"));
  }
  return svg;
}

/** All tokens side by side, with widths by their probability, and where u fell. */
export function stretch({ u, low, high }, width) {
  const W = width - 2, a = low * W, b = Math.max(low * W + 1.5, high * W), label = `u ${prob(u)}`,
    half = label.length * 3.3;
  const ends = `${prob(low)} to ${prob(high)}`, h2 = ends.length * 3.1,
    mid = Math.max(h2, Math.min(W - h2, (a + b) / 2));
  return s("svg", { class: "dart", width, height: 88, viewBox: `-1 -24 ${width} 88`, "aria-hidden": "true" },
    s("rect", { class: "paper", width: W, height: 38, rx: 2 }),
    s("rect", { class: "owed", x: a, width: b - a, height: 38 }),
    s("rect", { class: "box", width: W, height: 38, rx: 2 }), s("path", { class: "aim own", d: `M${u * W},-9V14` }),
    arrowHead(u * W, W, "own"),
    inkText(Math.max(half, Math.min(W - half, u * W)), -13, "scale strong", label, "middle"),
    mid - h2 > 14 ? inkText(0, 52, "scale", "0", "start") : null,
    mid + h2 < W - 10 ? inkText(W, 52, "scale", "1", "end") : null, inkText(mid, 52, "scale strong", ends, "middle"));
}

export function distributionTable(laws, title, note, most) {
  const scale = Math.max(...laws.rows.map((row) => Math.max(row.p, laws.drawn ? row.q : 0)), 1e-9),
    pct = (x) => `${((100 * x) / scale).toFixed(2)}%`;
  const rows = laws.rows.map((row) => {
    const rest = row.token === null;
    return h("tr", { class: (row.tried ? "tried " : "") + (rest ? "rest" : "") || null },
      h("th", { scope: "row" }, rest ? "all others" : tokenOf(row.text, most)),
      h("td", { class: "picture" },
        h("span", { class: "pair" },
          row.p > row.q && laws.drawn && laws.left ? h("span", { class: "owed", style: `width:${pct(row.p)}` }) : null,
          h("span", { class: "ink", style: `width:${pct(laws.drawn && laws.left ? Math.min(row.p, row.q) : row.p)}` }),
          laws.drawn ? h("span", { class: "box", style: `width:${pct(row.q)}` }) : null)),
      laws.drawn ? h("td", null, share(row.q)) : null, h("td", null, share(row.p)),
      laws.left ? h("td", { class: "left" }, row.left > 0 ? share(row.left) : "–") : null);
  });
  return [h("h3", null, title, h("span", { class: "quiet" }, note)),
    h("table", { class: "laws" },
      h("thead", null,
        h("tr", null, h("th", { scope: "col" }, "token"), h("td", null),
          laws.drawn ? addTerm(h("th", { scope: "col" }, "q")) : null, addTerm(h("th", { scope: "col" }, "p")),
          laws.left ? addTerm(h("th", { scope: "col" }, "residual")) : null)), h("tbody", null, rows))];
}

export const numbersTable = (rows, test) =>
  h("table", { class: "sums" }, h("tbody", null, rows.map(([word, symbol, value]) =>
    h("tr", null, addTerm(h("th", { scope: "row" }, word)), h("td", null, addTerm(h("code", null, symbol))),
      h("td", { class: "value" }, value && typeof value === "object" ? tokenOf(value.text)
        : typeof value === "number" ? prob(value) : value ?? "–"))
  ), test));
