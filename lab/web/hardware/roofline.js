/* roofline: the drawing of the Hardware page. Prompt a triangle, draft a diamond, check a disc; measured filled,
 * modelled hollow; a ring marks the present step's check. */
import { decides, formatCount, formatTime, passName, passWord, s, formatScaled } from "../scope.js";

/** Seconds as people read them, also very few. */
export const time = (seconds) =>
  (seconds >= 1e-4 ? formatTime(seconds) : `${(1e6 * seconds).toFixed(seconds >= 1e-5 ? 0 : 1)} µs`);

/** The outline of a kind of pass around (x, y). */
function shape(phase, x, y, r) {
  if (phase === "prefill")
    return s("path", { d: `M${x},${y - r * 1.2}L${x + r * 1.1},${y + r * 0.8}H${x - r * 1.1}Z` });
  if (phase === "verify" || phase === "other") return s("circle", { cx: x, cy: y, r: phase === "other" ? r * 0.6 : r });
  return s("path", { d: `M${x},${y - r * 1.25}L${x + r * 1.25},${y}L${x},${y + r * 1.25}L${x - r * 1.25},${y}Z` });
}
/** The mark of a row of passes. */
export const kindOf = (row) => (row.phase === "prefill" ? "prefill" : decides(row) ? "verify" : "draft");
const mark = (phase, x, y, r, measured) => {
  const outline = shape(phase, x, y, r);
  outline.setAttribute("class", `mark ${measured ? "full" : "hollow"} ${phase === "other" ? "other" : ""}`);
  return outline;
};
/** A mark for a legend or a row of a table. */
export const phaseIcon = (phase, measured) =>
  s("svg", { class: "key", width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" },
    mark(phase, 0, 0, 4.5, measured));

/** The picture: {wide, high, type: px of a name's letters, machine, there, rows, others, last, hollow}; machine or
 *  there may be missing. */
export function drawRoofline({ wide, high, type, machine, there, rows, others, last, hollow }) {
  const left = 56, top = 12, right = 16, bottom = 40, span = wide - left - right, tall = high - top - bottom;
  const was = rows.filter((p) => p.was);
  const roofs = [machine, there].filter(Boolean), points = [...rows, ...others, ...hollow, ...was.map((p) => p.was)];
  const low = Math.floor(Math.log10(Math.min(0.5, ...points.map((p) => 0.8 * p.x)))),
    far = Math.ceil(
      Math.log10(Math.max(100, ...roofs.map((m) => (2 * m.peak) / m.bandwidth), ...points.map((p) => 1.5 * p.x)))
    );
  const up = Math.ceil(Math.log10(Math.max(...roofs.map((m) => 1.3 * m.peak), ...points.map((p) => 1.2 * p.y)))),
    down = Math.floor(Math.log10(Math.min(...roofs.map((m) => m.peak / 300), ...points.map((p) => 0.7 * p.y))));
  const at = (x) => left + ((Math.log10(x) - low) / (far - low)) * span,
    to = (y) => top + ((up - Math.log10(y)) / (up - down)) * tall;
  const clip = "ds-roofline-clip", back = s("g", { class: "grid" }), lines = s("g", { "clip-path": `url(#${clip})` }),
    front = s("g");
  const word = (text, x, y, props) => s("text", { x, y, ...props }, text);
  for (let k = low; k <= far; k++) {
    back.append(s("path", { d: `M${at(10 ** k)},${top}V${top + tall}` }),
      word(k < 0 ? (10 ** k).toFixed(-k) : formatCount(10 ** k), at(10 ** k), top + tall + 16, {
        "text-anchor": "middle",
      }));
  }
  for (let k = down; k <= up; k++)
    back.append(s("path", { d: `M${left},${to(10 ** k)}H${left + span}` }),
      word(formatScaled(10 ** k).replace(/\.0+(?= )/, "").trim(), left - 8, to(10 ** k) + 4, { "text-anchor": "end" }));
  back.append(word("FLOP per byte moved", left + span, high - 6, { "text-anchor": "end" }),
    word("FLOP/s", left + 6, top + 12, {}));
  const roof = (m, bandwidth, cls, flat) =>
    lines.append(
      s("path", { class: "roof " + cls,
        d: `M${at(10 ** low)},${to(10 ** low * bandwidth)}L${at(m.peak / bandwidth)},${to(m.peak)}`
          + (flat ? `H${left + span}` : "") })
    );
  if (there) roof(there, there.bandwidth, "there", true);
  if (machine?.cache_bandwidth) roof(machine, machine.cache_bandwidth, "near", false);
  if (machine) roof(machine, machine.bandwidth, "here", true);
  const every = Math.ceil(others.length / 400);
  others.forEach((p, k) => k % every || front.append(mark("other", at(p.x), to(p.y), 4, true)));
  for (const p of was)
    front.append(s("path", { class: "before", d: `M${at(p.was.x)},${to(p.was.y)}L${at(p.x)},${to(p.y)}` }),
      mark(kindOf(p), at(p.was.x), to(p.was.y), 5.5, false));
  for (const p of hollow) front.append(mark(kindOf(p), at(p.x), to(p.y), 5.5, false));
  for (const p of rows) front.append(mark(kindOf(p), at(p.x), to(p.y), 5.5, true));
  if (last) front.append(s("circle", { class: "ring", cx: at(last.x), cy: to(last.y), r: 11 }));
  // names next to the marks where they touch none, the ringed one first; the figure is below its name
  const under = 1.17 * type;
  const taken = [...rows, ...hollow].map((p) => [at(p.x) - 9, to(p.y) - 9, 18, 18]);
  const named = [...(last ? [last] : []), ...rows.filter((p) => p !== last), ...hollow];
  for (const p of named) {
    const name = passWord(p),
      figure = hollow.includes(p) ? `${time(p.model / p.n)} modelled` : `${formatScaled(p.y)}FLOP/s`,
      long = 0.53 * type * Math.max(name.length, figure.length), x = at(p.x), y = to(p.y);
    const spot = [
      [x + 15, y + 4], [x + 15, y - under], [x - 15 - long, y + 4], [x - 15 - long, y - under],
      [x - long / 2, y + 24], [x - long / 2, y - 16 - under],
    ].find(([a, b]) =>
      a > left && a + long < left + span && b > top + 12 && b + under + 2 < top + tall
      && !taken.some(([c, d, w, t]) => a < c + w && a + long > c && b - type < d + t && b + under + 3 > d)
    );
    if (!spot) continue;
    taken.push([spot[0], spot[1] - type, long, type + under + 3]);
    front.append(word(name, ...spot, { class: "name" }), word(figure, spot[0], spot[1] + under, { class: "told" }));
  }
  const said = (m, what) =>
    (m ? `${what}: ${m.name}, ${formatScaled(m.bandwidth)}B/s, ${formatScaled(m.peak)}FLOP/s` : "");
  const label = [said(machine, "roof"), said(there, "modelled roof"),
    ...rows.map((p) => `${passName(p)}, measured: ${p.x.toFixed(2)} FLOP per byte, ${formatScaled(p.y)}FLOP/s`),
    ...was.map((p) =>
      `${passWord(p)} by ${p.was.name}, at best: ${p.was.x.toFixed(2)} FLOP per byte, ${time(p.was.s)}`),
    ...hollow.map((p) => `${passWord(p)}, modelled: ${formatScaled(p.y)}FLOP/s`)].filter(Boolean).join("; ");
  return s("svg", { width: wide, height: high, role: "img", "aria-label": label },
    s("clipPath", { id: clip }, s("rect", { x: left, y: top, width: span, height: tall })), back, lines, front);
}
