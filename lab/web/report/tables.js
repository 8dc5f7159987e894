/* tables: a report as tables, and the places at which drafts were rejected one by one: each row opens the Debugger
 * there. */
import { button, h, plural, prob, s, addTerm } from "../scope.js";
import { fragment } from "../shared/address.js";

const WIDE = 140, HIGH = 10; // px of a bar
const LONG = 24; // letters of a cell that may be broken into lines
const TOKENS = ["drafted", "came", "behind"]; // columns that contain text of the run, where the first one does
const PLACE = "run, step"; // the column that names a place
export const CAUSES = "Why drafts were refused"; // the table that is as wide as the page
const COLUMNS = [PLACE, "prompt", "depth", "kind", "drafted", "came", "behind", "p", "q", "draft rank", "position"];
const OPTION = /^--\w/; // a cell with an option of the command line
const SHOWN = 25; // rejections that are listed at first, and added with every press

const bar = (share) => (share === null ? null
  : s("svg", { class: "bar", width: WIDE, height: HIGH, viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none",
    "aria-hidden": "true" }, s("rect", { class: "ground", width: WIDE, height: HIGH }),
    s("rect", { class: "fill", width: Math.min(share, 1) * WIDE, height: HIGH })));
const cellClass = (head, word, k) =>
  [word.length > LONG ? "long" : "", head[0] === TOKENS[0] && TOKENS.includes(head[k]) ? "tok" : "",
    OPTION.test(word) ? "option" : ""].join(" ").trim() || null;
/** The words of a cell; an option of the command line may be broken behind its signs. */
const breakable = (word) => (OPTION.test(word) ? word.split(/(?<=[._=])(?=\w)/)
  .flatMap((part, i) => (i ? [h("wbr", null), part] : [part])) : word);
const heads = (words) => h("thead", null, h("tr", null, words.map((word) => addTerm(h("th", { scope: "col" }, word)))));
const scrollBox = (title, sheet) => h("div", { class: "wide", tabindex: 0, role: "group", "aria-label": title }, sheet);
const matches = (death, where) => Object.entries(where).every(([name, value]) => String(death[name]) === value);
/** The address at which the Debugger shows where a draft was rejected. There nodes are counted after the root. */
const place = (death, runs) =>
  fragment([`run=${runs[death.run]}`, `step=${death.step}`, `node=${death.node + 1}`], "debugger");

/** The address at which the Debugger shows a step, [number of the run, step]. */
const stepLink = ([run, step], runs) =>
  h("a", { href: fragment([`run=${runs[run]}`, `step=${step}`], "debugger"), title: "open it in the Debugger" },
    `${run + 1}, ${step}`);

/** A table of the report. deaths: the rejections that its rows count, runs: the ids of the runs; show(where,
 *  words): list those that a row counts. */
export function table({ title, about, head, rows, bars, below, where = [], steps = [] }, deaths = [], runs = [],
  show = null) {
  const placed = steps.length > 0 && runs.length > 0 && !head.includes(PLACE);
  const under = where.map((one) => deaths.filter((death) => one && matches(death, one)));
  const words = [...head, ...(bars.length ? [""] : []), ...(where.length && show ? ["rejected"] : []),
    ...(placed ? [PLACE] : [])];
  const links = (i) => h("td", { class: "steps" },
    steps[i].length ? steps[i].flatMap((one, k) => [k ? "; " : "", stepLink(one, runs)]) : "–");
  const cell = (row, i, word, k) => {
    const first = head[k] === PLACE && under[i]?.[0];
    return h(k ? "td" : "th", { scope: k ? null : "row", class: cellClass(head, word, k) },
      first ? h("a", { href: place(first, runs), title: "open it in the Debugger" }, word) : breakable(word));
  };
  const count = (row, i) => (under[i].length
    ? button(String(under[i].length), () => show(where[i], `${head[0]} ${row[0]}`), {
      class: "ds-button small",
      "aria-label": `list ${plural(under[i].length, "rejection")}: ${head[0]} ${row[0]}`,
    }) : null);
  const line = (row, i) =>
    h("tr", null, row.map((word, k) => cell(row, i, word, k)), bars.length ? h("td", null, bar(bars[i])) : null,
      where.length && show ? h("td", null, count(row, i)) : null, placed ? links(i) : null);
  return h("section", { class: title === CAUSES ? "whole" : null }, h("h2", null, title),
    about ? h("p", { class: "quiet" }, about) : null,
    scrollBox(title, h("table", null, heads(words), h("tbody", null, rows.map(line)))),
    below.map((sentence) => h("p", { class: "quiet" }, sentence)));
}

/** The rejections one by one. died: their number, including those that are not listed;  begins: how the prompts of
 *  the runs begin. */
export function rejections({ deaths, died, begins }, runs) {
  let where = {}, words = "", many = SHOWN;
  const about = h("p", { class: "quiet", role: "status" }), rows = h("tbody");
  const all = button("Show all", () => show({}, ""), { class: "ds-button small" }),
    more = button("Show more", () => ((many += SHOWN), draw()), { class: "ds-button small" });
  const line = (death) =>
    h("tr", null,
      h("th", { scope: "row" },
        h("a", { href: place(death, runs), "aria-label": `run ${death.run + 1}, step ${death.step}, in the Debugger` },
          `${death.run + 1}, ${death.step}`)),
      [begins[death.run], String(death.depth), death.kind].map((word) => h("td", null, word)),
      [death.drafted, death.came, `${death.before}|`].map((word) => h("td", { class: "tok" }, word)),
      [death.p, death.q].map((value) => h("td", null, prob(value))),
      [death.draft_rank, death.position].map((value) => h("td", null, value ?? "–")));
  const section = h("section", { class: "deaths", tabindex: -1 }, h("h2", null, "Every rejection"), about,
    h("div", { class: "ways" }, all),
    scrollBox("Every rejection",
      h("table", null, heads(COLUMNS), rows)), more);
  function draw() {
    const chosen = deaths.filter((death) => matches(death, where)),
      cut = deaths.length < died ? ` The first ${deaths.length} of ${died} are listed.` : "";
    about.textContent = `${words ? `${words}: ${chosen.length} of ${plural(deaths.length, "rejection")}.`
      : `${plural(chosen.length, "place")} at which a draft was rejected.`} A row opens the Debugger there.${cut}`;
    all.hidden = !words;
    more.hidden = chosen.length <= many;
    rows.replaceChildren(...chosen.slice(0, many).map(line));
  }
  function show(chosen, said) {
    [where, words, many] = [chosen, Object.keys(chosen).length ? said : "", SHOWN];
    draw();
  }
  draw();
  return {
    element: deaths.length ? section : null,
    /** List the rejections that a row of another table counts, and scroll to them. */
    show(chosen, said) {
      show(chosen, said);
      section.focus({ preventScroll: true });
      section.scrollIntoView({ block: "start" });
    },
  };
}
