/* comparison: the displayed report next to that on the runs of another method: the figures of both, and what
 * changed. */
import { h, plural } from "../scope.js";
import { ask, errorText } from "../runs/runs.js";
import { table } from "./tables.js";

/** The comparison under the report on `runs`, ids as the address has them. others: the runs of the second report,
 *  "" for none;  methods(): [[run, words, runs], ...];  chosen(others): another second report is shown, or none;
 *  charted(chart): draw the chart of both, or null for that of the first alone. */
export function reportComparison(runs, others, { methods, chosen, charted }) {
  const out = h("div", { class: "changes", role: "status" }),
    list = h("select", { "aria-label": "compare with the runs of" }, h("option", { value: "" }, "another method"));
  const offered = () => {
    const there = [...list.options].map((one) => one.value);
    list.append(...methods().filter(([, , one]) => !there.includes(one))
      .map(([, words, one]) => h("option", { value: one }, words)));
  };
  async function show(wanted) {
    out.replaceChildren(wanted ? "Counting…" : "");
    if (!wanted) return charted(null);
    try {
      const { leads, tables, chart } = await ask(`ds/report/changes?runs=${runs}&others=${wanted}`);
      if (list.value !== wanted) return;
      out.replaceChildren(h("div", { class: "leads" },
        leads.map((words, i) => h("p", null, h("b", null, ["First. ", "Second. "][i]), words.join(" ")))),
        ...tables.map((one) => table(one)));
      charted(chart);
    } catch (error) {
      charted(null);
      if (list.value === wanted) out.replaceChildren(h("p", { class: "ds-refusal" }, errorText(error)));
    }
  }
  for (const kind of ["pointerdown", "focus"]) list.addEventListener(kind, offered);
  list.addEventListener("change", () => (chosen(list.value), show(list.value)));
  if (others) {
    const known = methods().find(([, , one]) => one === others)?.[1];
    list.append(h("option", { value: others }, known || `${plural(others.split(",").length, "run")} of the address`));
    list.value = others;
    show(others);
  }
  return h("div", { class: "beside" }, h("label", null, "Next to the runs of ", list), out);
}
