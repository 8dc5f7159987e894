/* beside: the report that is shown beside that on the runs of another method: the figures of both, and what changed. */
import { h } from "../scope.js";
import { ask, inWords } from "../runs.js";
import { table } from "./tables.js";

/** What stands under the report on `runs`, ids as the address has them. methods(): [[run, words, runs], ...]. */
export function beside(runs, methods) {
  const out = h("div", { class: "changes", role: "status" }),
    list = h("select", { "aria-label": "compare with the runs of" }, h("option", { value: "" }, "another method"));
  const offered = () => {
    if (list.options.length < 2)
      list.append(...methods().map(([, words, others]) => h("option", { value: others }, words)));
  };
  for (const kind of ["pointerdown", "focus"]) list.addEventListener(kind, offered);
  list.addEventListener("change", async () => {
    const others = list.value;
    out.replaceChildren(others ? "Counting…" : "");
    if (!others) return;
    try {
      const { leads, tables } = await ask(`/ds/report/changes?runs=${runs}&others=${others}`);
      if (list.value !== others) return;
      out.replaceChildren(h("div", { class: "leads" },
        leads.map((words, i) => h("p", null, h("b", null, ["First. ", "Second. "][i]), words.join(" ")))),
        ...tables.map((one) => table(one)));
    } catch (error) {
      if (list.value === others) out.replaceChildren(h("p", { class: "ds-refusal" }, inWords(error)));
    }
  });
  return h("div", { class: "beside" }, h("label", null, "Beside the runs of ", list), out);
}
