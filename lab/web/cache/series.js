/* series: the bytes of the cache and the entries per head over the steps. */
import { formatCount, h, keptBytes, size, toggle } from "../scope.js";
import { chart, room } from "./chart.js";
import { section, share, table } from "./parts.js";
import { question } from "./question.js";

const ROWS = 60; // of the table

/** drawn(): called when the server has answered. */
export function seriesView(shared, drawn) {
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
    (answer) => ((series = answer), draw(), drawn())
  );
  function draw() {
    charts.replaceChildren();
    if (!series || !shared.looked()) return;
    const i = shared.now(), kv = shared.store().steps[i]?.kv.find((x) => x.lane === "target");
    said.replaceChildren(...(kv
      ? [h("b", null, size(keptBytes(kv))), ` of entries kept, ${share(keptBytes(kv) / Math.max(1, kv.full))} of the `
        + `${size(kv.full)} of all; ${size(kv.bytes)} of memory, in whole pages of 16 entries and with what a policy `
        + "notes"] : []));
    const wide = room(charts);
    charts.append(
      chart({ word: "bytes of the entries", wide, steps: series.step, i, unit: size,
        present: kv && [keptBytes(kv), kv.full],
        lines: [["kept", series.kept, "full"], ["all", series.full, "dashed"]], budget: null }),
      chart({ word: "entries per head", wide, steps: series.step, i, unit: formatCount,
        present: kv && [kv.held, kv.read],
        lines: [["held", series.held, "full"], ["read", series.length, "dashed"]], budget: shared.map?.budget ?? null })
    );
    const last = series.step.length - 1, every = series.every[0], thin = Math.ceil(series.step.length / ROWS);
    const shown = [...series.step.keys()].filter((k) => last < ROWS || k % thin === 0 || k === last);
    twin.replaceChildren(table("Budget and bytes over the steps",
      ["after step", "read", "held",
        `${shared.map?.went ?? "evicted"}${every > 1 ? ` in ${every} steps` : ""}`,
        "bytes kept", "bytes of all", "memory"],
      shown.map((k) => [String(series.step[k]), formatCount(series.length[k]), formatCount(series.held[k]),
        formatCount(series.evicted[k]), size(series.kept[k]), size(series.full[k]), size(series.bytes[k])])));
  }
  return { element, question: asked, draw, series: () => series, reset: () => ((series = null), drawn()) };
}
