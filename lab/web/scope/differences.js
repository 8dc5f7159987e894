/* In which settings several runs differ: a line, and a table behind it. */
import { differing } from "./alignment.js";
import { h, see } from "./elements.js";
import { plural } from "./numbers.js";

export function differences(letters) {
  const element = h("div", { class: "differs" });
  let drawn = null;
  function draw(heads) {
    const all = heads.every((head) => head);
    see(element, all);
    if (!all || drawn?.every((head, k) => head === heads[k])) return;
    drawn = heads;
    const rows = differing(...heads);
    element.classList.toggle("same", !rows.length);
    if (!rows.length) return element.replaceChildren("All settings are the same.");
    const names = rows.map(([what]) => what).join(", ");
    element.replaceChildren(
      h("details", rows.length < 5 ? { open: "" } : null,
        h("summary", null, `${plural(rows.length, "setting")} ${rows.length === 1 ? "differs" : "differ"}: ${names}`),
        h("table", null, h("thead", null, h("tr", null, ["", ...letters].map((x) => h("th", { scope: "col" }, x)))),
          h("tbody", null, rows.map(([what, ...values]) =>
            h("tr", null, h("th", { scope: "row" }, what), values.map((x) => h("td", null, x)))))))
    );
  }
  return { element, draw };
}
