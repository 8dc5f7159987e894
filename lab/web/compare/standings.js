/* standings: the figures of compared runs as a table and a file, what every two must have in common, and the repeats
 * that give a ratio of speeds its interval. */
import { button, grouped, h, plural, size, two } from "../scope.js";
import { ask } from "../runs.js";

const LETTERS = "ABCD", LOOK = 500; // ms between two looks at repeats that go on
const HEADS = ["run", "tokens", "tokens / pass", "accepted per drafting step", "trials accepted", "tokens/s, one run",
  "against the baseline", "KV held", "text"];
const MARKS = { same: ["✓", "the same, as it must be"], "so far": ["✓", "the same so far"],
  tied: ["≈", "parted at a numerical tie"], differs: ["✗", "differs and must not"],
  unknown: ["?", "parted where no law was recorded"], free: ["–", "need not be the same"] };

/** options: refuse(error), changed() when ratios came, apart(k) whether a run has another prompt than the baseline. */
export function standings({ refuse, changed, apart }) {
  let runs = [], base = 0, drawn = null, rounds = null, timer = 0;
  const body = h("tbody"), list = h("ul", { class: "checks" });
  const csv = h("a", { download: "" }, "CSV"), json = h("a", { download: "" }, "JSON");
  const times = h("input", { type: "number", min: 3, max: 40, value: 5, "aria-label": "repeats" });
  const again = button("Repeat", () => repeat());
  const stop = button("Stop",
    () => (again.focus(), ask(`/ds/compare/repeat/${rounds.id}/stop`, { method: "POST" }).then(take, refuse)),
    { hidden: "" });
  const note = h("p", { class: "quiet note", role: "status" });
  const repeating = h("div", { class: "repeat" },
    h("span", { class: "times" }, again, times, h("span", { class: "quiet" }, "times each, in turns, unrecorded")),
    stop);
  const element = h("section", { class: "standings", hidden: "" },
    h("header", null, h("h2", null, "Summary"), repeating, h("span", { class: "save" }, "Save as ", csv, json)), note,
    h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "summary table" },
      h("table", null, h("caption", { class: "unseen" }, "Figures of the compared runs"),
        h("thead", null, h("tr", null, HEADS.map((word) => h("th", { scope: "col" }, word)))), body)),
    h("h2", null, "What they must share"), list);

  const going = () => rounds && !rounds.over;
  function buttons() {
    const over = runs.length > 0 && runs.every((run) => run.end);
    again.setAttribute("aria-disabled", !over || !!going());
    again.title = over ? "" : "when all runs are over";
    stop.hidden = !going();
    const query = `runs=${runs.map((run) => run.id)}&base=${base}${rounds ? `&repeat=${rounds.id}` : ""}`;
    csv.href = `/ds/compare/table.csv?${query}`;
    json.href = `/ds/compare/table.json?${query}`;
  }
  async function repeat() {
    const body = JSON.stringify({ runs: runs.map((run) => run.id), times: Number(times.value) });
    try {
      take(await ask("/ds/compare/repeat", { method: "POST", body }));
    } catch (error) {
      refuse(error);
    }
  }
  /** What the server says of the repeats; asked again as long as they go on. */
  function take(answer) {
    rounds = answer;
    clearTimeout(timer);
    if (going())
      timer = setTimeout(
        () => ask(`/ds/compare/repeat/${answer.id}`).then(take, (error) => ((rounds = null), buttons(), refuse(error))),
        LOOK
      );
    const other = answer.runs.some((run) => !run.same_text);
    if (answer.status === "failed")
      note.textContent = `The repeats failed: ${answer.message || "the reason is not known"}`;
    else if (answer.status === "queued") note.textContent = "The repeats wait for the runs before them.";
    else if (!answer.rounds)
      note.textContent = answer.over ? "Stopped before the first round was over: there is no ratio."
        : `Repeating: round 1 of ${answer.times}.`;
    else note.textContent = (answer.over ? (answer.rounds < answer.times ? "Stopped: " : "") : "Repeating: ")
        + (answer.over ? plural(answer.rounds, "round") : `${grouped(answer.rounds)} of ${answer.times} rounds`) + ". "
        + "The median of the rounds' ratios of tokens/s, prompt left out; 95 % interval: percentile bootstrap. Every "
        + "call has its run's seed, so the interval is of this machine's noise, not of "
        + `prompts.${other ? " A repeat wrote another text than its run." : ""}`;
    drawn = null;
    buttons();
    changed();
  }
  /** Tokens accepted per drafting step, with the interval of their mean. */
  const accepted = (row) => (row.accepted === null || row.accepted === undefined ? "no draft"
    : [h("b", null, two(row.accepted)),
      h("small", null, `95 % ${two(row.accepted_low)} to ${two(row.accepted_high)}, n = ${grouped(row.accepted_n)}`)]);
  function against(row, first, k) {
    if (k === base) return "baseline";
    const speed = ratio(first.run, row.run);
    if (speed)
      return [h("b", null, `× ${two(speed.median)}`),
        h("small", null, `95 % ${two(speed.interval[0])} to ${two(speed.interval[1])}, n = ${speed.n}`)];
    return apart(k) ? "another prompt: no ratio" : "repeat to see";
  }
  function text(pair) {
    if (!pair) return "";
    const { verdict, parted, at } = pair, place = grouped(at + 1);
    if (verdict === "differs") return h("b", { class: "bad" }, `✗ differs at token ${place}`);
    if (!parted) return verdict === "so far" ? "the same so far" : `the same ${plural(at, "token")}`;
    return `${verdict === "tied" ? "≈ a tie" : "its own"} from token ${place}`;
  }
  const ratio = (a, b) => rounds?.ratios?.[a]?.[b] ?? null;

  return {
    element,
    /** The ratio of run b to run a with its interval, where it was repeated. */
    ratio,
    /** These runs are compared now. */
    runs(list, at) {
      runs = list;
      base = at;
      drawn = null;
      buttons();
    },
    /** Draw what the server said of them. */
    draw(summary, at) {
      if (drawn?.[0] === summary && drawn[1] === at && drawn[2] === rounds) return;
      drawn = [summary, at, rounds];
      base = at;
      buttons();
      if (!summary || summary.rows.length !== runs.length) return body.replaceChildren(), list.replaceChildren();
      const { rows, pairs } = summary,
        of = (k) => pairs.find((x) => x.a === Math.min(k, at) && x.b === Math.max(k, at));
      body.replaceChildren(...rows.map((row, k) => {
        const begun = row.tokens !== undefined,
          cells = begun
            ? [grouped(row.tokens), two(row.tau), accepted(row),
              row.share === null ? "–" : `${(100 * row.share).toFixed(0)} %`, two(row.rate), against(row, rows[at], k),
              h("span", null, size(row.held), row.full > row.held ? h("small", null, `of ${size(row.full)}`) : null),
              k === at ? "baseline" : text(of(k))] : HEADS.slice(1).map((x, i) => (i ? "" : row.status));
        return h("tr", null,
          h("th", { scope: "row" }, h("b", null, LETTERS[k]), " ", row.method || "",
            h("small", null,
              [row.model, begun && (row.lossless ? "keeps the target's law" : "changes the target's law")].filter(
                Boolean
              ).join(", "))), cells.map((x) => h("td", null, x)));
      }));
      list.replaceChildren(
        ...pairs.map((x) =>
          h("li", { class: x.verdict === "differs" ? "bad" : null },
            h("b", null, `${LETTERS[x.a]} and ${LETTERS[x.b]}`),
            h("span", { class: "mark", "aria-hidden": "true" }, MARKS[x.verdict][0]),
            h("span", null,
              h("b", null,
                `Text: ${MARKS[x.verdict][1]}${x.verdict !== "free" && x.parted ? `, from token ${grouped(x.at + 1)} `
                + "on" : ""}. `), x.why, h("small", null, x.chance)))
        )
      );
    },
  };
}
