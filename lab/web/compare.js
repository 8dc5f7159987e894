/* compare: two to four runs side by side, live or recorded: one scrubber, one clock, one table. Each part is a
 * file of compare/. */
import { h } from "./scope.js";
import { open, panes as inLab } from "./runs/runs.js";
import { current, go } from "./shared/address.js";
import { againstBaseline } from "./compare/baseline.js";
import { announce } from "./compare/announce.js";
import { FEWEST, LETTERS, MOST } from "./compare/letters.js";
import { comparisonForm } from "./compare/comparison_form.js";
import { read, write } from "./compare/link.js";
import { panels } from "./compare/panels.js";
import { panes } from "./compare/panes.js";
import { picker } from "./compare/picker.js";
import { setTable } from "./compare/prompt_sets.js";
import { comparisonTable } from "./compare/comparison_table.js";
import { emptyState } from "./compare/empty_state.js";
import { stream } from "./compare/stream.js";
import { summaryPoll } from "./compare/summary.js";
import { toolsOf } from "./compare/tools.js";
import { activeRuns } from "./runs/active_runs.js";
import { createNotice } from "./shared/notice.js";

const LATER = 400; // ms after the last move until the address has it: writing it takes the page some ms
const VIEWS = [
  ["tree, text", ["tree", "text"]],
  ["tree, text, cache", ["tree", "text", "cache"]],
  ["cache, text", ["cache", "text"]],
  ["text", ["text"]],
];

const blankRun = (id) => ({ id, status: "queued", last: -1, end: null, view: null, head: null });

/** What these runs wait for: the runs before them that are not among them. */
const busy = (now) =>
  activeRuns({
    said: "What these runs wait for:",
    wanted: () => now.runs.some((run) => run.status === "queued" && !run.end),
    show: (id) => (open(id), go("lab")),
    those: ({ run, status }) => status === "running" && !now.runs.some((one) => one.id === run),
  });

/** The bar at the top. rebased(base): that run becomes the baseline; seeing(views): panes show these; ways: its
 *  buttons. */
function barOf({ rebased, seeing, ways }) {
  const baseline = h("select", { "aria-label": "baseline" }),
    seen = h("select", { "aria-label": "what each pane shows" },
      VIEWS.map(([word], i) => h("option", { value: i }, word)));
  const choices = [["baseline", baseline], ["show", seen]]
    .map(([word, box]) => h("label", null, h("span", { class: "quiet" }, word), box));
  baseline.addEventListener("change", () => rebased(Number(baseline.value)));
  seen.addEventListener("change", () => seeing(VIEWS[Number(seen.value)][1]));
  return {
    element: h("header", { class: "bar" }, h("h1", null, "Compare"), choices, h("span", { class: "ways" }, ways)),
    /** The lists that are useful for comparing runs. */
    choices,
    base: (k) => (baseline.value = k),
    /** Offer so many runs as the baseline. */
    letters: (count) =>
      baseline.replaceChildren(...[...LETTERS.slice(0, count)].map((x, k) => h("option", { value: k }, x))),
  };
}

export function page(element) {
  // what is compared: the runs; the picture of all; which of them is the baseline; how they are aligned; what a pane
  // shows; whether the address has named them, or somebody here has chosen them; the server's figures
  const now = { runs: [], both: null, base: 0, way: "token", views: VIEWS[0][1], named: false, summary: null };
  const idsOf = () => now.runs.map((run) => run.id);

  // ---- what is on the page

  const { element: notice, say, refuse } = createNotice(), spoken = announce(now), none = emptyState({ choose });
  const adding = picker({ add: (id) => choose([...idsOf(), id]),
    letter: (id) => LETTERS[idsOf().indexOf(id)], full: () => now.runs.length >= MOST });
  const starting = comparisonForm({ begin: ({ runs }) => choose(runs), refuse }),
    overAll = comparisonForm({ many: true, refuse,
      begin: (record) => (say(""), show(null), overPrompts.follow(record)) });
  const overPrompts = setTable({ refuse, changed: () => address(),
    open: (ids) => (choose(ids), element.scrollIntoView()) });
  const table = comparisonTable({ refuse, apart: (k) => apart(k),
    changed: () => (now.both?.against(), figures(), address()) });
  const { apart, ratio, why } = againstBaseline({ runs: () => now.runs, base: () => now.base,
    pairs: () => now.summary?.pairs,
    repeated: table.repeats.ratio });
  const { tools, origins } = toolsOf({ runs: () => now.runs, root: () => now.both.root, choose, refuse });
  const { buttons, elements, show } = panels([["Add a run", adding], [starting.title, starting],
    [overAll.title, overAll]]);
  const queue = busy(now);
  const bar = barOf({ ways: buttons, seeing: (views) => ((now.views = views), build(idsOf())),
    rebased: (base) => ((now.base = base), now.both?.against(base), figures(), address()) });
  const pictures = panes(now, { tools, ratio, why, onSeek: moved, onMove: figures,
    onAlign: (way) => ((now.way = way), address()) });
  element.replaceChildren(bar.element, notice, none.element, ...elements, queue.element, pictures.element,
    table.element, overPrompts.element, spoken.element);

  // ---- which runs

  /** Whether no other form or result is open here. */
  const idle = () => starting.element.hidden && overAll.element.hidden && !overPrompts.id();
  /** Compare these from now on, and name them in the address. */
  function choose(ids) {
    now.named = true;
    say("");
    build(ids);
    if (now.runs.length >= FEWEST) show(null), now.both.root.focus({ preventScroll: true });
    address();
  }
  function build(ids) {
    const kept = new Map(now.runs.map((run) => [run.id, run])), place = pictures.clear();
    events.close();
    const runs = (now.runs = [...new Set(ids)].slice(0, MOST).map((id) => kept.get(id) || blankRun(id)));
    const enough = runs.length >= FEWEST;
    now.base = Math.min(now.base, Math.max(0, runs.length - 1));
    bar.letters(runs.length);
    bar.base(now.base);
    for (const one of [pictures.element, table.element, ...bar.choices]) one.hidden = !enough;
    none.element.hidden = enough;
    none.draw(enough ? [] : runs);
    adding.drawn();
    if (!enough) return runs.forEach((run) => (run.view = null)), idle() && show(adding, false);
    pictures.draw(place);
    table.runs(runs, now.base);
    events.connect();
    figures();
  }
  const events = stream({
    runs: () => now.runs,
    changed: () => (queue.look(), now.both?.against(now.base), table.runs(now.runs, now.base)),
    over: () => (table.runs(now.runs, now.base), figures()),
    lost(kept, errors) {
      build(kept.map((run) => run.id));
      refuse(errors.flatMap((error, k) => (error ? [`Run ${LETTERS[k]}: ${error.message}`] : [])).join(" "));
      address();
    },
  });

  // ---- the figures

  const look = summaryPoll(now, { drawn: () => table.draw(now.summary, now.base), again: figures, refuse });
  function figures() {
    if (!now.both || current() !== "compare") return;
    origins();
    spoken.speak();
    look();
  }

  // ---- the address

  let writing = 0;
  function moved() {
    spoken.speak();
    clearTimeout(writing);
    writing = setTimeout(address, LATER);
  }
  function address() {
    if (current() !== "compare") return;
    const { both, way } = now, place = both && !both.following ? both.at : null,
      at = place && (way === "clock" ? place.seconds : place.token);
    write({ runs: now.named ? idsOf() : [], base: now.base, way, at, repeat: table.repeats.id(),
      set: overPrompts.id() });
  }
  /** Show the runs that the address names; without runs those of the Lab, if none was chosen before. */
  function remembered() {
    if (current() !== "compare") return;
    const { runs: ids, base, way, at, repeat, set } = read();
    if (set) overPrompts.restore(set);
    if (ids === null) return now.runs.length ? address() : build(inLab.map((x) => x.id).filter(Boolean));
    if (!ids)
      return build(idsOf()), refuse("The runs of this address cannot be read: it takes two to four numbers of 16 "
        + "digits, with commas between them.");
    Object.assign(now, { named: true, way, base: Math.min(ids.length - 1, base) });
    if (String(ids) === String(idsOf())) now.both?.against(now.base), bar.base(now.base), now.both?.align(way);
    else build(ids);
    if (repeat) table.repeats.restore(repeat);
    if (now.both && at !== null)
      now.both.seek(way === "clock" ? { seconds: at } : { token: Math.max(1, Math.round(at)) });
  }
  window.addEventListener("hashchange", remembered);
  return { shown: () => (remembered(), figures()), hidden: () => write({ runs: [] }) };
}
