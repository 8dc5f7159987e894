/* Marks: the outline and the word of every status. */
import { h, s } from "./elements.js";
import { pieces } from "./tokens.js";

const STAR = [...Array(10)].map((_, i) => [i % 2 ? 0.45 : 1.25, (Math.PI * (i - 2.5)) / 5]).map(([r, a]) =>
  [r * Math.cos(a), r * Math.sin(a)]);
const SQUARE = [[-1, -1], [1, -1], [1, 1], [-1, 1]], TRIANGLE = [[0, -1.15], [1.1, 0.85], [-1.1, 0.85]],
  DIAMOND = [[0, -1.15], [1.15, 0], [0, 1.15], [-1.15, 0]];
const shape = (corners) => (r, x, y) =>
  "M" + corners.map(([u, v]) => `${(x + u * r).toFixed(2)},${(y + v * r).toFixed(2)}`).join("L") + "Z";
const disc = (r, x, y) => `M${x - r},${y}a${r},${r} 0 1 0 ${2 * r},0a${r},${r} 0 1 0 ${-2 * r},0Z`;
const cross = (r, x, y) => `M${x - r},${y - r}l${2 * r},${2 * r}m0,${-2 * r}l${-2 * r},${2 * r}`;
const OUTLINES = { root: shape(SQUARE), accept: disc, reject: (r, x, y) => disc(r, x, y) + cross(r * 0.45, x, y),
  unreached: disc, bonus: shape(STAR), resample: shape(TRIANGLE), target: shape(DIAMOND), draft: shape(DIAMOND) };
/** The path of a mark of radius r around x, y. */
export const outline = (status, r, x = 0, y = 0) => OUTLINES[status](r, x, y);
export const WORDS = { root: "root", accept: "accepted", reject: "rejected", unreached: "not reached", bonus: "bonus",
  resample: "resampled", target: "target's own", draft: "small model's own" };
/** The word of a status; a token that replaced rejected ones without a draw is a correction. */
export const statusWord = (status, drawn) => (status === "resample" && !drawn ? "correction" : WORDS[status]);
/** Whether the sampler of a run draws. */
export const draws = (head) => !head?.parts?.sampler?.greedy;
/** Whether a drafter is at work in a run.
 *  @param {{parts?: Record<string, any>}} head */
export const drafts = ({ parts: { strategy, drafter } = {} }) =>
  (strategy?.uses ?? ["drafter"]).includes("drafter") && drafter?.drafts !== false;
/** Whether a router chooses between two models in a run.
 *  @param {{parts?: Record<string, any>}} head */
export const routes = ({ parts: { strategy } = {} }) => !!strategy?.uses?.includes("router");
export const radius = (n) => (n.status === "unreached" ? 2.5
  : n.status === "root" ? 4
  : ["bonus", "resample", "target", "draft"].includes(n.status) ? 6 : 3.5 + 3 * (n.q ?? 0.5));
export const glyph = (status, r = 4.5) =>
  s("svg", { width: 14, height: 14, viewBox: "-7 -7 14 14", class: "glyph", "aria-hidden": "true" },
    s("path", { class: "mark " + status, d: outline(status, status === "unreached" ? 2.5 : r) }));

/** A token as inline elements, its symbols in a quieter ink. */
export const tokenOf = (text, most = 20) =>
  h("code", { class: "token" },
    pieces(text, most).map(([shown, quiet]) => (quiet ? h("span", { class: "ws" }, shown) : shown)));
