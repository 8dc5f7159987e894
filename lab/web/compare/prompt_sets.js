/* prompt_sets: methods on a set of prompts: each compared with the first, over all, by kind, and by prompt. */
import { button, h, plural, formatFixed } from "../scope.js";
import { ask } from "../runs/runs.js";
import { current } from "../shared/address.js";
import { isSignificant } from "./baseline.js";
import { LETTERS } from "./letters.js";

const AGAIN = 700; // ms between two requests for the progress
const ENOUGH = 5; // prompts needed for an interval over them to say that a ratio is not 1
const between = ({ interval: [low, high], n }) =>
  h("small", null, `${formatFixed(low)} to ${formatFixed(high)}, n = ${n}`);

/** A median ratio with its interval; bold if that excludes 1, over enough prompts. */
const ratioOf = (one) => (!one ? "–"
  : one.n < ENOUGH ? [`× ${formatFixed(one.median)}`, between(one), h("small", null, "too few prompts to tell")]
  : isSignificant(one) ? [h("b", null, `× ${formatFixed(one.median)}`), between(one)]
  : [`× ${formatFixed(one.median)}`, between(one), h("small", null, "not distinguishable from 1")]);
const acceptedOf = (one) => (one ? [`${formatFixed(one.mean)}`, between(one)] : "no draft");

/** The columns of the prompts: [head, value to sort by, cell]. */
function columns(count) {
  const own = [...LETTERS.slice(0, count)], of = (k, name) => (line) => line.cells[k]?.[name] ?? null;
  const text = (k) => (line) =>
    !line.cells[k] ? "–" : line.cells[k].parted ? `parts at token ${line.cells[k].same + 1}` : "the same";
  const figure = (head, value, word = formatFixed) =>
    [head, value, (line) => (value(line) === null ? "–" : word(value(line)))];
  return [
    ["prompt", (line) => line.begins.toLowerCase(), (line) => h("span", { class: "begins" }, line.begins)],
    ["kind", (line) => line.kind, (line) => line.kind || "–"],
    ...own.flatMap((letter, k) => k
      ? [figure(`${letter} against A`, (line) => line.ratios[k], (x) => `× ${formatFixed(x)}`)] : []),
    ...own.map((letter, k) => figure(`${letter} tokens/s`, of(k, "rate"))),
    ...own.map((letter, k) => figure(`${letter} accepted`, of(k, "accepted"))),
    ...own.flatMap((letter, k) => (k ? [[`${letter} text`, of(k, "same"), text(k)]] : [])),
  ];
}

/** The kinds as rows of a table. */
const kindRows = (record) =>
  record.kinds.map((row) =>
    h("tr", null, h("th", { scope: "row" }, row.kind), [String(row.n), ...row.ratio.slice(1).map(ratioOf),
      ...row.accepted.map(acceptedOf)].map((x) => h("td", null, x))));

/** options: open(ids) to compare the runs of a prompt, refuse(error), changed() when another set is shown. */
export function setTable({ open, refuse, changed }) {
  let record = null, turn = 0, by = null, down = false;
  const bar = h("progress", { max: 1, value: 0, "aria-label": "runs that are over" }),
    note = h("p", { class: "quiet", role: "status" });
  const stop = button("Stop", () => ask(`ds/compare/set/${record.id}/stop`, { method: "POST" }).then(draw, refuse));
  const csv = h("a", { download: "" }, "CSV"), html = h("a", { download: "" }, "HTML");
  const names = h("p", { class: "quiet" }), kinds = h("table"), lines = h("table");
  const filter = h("input", { type: "search", placeholder: "Filter by words, kind", "aria-label": "filter the prompts",
    autocomplete: "off", spellcheck: "false" }), shown = h("span", { class: "quiet", role: "status" });
  filter.addEventListener("input", () => listed());
  const wide = (label, table) => h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": label }, table);
  const element = h("section", { class: "over-prompts", hidden: "" },
    h("header", null, h("h2", null, "Set of prompts"), bar, note, stop,
      h("span", { class: "save" }, "Save as ", csv, html)), names,
    wide("methods by kind", kinds), h("div", { class: "filter" }, filter, shown), wide("methods by prompt", lines));

  function draw(answer) {
    const other = record?.id !== answer.id;
    record = answer;
    const { of, done, over, stopped, methods, sure, id } = record;
    element.hidden = false;
    Object.assign(bar, { max: of, value: done });
    bar.hidden = stop.hidden = over;
    note.textContent = over ? `${stopped ? "Stopped: " : ""}${plural(done, "run")} of ${of}.`
      : `${done} of ${plural(of, "run")} over.`;
    csv.href = `ds/compare/set/${id}/table.csv`;
    html.href = `ds/compare/set/${id}/page.html`;
    names.textContent = `${methods.map((name, k) => `${LETTERS[k]}: ${name || "…"}`).join("; ")}. Ratios are of `
      + `tokens/s of decoding on the same prompt, one run each; the median, with a ${100 * sure} % interval over the `
      + "prompts (percentile bootstrap). Accepted: drafted tokens that stayed per drafting step, the mean of the "
      + `prompts' means. ${(record.asked || []).join(" ")}`;
    const own = [...LETTERS.slice(0, methods.length)];
    kinds.replaceChildren(h("caption", { class: "unseen" }, "Methods by kind of prompt"),
      h("thead", null, h("tr", null, ["kind", "prompts", ...own.slice(1).map((x) => `${x} against A`),
        ...own.map((x) => `${x} accepted`)].map((x) => h("th", { scope: "col" }, x)))),
      h("tbody", null, kindRows(record)));
    listed();
    if (other) changed();
  }
  /** The prompts that match the filter, in the chosen order. */
  function listed() {
    if (!record) return;
    const all = columns(record.methods.length), words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fitting = record.lines.filter((line) =>
      words.every((word) => `${line.name} ${line.kind} ${line.begins}`.toLowerCase().includes(word)));
    const value = all.find(([head]) => head === by)?.[1];
    if (value)
      fitting.sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        return x === null || y === null ? Number(x === null) - Number(y === null)
          : (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
      });
    const focused = /** @type {HTMLElement} */ (document.activeElement)?.dataset?.column;
    const head = (word) => {
      const order = by === word ? (down ? "descending" : "ascending") : null;
      const turnTo = () => ((down = by === word && !down), (by = word), listed());
      return h("th", { scope: "col", "aria-sort": order },
        button(`${word}${order ? (down ? " ↓" : " ↑") : ""}`, turnTo, { class: null, "data-column": word }));
    };
    lines.replaceChildren(h("caption", { class: "unseen" }, "Methods by prompt"),
      h("thead", null, h("tr", null, all.map(([word]) => head(word)), h("th", { scope: "col" }, "runs"))),
      h("tbody", null, fitting.map((line) => {
        const ids = line.runs.filter((run, k) => run && line.cells[k]);
        return h("tr", null, all.map(([, , cell]) => h("td", null, cell(line))), h("td", null,
          ids.length > 1 ? button("Compare", () => open(ids), { "aria-label": `compare the runs of ${line.begins}` })
            : line.why));
      })));
    if (focused) lines.querySelector(`[data-column="${focused}"]`)?.focus();
    shown.textContent = fitting.length < record.lines.length ? `${fitting.length} of ${record.lines.length}` : "";
  }
  /** Request the progress until it is over, or another is followed, or the page is left. */
  async function follow(answer) {
    const mine = ++turn;
    draw(answer);
    try {
      while (!record.over && mine === turn && current() === "compare") {
        await new Promise((done) => setTimeout(done, AGAIN));
        const next = await ask(`ds/compare/set/${answer.id}`);
        if (mine === turn) draw(next);
      }
    } catch (error) {
      if (mine === turn) refuse(error);
    }
  }
  return {
    element,
    follow,
    /** The id of the set that is shown, or "". */
    id: () => record?.id || "",
    /** Show the set of that id, as far as it is. */
    restore: (id) => (id !== record?.id || !record.over) && ask(`ds/compare/set/${id}`).then(follow, refuse),
  };
}
