/* series: the bytes of the cache and the entries per head over the steps. */
import { grouped, h, keptBytes, plural, s, size, toggle } from "../scope.js";
import { section, share, table } from "./parts.js";
import { question } from "./question.js";

const ROWS = 60; // of the table

export function seriesView(shared) {
  const charts = h("div", { class: "charts" }), said = h("span", { class: "lead" }), twin = h("div", { hidden: "" });
  const asTable = toggle("Show as table", (on) => ((twin.hidden = !on), (charts.hidden = on)));
  const element = section("bytes",
    [h("h2", null, "Budget and bytes"), said, h("span", { class: "row end" }, asTable)], charts, twin);
  let series = null;

  const asked = question(
    () => {
      if (!shared.looked()) return null;
      const { end, count } = shared.store();
      return `${shared.base()}/series?count=${end ? count : Math.ceil(count / 32)}`;
    },
    (answer) => ((series = answer), draw())
  );
  function draw() {
    charts.replaceChildren();
    if (!series || !shared.looked()) return;
    const i = shared.now(), kv = shared.store().steps[i]?.kv.find((x) => x.lane === "target");
    said.replaceChildren(...(kv
      ? [h("b", null, size(keptBytes(kv))), ` of entries kept, ${share(keptBytes(kv) / Math.max(1, kv.full))} of the `
        + `${size(kv.full)} of all; ${size(kv.bytes)} of memory, in whole pages of 16 entries and with what a policy `
        + "notes"] : []));
    const wide = Math.max(240, Math.min(900, (charts.clientWidth || 600) / (charts.clientWidth > 760 ? 2 : 1) - 16));
    charts.append(
      chart({ word: "bytes of the entries", wide, steps: series.step, i, unit: size,
        present: kv && [keptBytes(kv), kv.full],
        lines: [["kept", series.kept, "full"], ["all", series.full, "dashed"]], budget: null }),
      chart({ word: "entries per head", wide, steps: series.step, i, unit: grouped, present: kv && [kv.held, kv.read],
        lines: [["held", series.held, "full"], ["read", series.length, "dashed"]], budget: shared.map?.budget ?? null })
    );
    const last = series.step.length - 1, every = series.every[0], thin = Math.ceil(series.step.length / ROWS);
    const shown = [...series.step.keys()].filter((k) => last < ROWS || k % thin === 0 || k === last);
    twin.replaceChildren(table("Budget and bytes over the steps",
      ["after step", "read", "held", `evicted${every > 1 ? ` in ${every} steps` : ""}`, "bytes kept", "bytes of all",
        "memory"],
      shown.map((k) => [String(series.step[k]), grouped(series.length[k]), grouped(series.held[k]),
        grouped(series.evicted[k]), size(series.kept[k]), size(series.full[k]), size(series.bytes[k])])));
  }
  return { element, question: asked, draw, reset: () => (series = null) };
}

/** Lines [name, values, class] over `steps`, with the values `present` of step i, or none, and the budget, or null. */
function chart({ word, wide, steps, lines, unit, i, present, budget }) {
  const high = 170, left = 64, right = 84, top = 16, bottom = 26, span = wide - left - right,
    tall = high - top - bottom;
  const peak = Math.max(1, ...lines.flatMap(([, values]) => values), budget || 0, ...(present || [])),
    last = Math.max(1, steps.at(-1) ?? 1, i);
  const x = (k) => left + (k / last) * span, y = (value) => top + tall - (value / peak) * tall;
  const marks = [0, 0.5, 1].map((part) =>
    [s("path", { class: "rule", d: `M${left},${y(part * peak)}H${left + span}` }),
      s("text", { x: left - 8, y: y(part * peak) + 4, "text-anchor": "end" }, unit(part * peak))]);
  const curve = (values) =>
    values.map((value, k) => `${k ? "L" : "M"}${x(steps[k]).toFixed(1)},${y(value).toFixed(1)}`).join("");
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
      s("text", { x: left + 4, y: y(budget) - 4 }, `budget ${grouped(budget)}`)] : [];
  const figures = lines.map(([name, values], k) => `${name} ${unit(present?.[k] ?? values.at(-1) ?? 0)}`).join(", ");
  const said = `${word} over ${plural(last + 1, "step")}: ${figures} at step ${i}`;
  return h("figure", null, h("figcaption", null, word),
    s("svg", { width: wide, height: high, role: "img", "aria-label": said }, marks, limit, curves, dots, ends,
      s("text", { x: left, y: high - 8 }, "0"),
      s("text", { x: left + span, y: high - 8, "text-anchor": "end" }, `step ${last}`)));
}
