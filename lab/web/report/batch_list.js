/* batch_list: the existing batches, including those of an earlier server, each with the report over its runs. */
import { button, h, plural } from "../scope.js";
import { ask } from "../runs/runs.js";
import { timestamp } from "../shared/timestamp.js";

/** The list; reported(runs): show the report over the runs of one. */
export function batchList(reported) {
  const rows = h("ul"), count = h("span", { class: "quiet" });
  const element = h("details", { class: "earlier", hidden: "" },
    h("summary", null, h("b", null, "Sets of prompts that were run"), count), rows);
  const about = ({ of, done, tokens, stopped, begins, at }) =>
    [`${done} of ${plural(of, "prompt")}`, plural(tokens, "token"), stopped && "stopped", `“${begins}” first`,
      timestamp(at)]
      .filter(Boolean).join(", ");
  const line = (one) =>
    h("li", null,
      button("Report", () => reported(one.runs), { class: "ds-button small", disabled: one.runs.length ? null : "",
        "aria-label": `report on ${plural(one.runs.length, "run")} of ${one.called}, ${timestamp(one.at)}` }),
      h("b", null, one.called || "not begun"), h("span", { class: "quiet" }, about(one)));
  /** Request the list. */
  async function read() {
    const over = (await ask("ds/batch")).batches.filter((one) => one.over);
    element.hidden = !over.length;
    count.textContent = String(over.length);
    rows.replaceChildren(...over.map(line));
  }
  return { element, read };
}
