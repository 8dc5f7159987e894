/* What a step tried by itself: each number with the threshold that decided, and the outcome. */
import { h } from "../shared/elements.js";
import { tokenOf } from "../shared/marks.js";
import { prob } from "../shared/numbers.js";

/** Whether each recorded result follows from number and threshold; null if the rows were left out. */
export const tallyAgrees = ({ rows }) => rows?.every(([, x, bar, holds]) => bar === null || x >= bar === !!holds)
  ?? null;

const figureText = (x) => (x === null ? "" : Number.isInteger(x) ? String(x) : x < 0 ? x.toFixed(2) : prob(x));

/** The rows as a table, the sentences under it. absent: the text if rows were left out; at: the chosen one. */
export const tallyOf = ({ rows, heads, lines }, absent, at) => [
  rows ? h("table", { class: "laws block" },
    h("thead", null, h("tr", null, ["", heads[0], rows.some(([, , bar]) => bar !== null) ? heads[1] : "", ""]
      .map((x) => h("th", { scope: "col" }, x)))),
    h("tbody", null, rows.map(([text, x, bar, holds, word], k) =>
      h("tr", { class: k + 1 === at ? "tried" : null }, h("th", { scope: "row" }, tokenOf(text, 24)),
        h("td", null, figureText(x)), h("td", null, bar === null ? "" : `${x < bar ? "<" : "≥"} ${figureText(bar)}`),
        h("td", { class: `word ${holds ? "yes" : "no"}` }, word)))))
    : h("p", { class: "quiet" }, absent()),
  lines.map((line) => h("p", { class: "line" }, line))];
