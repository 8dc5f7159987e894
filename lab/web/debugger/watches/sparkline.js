/* sparkline: the values of a watch over the steps of a run, as a line, and one of them as a number. */
import { s } from "../../scope.js";

const WIDE = 96, HIGH = 22; // px of a line

/** A number as a watch shows it. */
export function shortNumber(x) {
  if (x === null || x === undefined) return "–";
  if (Number.isInteger(x) && Math.abs(x) < 1e6) return String(x);
  const size = Math.abs(x);
  return size >= 1e6 || size < 1e-4 ? x.toExponential(2)
    : size >= 100 ? x.toFixed(0) : size >= 1 ? x.toFixed(2) : x.toFixed(3);
}

/** Values over the steps as one path; interrupted where a step has none, with a dot for a single value. */
function line(values, first, last, low, high) {
  const x = (step) => 3 + ((step - first) / Math.max(1, last - first)) * (WIDE - 6);
  const y = (value) => (high > low ? HIGH - 3 - ((value - low) / (high - low)) * (HIGH - 6) : HIGH / 2);
  let path = "", before = null;
  for (const [step, value] of values) {
    if (value === null) {
      before = null;
      continue;
    }
    path += before === null ? `M${x(step).toFixed(1)},${y(value).toFixed(1)}h0`
      : `L${x(step).toFixed(1)},${y(value).toFixed(1)}`;
    before = value;
  }
  return { path, x, y };
}

/** An empty picture of a line; a dot marks the present step. */
export const picture = () =>
  s("svg", { width: WIDE, height: HIGH, role: "img" }, s("path"), s("circle", { r: 2.5 }));

const bounds = (values) => {
  const known = values.map((x) => x[1]).filter((x) => x !== null);
  return [Math.min(...known), Math.max(...known)];
};
/** The least and the largest value, in words; "" where there is none. */
export function range(values) {
  const [low, high] = bounds(values);
  return low <= high ? `${shortNumber(low)} to ${shortNumber(high)}` : "";
}
/** Draw the values, [[step, value], ...], into the picture; `here`: the value at step `at`, or null. */
export function draw(svg, values, at, here) {
  const [path, dot] = svg.children;
  const drawn = line(values, values[0]?.[0] ?? 0, values.at(-1)?.[0] ?? 0, ...bounds(values));
  path.setAttribute("d", drawn.path);
  dot.style.display = here === null ? "none" : "";
  if (here !== null)
    dot.setAttribute("transform", `translate(${drawn.x(at).toFixed(1)},${drawn.y(here).toFixed(1)})`);
}
