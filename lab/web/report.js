/* report: where the drafts of recorded runs died. Runs of one method are counted together; the server makes
 * the tables. */
import { button, h, plural, s } from "./scope.js";
import { ask, panes, inWords } from "./runs.js";
import { current, fragment } from "./address.js";

const MOST = 64; // runs of one report
const WIDE = 140, HIGH = 10; // px of a bar
const LONG = 24; // letters of a cell that may be broken into lines
const TOKENS = ["drafted", "came", "behind"]; // columns that hold text of the run, where the first one does
const RUNS = /(?:^#|&)of=([0-9a-f]{16}(?:,[0-9a-f]{16})*)(?:&|$)/;

export function page(element) {
  let turn = 0, shown = "", marks = [];
  const groups = h("div", { class: "groups" }), out = h("div", { class: "out", tabindex: -1 });
  const notice = h("p", { class: "told", role: "status" });
  element.replaceChildren(
    h("section", null,
      h("header", null, h("h1", null, "Where drafts die"),
        h("span", { class: "quiet" }, "runs of one method, counted together")), groups, notice),
    out
  );

  const refuse = (error) => {
    notice.className = "told ds-refusal";
    notice.replaceChildren(inWords(error));
  };
  const say = (words) => ((notice.className = "told"), notice.replaceChildren(words));

  // ---- which runs

  const drafts = (row) => row.method?.drafter && !row.trouble && row.drafts;
  const key = (row) => JSON.stringify([row.model, row.method]);
  const knobs = (row) =>
    Object.entries(row.method.drafter).filter(([name]) => name !== "name").map(([name, value]) => `${name} ${value}`)
      .join(", ");
  const named = (row) => row.title || `run ${row.run.slice(0, 8)}`;

  async function read() {
    const mine = ++turn;
    try {
      const library = await ask("/ds/library");
      if (mine !== turn) return;
      const by = new Map();
      for (const row of library.rows.filter(drafts)) by.set(key(row), [...(by.get(key(row)) || []), row]);
      marks = [];
      groups.replaceChildren(...[...by.values()].map(group));
      if (!by.size) say("There is no recorded run that drafts: make one in the Lab first.");
      if (library.more && current() === "report") setTimeout(() => mine === turn && read(), 400);
    } catch (error) {
      if (mine === turn) refuse(error);
    }
  }
  /** Runs of one method: all of them are counted, or those that are ticked. */
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
      go.setAttribute("aria-label", `report on ${plural(n, "run")} of ${rows[0].called}`);
      count.textContent = n === rows.length ? plural(n, "run") : `${n} of ${plural(rows.length, "run")}`;
    };
    const count = h("span", { class: "quiet" });
    boxes.forEach((box) => box.addEventListener("change", label));
    marks.push(mark);
    label();
    const list = h("ul", null,
      rows.map((row, i) =>
        h("li", null,
          h("label", null, boxes[i], named(row),
            row.steps === undefined ? null : h("span", { class: "quiet" }, plural(row.steps, "step"))))
      ));
    return h("div", { class: "group" }, go,
      h("details", { open: here && wanted.size < rows.length },
        h("summary", null, h("b", null, rows[0].called),
          h("span", { class: "quiet" }, [knobs(rows[0]), rows[0].model].filter(Boolean).join(", ")), count), list));
  }

  // ---- the report

  const asked = () => RUNS.exec(location.hash)?.[1].split(",") || (panes[0]?.id ? [panes[0].id] : []);

  /** Put the runs of the report into the address, which names them while it is looked at. */
  function address(runs) {
    const parts = location.hash.slice(1).split("&").filter((part) => part.includes("=") && !part.startsWith("of="));
    history.replaceState(null, "", fragment([...parts, ...runs.map((one) => "of=" + one)]));
  }
  async function report(runs, jump = false) {
    const mine = runs.join(",");
    shown = mine;
    marks.forEach((mark) => mark());
    say("Counting…");
    try {
      const answer = await ask("/ds/report?runs=" + mine);
      if (shown !== mine) return;
      say("");
      const save = h("a", { class: "ds-button", href: "/ds/report.html?runs=" + mine, download: "" }, "Save as HTML");
      out.replaceChildren(h("section", { class: "lead" }, answer.lead.map((words) => h("p", null, words)), save),
        ...answer.tables.map(table), ...answer.notes.map((words) => h("p", { class: "quiet" }, words)));
      if (current() === "report") address([mine]);
      if (jump) out.focus({ preventScroll: true }), out.scrollIntoView({ block: "start" });
    } catch (error) {
      if (shown === mine) out.replaceChildren(), refuse(error);
    }
  }
  const bar = (share) => (share === null ? null
    : s("svg", { class: "bar", width: WIDE, height: HIGH, viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none",
      "aria-hidden": "true" }, s("rect", { class: "ground", width: WIDE, height: HIGH }),
      s("rect", { class: "fill", width: Math.min(share, 1) * WIDE, height: HIGH })));
  function table({ title, about, head, rows, bars, below }) {
    const as = (word, k) =>
      [word.length > LONG ? "long" : "", head[0] === TOKENS[0] && TOKENS.includes(head[k]) ? "tok" : ""].join(" ")
        .trim() || null;
    const line = (row, i) =>
      h("tr", null, row.map((word, k) => h(k ? "td" : "th", { scope: k ? null : "row", class: as(word, k) }, word)),
        bars.length ? h("td", null, bar(bars[i])) : null);
    const sheet = h("table", null,
      h("thead", null,
        h("tr", null, head.map((word) => h("th", { scope: "col" }, word)), bars.length ? h("td") : null)),
      h("tbody", null, rows.map(line)));
    return h("section", null, h("h2", null, title), about ? h("p", { class: "quiet" }, about) : null,
      h("div", { class: "wide", tabindex: 0, role: "group", "aria-label": title }, sheet),
      below.map((words) => h("p", { class: "quiet" }, words)));
  }

  return {
    shown() {
      read();
      const runs = asked();
      if (RUNS.test(location.hash) && runs.join(",") !== shown) report(runs);
      else if (shown && out.firstChild) address([shown]);
    },
    hidden: () => address([]),
  };
}
