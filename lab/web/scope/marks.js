/* Marks: the shape and the word of every status. */
import { h, s } from "./elements.js";
import { pieces } from "./tokens.js";

const STAR = [...Array(10)].map((_, i) => [i % 2 ? 0.45 : 1.25, (Math.PI * (i - 2.5)) / 5]).map(([r, a]) => [r * Math.cos(a), r * Math.sin(a)]);
export const points = (shape, r) => shape.map(([x, y]) => `${(x * r).toFixed(2)},${(y * r).toFixed(2)}`).join(" ");
const TRIANGLE = [[0, -1.15], [1.1, 0.85], [-1.1, 0.85]];
export const DIAMOND = [[0, -1.15], [1.15, 0], [0, 1.15], [-1.15, 0]];
export const SHAPES = {
  root: (r) => s("rect", { x: -r, y: -r, width: 2 * r, height: 2 * r }),
  accept: (r) => s("circle", { r }),
  reject: (r) => [s("circle", { r }), s("path", { d: `M${-r * 0.45},${-r * 0.45}L${r * 0.45},${r * 0.45}M${r * 0.45},${-r * 0.45}L${-r * 0.45},${r * 0.45}` })],
  unreached: (r) => s("circle", { r }),
  bonus: (r) => s("polygon", { points: points(STAR, r) }),
  resample: (r) => s("polygon", { points: points(TRIANGLE, r) }),
  target: (r) => s("polygon", { points: points(DIAMOND, r) }),
};
export const WORDS = { root: "root", accept: "accepted", reject: "rejected", unreached: "not reached", bonus: "bonus", resample: "resampled", target: "target's own" };
export const radius = (n) => (n.status === "unreached" ? 2.5 : n.status === "root" ? 4 : n.status === "bonus" || n.status === "resample" || n.status === "target" ? 6 : 3.5 + 3 * (n.q ?? 0.5));
export const glyph = (status, r = 4.5) => s("svg", { width: 14, height: 14, viewBox: "-7 -7 14 14", class: "glyph", "aria-hidden": "true" }, s("g", { class: "mark " + status }, SHAPES[status](status === "unreached" ? 2.5 : r)));

/** A token as inline elements, its symbols in a quieter ink. */
export const tokenOf = (text, most = 20) => h("code", { class: "token" }, pieces(text, most).map(([shown, quiet]) => (quiet ? h("span", { class: "ws" }, shown) : shown)));
