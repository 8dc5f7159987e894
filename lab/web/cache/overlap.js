/* overlap: the entries that two runs of one prompt both keep, head by head. */
import { formatCount, h, plural } from "../scope.js";
import { ask, exampleOf, runTitle } from "../runs/runs.js";
import { statusLine, refuse, section, table } from "./parts.js";
import { question } from "./question.js";

const SPANS = 24; // stretches of positions that a cell lists
const NONE = "compare with…";

export function overlapView(shared) {
  const choice = h("select", { "aria-label": "run to compare with" }), said = statusLine("status"), out = h("div");
  const element = section("both", [h("h2", null, "Kept by two runs"), choice], said, out);
  let other = "", both = null;

  const asked = question(
    () => (shared.known() && other ? shared.query("/compare", { step: shared.now(), with: other }) : null),
    (answer, trouble) => ((both = answer), draw(trouble))
  );
  const others = question(
    () => (shared.looked() && shared.store().end ? `${shared.base()}/others` : null),
    (answer) => offer(answer?.runs || [])
  );
  async function offer(runs) {
    let names = new Map();
    try {
      const rows = runs.length ? (await ask("ds/library")).rows : [];
      names = new Map(rows.map((row) => [row.run,
        `${runTitle(row)}${row.steps ? `, ${plural(row.steps, "step")}` : ""}`]));
    } catch {
      names = new Map();
    }
    if (!runs.includes(other)) other = "";
    const word = (run) => names.get(run) || runTitle({ title: exampleOf(run)?.title, run });
    choice.replaceChildren(
      h("option", { value: "" }, runs.length ? NONE : "no other run of this prompt"),
      ...runs.map((run) => h("option", { value: run }, word(run)))
    );
    choice.value = other;
    choice.disabled = !runs.length;
    draw();
    shared.load();
  }
  choice.addEventListener("change", () => ((other = choice.value), (both = null), draw(), shared.load()));
  function draw(trouble) {
    refuse(said, trouble);
    out.replaceChildren();
    if (trouble) return;
    if (!both || !other || !shared.map)
      return void (said.textContent = choice.disabled
        ? "Run the same prompt with another policy, and both can be compared here: what each keeps, head by head."
        : "");
    const word = choice.selectedOptions[0]?.textContent || other;
    const name = (row) => `layer ${Math.floor(row / both.heads)}, head ${row % both.heads}`;
    said.textContent = sentence(both, name);
    out.append(h("p", { class: "quiet" }, `Here: this run. There: ${word}.`),
      table("What two runs keep, head by head",
        ["layer, head", "Jaccard", "both", "only here", "only there", "positions only here", "positions only there"],
        both.counts.map(([two, one, second], row) =>
          [name(row), bar(both.jaccard[row]), formatCount(two), formatCount(one),
          formatCount(second), spans(both.only[0][row]), spans(both.only[1][row])])));
  }
  function reset() {
    (other = ""), (both = null);
    choice.replaceChildren(h("option", { value: "" }, NONE));
    draw();
  }
  return { element, question: asked, others, reset };
}

const bar = (part) =>
  h("span", { class: "share" }, h("i", { style: `--w: ${(100 * part).toFixed(1)}%` }), part.toFixed(2));

/** Stretches of positions, [first, last] each. */
function spans(list) {
  const shown = list.slice(0, SPANS).map(([a, b]) => (a === b ? String(a) : `${a}–${b}`)).join(", "),
    more = plural(list.length - SPANS, "stretch").replace("stretchs", "stretches");
  return h("span", { class: "spans" }, shown + (list.length > SPANS ? ` and ${more} more` : "") || "–");
}

/** How much the kept sets overlap: on average, least and most. */
function sentence({ step, beside, jaccard, upto, parted }, name) {
  const mean = jaccard.reduce((sum, x) => sum + x, 0) / jaccard.length;
  const least = jaccard.indexOf(Math.min(...jaccard)), most = jaccard.indexOf(Math.max(...jaccard));
  return `After step ${step} here and step ${beside} there the kept sets overlap by ${mean.toFixed(2)} on average `
    + `(Jaccard: kept by both, of kept by one of them), from ${jaccard[least].toFixed(2)} in ${name(least)} to `
    + `${jaccard[most].toFixed(2)} in ${name(most)}. Compared are the first ${plural(upto, "position")}`
    + `${parted ? ": behind them the texts differ" : ""}.`;
}
