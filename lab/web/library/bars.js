/* bars: tokens per step as small columns, on one scale for all traces. */
import { h, formatFixed } from "../scope.js";

/** counts: tokens of the steps of a run, or of groups of them; most: the value of the highest column; place: the
 *  element that has the colour. */
export function bars(counts, most, place) {
  const canvas = h("canvas", { width: 288, height: 40, role: "img",
    "aria-label": `tokens per step: ${formatFixed(Math.min(...counts))} to ${formatFixed(Math.max(...counts))}` });
  const c = canvas.getContext("2d"), wide = Math.min(6, 288 / counts.length);
  c.fillStyle = getComputedStyle(place).getPropertyValue("--branch").trim();
  counts.forEach((n, i) =>
    c.fillRect(i * wide, 40 - (38 * n) / most - 2, Math.max(1, wide - 2), (38 * n) / most + 2)
  );
  return canvas;
}
