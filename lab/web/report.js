/* report: where the drafts of recorded runs were rejected. Runs of one method are counted together; the server
 * makes the tables. */
import { button, h, plural } from "./scope.js";
import { ask, panes, runTitle } from "./runs/runs.js";
import { current, fragment } from "./shared/address.js";
import { createNotice } from "./shared/notice.js";
import { batch } from "./report/batch.js";
import { draftExamination } from "./report/examination.js";
import { reportComparison } from "./report/comparison.js";
import { speedChart } from "./report/speed_chart.js";
import { CAUSES, rejections, table } from "./report/tables.js";

const MOST = 128; // runs of one report
const RUNS = /(?:^#|&)of=([0-9a-f]{16}(?:,[0-9a-f]{16})*)(?:&|$)/;
const BESIDE = /(?:^#|&)beside=([0-9a-f]{16}(?:,[0-9a-f]{16})*)(?:&|$)/;
const BATCH = /(?:^#|&)batch=([0-9a-f]{16})(?:&|$)/;

const drafts = (row) => row.method?.drafter && !row.trouble && row.drafts;
// how prompts were put changes what becomes of drafts, so that such runs are counted apart
const READINGS = { first: "first turns, chat template", later: "later turns, chat template",
  unknown: "messages, chat template" };
const key = (row) => JSON.stringify([row.model, row.method, row.reading]);
const knobs = (row) =>
  Object.entries(row.method.drafter).filter(([name]) => name !== "name").map(([name, value]) => `${name} ${value}`)
    .join(", ");
/** Method, knobs and model of the runs of a group: no two groups have the same. */
const words = (row) => [row.called, knobs(row), row.model, READINGS[row.reading]].filter(Boolean).join(", ");
/** The details that distinguish runs of one method, each with a link to the run. */
const runSummary = (row) => [
  h("a", { href: fragment([`run=${row.run}`], "debugger"), title: "open it in the Debugger" }, row.run.slice(0, 8)),
  ...(row.steps === undefined ? [] : [h("span", { class: "quiet" }, plural(row.steps, "step"))]),
  ...(row.tau ? [h("span", { class: "quiet" }, `${row.tau.toFixed(2)} tokens per pass`)] : []),
];

export function page(element) {
  let turn = 0, shown = "", second = "", marks = [], methods = [];
  const groups = h("div", { class: "groups" }), out = h("div", { class: "out", tabindex: -1 });
  const { element: notice, say, refuse } = createNotice();
  const running = batch({ methods: () => methods, reported: (runs) => (read(), report(runs, true)),
    moved: () => address() });
  element.replaceChildren(
    h("section", null,
      h("header", null, h("h1", null, "Acceptance report"),
        h("span", { class: "quiet" }, "runs of one method, counted together"),
        h("span", { class: "ways" }, running.opener)),
      running.element, running.earlier, groups, notice),
    out
  );

  // ---- which runs

  async function read() {
    const mine = ++turn;
    try {
      const library = await ask("ds/library");
      if (mine !== turn) return;
      const by = new Map();
      for (const row of library.rows.filter(drafts)) by.set(key(row), [...(by.get(key(row)) || []), row]);
      marks = [];
      methods = [...by.values()].map((rows) => [rows[0].run, words(rows[0]),
        rows.slice(0, MOST).map((row) => row.run).join(",")]);
      groups.replaceChildren(...[...by.values()].map(group));
      if (!by.size) say("There is no recorded run that drafts: make one in the Lab first.");
      if (library.more && current() === "report") setTimeout(() => mine === turn && read(), 400);
    } catch (error) {
      if (mine === turn) refuse(error);
    }
  }
  /** Runs of one method: all of them are counted, or the ticked ones. */
  function group(rows) {
    const wanted = new Set(asked()), here = rows.some((row) => wanted.has(row.run));
    const boxes = rows.map((row) => {
      const box = h("input", { type: "checkbox", value: row.run });
      box.checked = here ? wanted.has(row.run) : true;
      return box;
    });
    const go = button("Report", () => report(ticked(), true));
    const ticked = () => boxes.filter((box) => box.checked).map((box) => box.value),
      mark = () => go.setAttribute("aria-current", ticked().join() === shown);
    const label = () => {
      const n = ticked().length;
      go.disabled = !n || n > MOST;
      mark();
      go.setAttribute("aria-label", `report on ${plural(n, "run")} of ${words(rows[0])}`);
      count.textContent = n === rows.length ? plural(n, "run") : `${n} of ${plural(rows.length, "run")}`;
    };
    const count = h("span", { class: "quiet" });
    boxes.forEach((box) => box.addEventListener("change", label));
    marks.push(mark);
    label();
    const list = h("ul", null,
      rows.map((row, i) =>
        h("li", null,
          h("label", null, boxes[i], h("span", { class: "name" }, runTitle(row))), runSummary(row))
      ));
    return h("div", { class: "group" }, go,
      h("details", { open: here && wanted.size < rows.length },
        h("summary", null, h("b", null, rows[0].called),
          h("span", { class: "quiet" },
            [knobs(rows[0]), rows[0].model, READINGS[rows[0].reading]].filter(Boolean).join(", ")), count),
        list));
  }

  // ---- the report

  const asked = () => RUNS.exec(location.hash)?.[1].split(",") || (panes[0]?.id ? [panes[0].id] : []);

  /** Put the runs of the report, those of a second one, and the active batch into the address while the page is
   *  shown. */
  function address(here = current() === "report") {
    const parts = location.hash.slice(1).split("&")
      .filter((part) => part.includes("=") && !/^(of|beside|batch)=/.test(part));
    const whole = out.firstChild && shown,
      mine = [whole && `of=${shown}`, whole && second && `beside=${second}`];
    if (running.id()) mine.push(`batch=${running.id()}`);
    history.replaceState(null, "", fragment([...parts, ...(here ? mine.filter(Boolean) : [])]));
  }
  /** Report on runs. others: ids of the runs of a second report, as the address has them, or "". */
  async function report(runs, jump = false, others = "") {
    const mine = runs.join(",");
    shown = mine;
    second = others;
    marks.forEach((mark) => mark());
    say("Counting…");
    try {
      const answer = await ask("ds/report?runs=" + mine);
      if (shown !== mine) return;
      say("");
      const save = h("a", { class: "ds-button", href: "ds/report.html?runs=" + mine, download: "" }, "Save as HTML");
      const places = rejections(answer, runs), chart = speedChart(answer.speed.join(" "));
      const changed = reportComparison(mine, others, {
        methods: () => methods,
        chosen: (one) => ((second = one), address()),
        charted: (both) => chart.show(both || answer.chart),
      });
      const examined = draftExamination(mine, answer.doctor),
        drawn = (one) => table(one, answer.deaths, runs, places.show);
      const [first, rest] = [true, false].map((is) => answer.tables.filter((one) => (one.title === CAUSES) === is));
      out.replaceChildren(h("section", { class: "lead" }, answer.lead.map((words) => h("p", null, words)), save,
        changed), chart.element, ...first.map(drawn), examined.element, ...rest.map(drawn), places.element || "",
        ...answer.notes.map((words) => h("p", { class: "quiet" }, words)));
      if (!others) chart.show(answer.chart);
      if (current() === "report") address();
      if (jump) out.focus({ preventScroll: true }), out.scrollIntoView({ block: "start" });
    } catch (error) {
      if (shown === mine) out.replaceChildren(), refuse(error);
    }
  }

  return {
    shown() {
      read();
      const runs = asked();
      const batched = BATCH.exec(location.hash)?.[1];
      const others = BESIDE.exec(location.hash)?.[1] || "";
      if (RUNS.test(location.hash) && (runs.join(",") !== shown || others !== second)) report(runs, false, others);
      else address();
      running.shown(batched);
    },
    hidden: () => address(false),
  };
}
