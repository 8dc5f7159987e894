/* comparison_table: the figures of compared runs as a table and a file, the expected relation of every two, and
 * the repeats that give a speed ratio its interval. */
import { formatCount, h, plural, size, addTerm, formatFixed } from "../scope.js";
import { isSignificant, ratioText } from "./baseline.js";
import { LETTERS } from "./letters.js";
import { repeatRuns } from "./repeats.js";

const HEADS = ["run", "tokens", "tokens / pass", "accepted per drafting step", "trials accepted", "tokens/s, one run",
  "against the baseline", "KV kept", "text"];
const MARKS = { same: ["✓", "the same, as it must be"], "so far": ["✓", "the same so far"],
  tied: ["≈", "parted at a numerical tie"], differs: ["✗", "differs and must not"],
  unknown: ["?", "parted where no distribution was recorded"], free: ["–", "need not be the same"] };

/** options: refuse(error), changed() when ratios came, apart(k) whether a run has another prompt than the baseline. */
export function comparisonTable({ refuse, changed, apart }) {
  let runs = [], base = 0, drawn = null;
  const body = h("tbody"), list = h("ul", { class: "checks" });
  const csv = h("a", { download: "" }, "CSV"), json = h("a", { download: "" }, "JSON");
  const repeats = repeatRuns({ runs: () => runs, refuse, changed: () => ((drawn = null), buttons(), changed()) });
  const element = h("section", { class: "standings", hidden: "" },
    h("header", null, h("h2", null, "Summary"), repeats.element, h("span", { class: "save" }, "Save as ", csv, json)),
    repeats.note, h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "summary table" },
      h("table", null, h("caption", { class: "unseen" }, "Figures of the compared runs"),
        h("thead", null, h("tr", null, HEADS.map((word) => addTerm(h("th", { scope: "col" }, word))))), body)),
    h("h2", null, "What they must share"), list);

  function buttons() {
    repeats.draw();
    const id = repeats.id(), query = `runs=${runs.map((run) => run.id)}&base=${base}${id ? `&repeat=${id}` : ""}`;
    csv.href = `ds/compare/table.csv?${query}`;
    json.href = `ds/compare/table.json?${query}`;
  }
  /** Tokens accepted per drafting step, with the interval of their mean. */
  const accepted = (row) => (row.accepted === null || row.accepted === undefined ? "no draft"
    : [h("b", null, formatFixed(row.accepted)),
      h("small", null, `95 % ${formatFixed(row.accepted_low)} to ${formatFixed(row.accepted_high)}, `
        + `n = ${formatCount(row.accepted_n)}`)]);
  function against(row, first, k) {
    if (k === base) return "baseline";
    const speed = repeats.ratio(first.run, row.run);
    if (speed)
      return [isSignificant(speed) ? h("b", null, `× ${formatFixed(speed.median)}`) : null,
        h("small", null, ratioText(speed))];
    return apart(k) ? "another prompt: no ratio" : "repeat to see";
  }
  function text(pair) {
    if (!pair) return "";
    const { verdict, parted, at } = pair, place = formatCount(at + 1);
    if (verdict === "differs") return h("b", { class: "bad" }, `✗ differs at token ${place}`);
    if (!parted) return verdict === "so far" ? "the same so far" : `the same ${plural(at, "token")}`;
    return `${verdict === "tied" ? "≈ a tie" : "its own"} from token ${place}`;
  }

  return {
    element,
    repeats,
    /** Compare these runs from now on. */
    runs(list, at) {
      runs = list;
      base = at;
      drawn = null;
      buttons();
    },
    /** Draw the server's answer. */
    draw(summary, at) {
      if (drawn?.[0] === summary && drawn[1] === at && drawn[2] === repeats.rounds()) return;
      drawn = [summary, at, repeats.rounds()];
      base = at;
      buttons();
      if (!summary || summary.rows.length !== runs.length) return body.replaceChildren(), list.replaceChildren();
      const { rows, pairs } = summary,
        of = (k) => pairs.find((x) => x.a === Math.min(k, at) && x.b === Math.max(k, at));
      body.replaceChildren(...rows.map((row, k) => {
        const begun = row.tokens !== undefined,
          cells = begun
            ? [formatCount(row.tokens), formatFixed(row.tau), accepted(row),
              row.share === null ? "–" : `${(100 * row.share).toFixed(0)} %`, formatFixed(row.rate),
              against(row, rows[at], k),
              h("span", null, size(row.kept), row.full > row.kept ? h("small", null, `of ${size(row.full)}`) : null),
              k === at ? "baseline" : text(of(k))] : HEADS.slice(1).map((x, i) => (i ? "" : row.status));
        return h("tr", null,
          h("th", { scope: "row" }, h("b", null, LETTERS[k]), " ", row.method || "",
            h("small", null,
              [row.model, row.mark, row.away].filter(Boolean).join(", "))), cells.map((x) => h("td", null, x)));
      }));
      list.replaceChildren(
        ...pairs.map((x) =>
          h("li", { class: x.verdict === "differs" ? "bad" : null },
            h("b", null, `${LETTERS[x.a]} and ${LETTERS[x.b]}`),
            h("span", { class: "mark", "aria-hidden": "true" }, MARKS[x.verdict][0]),
            h("span", null,
              h("b", null,
                `Text: ${MARKS[x.verdict][1]}`
                + `${x.verdict !== "free" && x.parted ? `, from token ${formatCount(x.at + 1)} `
                + "on" : ""}. `), x.why, h("small", null, x.chance)))
        )
      );
    },
  };
}
