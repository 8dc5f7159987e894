/* chart: lines over the steps of a run, with the present step marked, as the cache page draws them. */
import { formatCount, h, plural, s } from "../scope.js";

/** px of one of two charts in an element: side by side if there is room. */
export const room = ({ clientWidth: wide }) => Math.max(240, Math.min(900, (wide || 600) / (wide > 760 ? 2 : 1) - 16));

/** Lines [name, values, class] over `steps`, with the values `present` of step i, or none, and the budget, or
 *  null. A line is interrupted where a value is null. least: the smallest upper end of the axis. */
export function chart({ word, wide, steps, lines, unit, i, present, budget = null, least = 1 }) {
  const high = 170, left = 64, right = 84, top = 16, bottom = 26, span = wide - left - right,
    tall = high - top - bottom;
  const peak = Math.max(least, ...lines.flatMap(([, values]) => values), budget || 0, ...(present || [])),
    last = Math.max(1, steps.at(-1) ?? 1, i);
  const x = (k) => left + (k / last) * span, y = (value) => top + tall - (value / peak) * tall;
  const marks = [0, 0.5, 1].map((part) =>
    [s("path", { class: "rule", d: `M${left},${y(part * peak)}H${left + span}` }),
      s("text", { x: left - 8, y: y(part * peak) + 4, "text-anchor": "end" }, unit(part * peak))]);
  const on = (values, k) => k > 0 && values[k - 1] !== null;
  const curve = (values) =>
    values.map((value, k) =>
      value === null ? "" : `${on(values, k) ? "L" : "M"}${x(steps[k]).toFixed(1)},${y(value).toFixed(1)}`).join("");
  const curves = lines.map(([, values, cls]) => s("path", { class: "line " + cls, d: curve(values) }));
  let above = -Infinity;
  const ends = lines.map(([name, values]) => [name, y(values.at(-1) ?? 0)])
    .sort((a, b) => a[1] - b[1])
    .map(([name, at]) => s("text", { x: left + span + 8, y: above = Math.max(at + 4, above + 14) }, name));
  const dots = present
    ? [s("path", { class: "here", d: `M${x(i)},${top}V${top + tall}` }),
      ...present.map((value, k) => s("circle", { class: k ? "dot open" : "dot", cx: x(i), cy: y(value), r: 4.5 }))]
    : [];
  const limit = budget !== null && budget <= peak
    ? [s("path", { class: "budget", d: `M${left},${y(budget)}H${left + span}` }),
      s("text", { x: left + 4, y: y(budget) - 4 }, `budget ${formatCount(budget)}`)] : [];
  const figures = lines.map(([name], k) => `${name} ${unit(present?.[k] ?? 0)}`).join(", ");
  const said = `${word} over ${plural(last + 1, "step")}${present ? `: ${figures} at step ${i}` : ""}`;
  return h("figure", null, h("figcaption", null, word),
    s("svg", { width: wide, height: high, role: "img", "aria-label": said }, marks, limit, curves, dots, ends,
      s("text", { x: left, y: high - 8 }, "0"),
      s("text", { x: left + span, y: high - 8, "text-anchor": "end" }, `step ${last}`)));
}
