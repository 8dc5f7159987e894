/* The settings in which several runs differ: a line, and a table on demand. */
import { differingSettings } from "./alignment.js";
import { h, see } from "../shared/elements.js";
import { plural } from "../shared/numbers.js";

/** Settings that only some runs have, a line for each set of runs. */
function alone(letters, apart) {
  const lines = new Map();
  for (const [what, ...values] of apart) {
    const whose = letters.filter((_, k) => values[k] !== undefined).join(", ");
    lines.set(whose, [...(lines.get(whose) || []), `${what} ${values.find((x) => x !== undefined)}`]);
  }
  return [...lines].map(([whose, words]) => h("p", { class: "quiet" }, `Only ${whose}: ${words.join("; ")}.`));
}

export function differences(letters) {
  const element = h("div", { class: "differs" });
  let drawn = null;
  function draw(heads) {
    const all = heads.every((head) => head);
    see(element, all);
    if (!all || drawn?.every((head, k) => head === heads[k])) return;
    drawn = heads;
    const { rows, apart } = differingSettings(...heads);
    element.classList.toggle("same", !rows.length);
    const names = rows.map(([what]) => what).join(", "),
      cells = (values) => values.map((x) => h("td", null, x ?? "–"));
    const line = ([what, ...values]) => h("tr", null, h("th", { scope: "row" }, what), cells(values)),
      columns = ["", ...letters].map((x) => h("th", { scope: "col" }, x));
    const table = rows.length
      ? h("table", null, h("thead", null, h("tr", null, columns)), h("tbody", null, rows.map(line))) : null;
    if (!rows.length && !apart.length) return element.replaceChildren("All settings are the same.");
    element.replaceChildren(
      h("details", rows.length < 5 ? { open: "" } : null,
        h("summary", null, rows.length
          ? `${plural(rows.length, "setting")} ${rows.length === 1 ? "differs" : "differ"}: ${names}`
          : "All settings that both have are the same."), table, ...alone(letters, apart))
    );
  }
  return { element, draw };
}
