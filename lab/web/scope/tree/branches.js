/* Branches: the lines of a tree next to its rows, each from the place where it leaves another one to its end. */
import { s, set } from "../shared/elements.js";

const ORDERED = ["left", "kept", "won"]; // the last on top

/** Draws them into `svg`. lines: [{from: [depth, row] where it leaves, or nothing, at: [depth, row] of its end,
 *  kind: "left", "kept" or "won", own: whether it is chosen, dots: depths on it that are marked too}]; stride,
 *  high: px of a depth and of a row; deepest: depths that there is room for; now: a depth after which all is
 *  faint. */
export function treeLines(svg, lines, { stride, high, deepest, rows, now = null }) {
  const x = (depth) => 8 + depth * stride, y = (row) => (row + 0.5) * high;
  const strokes = [...lines].sort((a, b) => ORDERED.indexOf(a.kind) - ORDERED.indexOf(b.kind)).flatMap((line) => {
    const [depth, row] = line.at, { from } = line;
    return from ? [s("path", { class: line.kind, d: `M${x(from[0])},${y(from[1])}V${y(row)}H${x(depth)}` })] : [];
  });
  const dots = lines.flatMap(({ at: [depth, row], kind, own, dots: more = [] }) => [...more, depth].map((one) =>
    s("circle", { class: own ? "own" : kind, cx: x(one), cy: y(row), r: kind === "left" || one !== depth ? 2.5 : 4 })));
  const veil = now === null ? [] : [s("rect", { class: "later", x: x(now) + stride / 2, y: 0,
    width: Math.max(0, (deepest - now) * stride + 8), height: rows * high })];
  svg.replaceChildren(...strokes, ...dots, ...veil);
  set(svg, { width: 16 + deepest * stride, height: rows * high });
}
