/* watches: figures of every step of the run, each as a line over all steps with its value at the present one. */
import { button, h, toggle } from "../../scope.js";
import { ask, errorText } from "../../runs/runs.js";
import { draw as drawLine, picture, range, shortNumber } from "./sparkline.js";
import { statusLine } from "../status_line.js";
import { series } from "./series.js";

const KEPT = "decodescope-watches";
const MOST = 12; // watches at once
const FIRST = 4; // initial watches, of the offered ones

function readStored() {
  try {
    const stored = JSON.parse(localStorage.getItem(KEPT));
    return Array.isArray(stored) ? stored.filter((one) => typeof one === "string").slice(0, MOST) : null;
  } catch {
    return null; // forbidden, or not ours
  }
}

/** The form that adds a watch. list(): the existing ones; add(text): one that the server can parse. */
function watchForm({ list, add }) {
  const { element: line, say } = statusLine();
  const box = h("input", { type: "text", placeholder: "mean(accepted)", "aria-label": "expression of a new watch",
    autocomplete: "off", spellcheck: "false", autocapitalize: "off" });
  const form = h("form", null, box, h("button", { type: "submit", class: "ds-button" }, "Watch"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const text = box.value.trim();
    if (!text) return say("");
    if (list()?.includes(text)) return say("It is watched already.");
    if (list()?.length >= MOST) return say(`There are ${MOST} watches, which is the limit: remove one first.`, true);
    try {
      await ask("ds/conditions", { method: "POST", body: JSON.stringify({ text, watch: true }) });
      box.value = "";
      say("");
      add(text);
    } catch (error) {
      say(errorText(error), true);
    }
  });
  return { elements: [form, line], focus: () => box.focus() };
}

/** All values of the watches; the row of step `at` is the present one. */
function table(list, values, at) {
  const columns = list.map((text) => new Map(values(text))),
    steps = [...new Set(columns.flatMap((column) => [...column.keys()]))].sort((a, b) => a - b);
  return h("table", null, h("caption", null, "Every step of the run"),
    h("thead", null, h("tr", null, ["step", ...list].map((x) => h("th", { scope: "col" }, h("code", null, x))))),
    h("tbody", null,
      steps.map((step) =>
        h("tr", { class: step === at ? "here" : null }, h("th", { scope: "row" }, String(step)),
          columns.map((column) => h("td", null, shortNumber(column.get(step) ?? null))))
      )));
}

/** One watch as a row at step `at`: its value there and its line. */
function drawRow(li, { values, trouble }, at) {
  const text = li.dataset.text, here = values.find(([step]) => step === at)?.[1] ?? null, over = range(values),
    [, value, svg, , wrong] = li.children;
  value.textContent = shortNumber(here);
  if (wrong.textContent !== trouble) wrong.textContent = trouble;
  svg.setAttribute("aria-label", trouble || (over ? `${text} over the steps: ${over}` : "no value in this run"));
  drawLine(svg, values, at, here);
}

/** The watches, as a part of the page. */
export function watches() {
  let list = readStored(), tabled = false, last = {}, drawnAs = "";
  const rows = h("ul", { class: "list" }),
    twin = h("div", { class: "scroll twin", tabindex: 0, role: "group", "aria-label": "the watches as a table",
      hidden: "" });
  const answers = series(() => ({ pane: last.pane, list }), show);
  const form = watchForm({ list: () => list, add: (text) => put([...(list || []), text]) });
  const asTable = toggle("Show as table", (on) => ((tabled = on), show()));
  const element = h("section", { class: "watches", "aria-label": "Watches" },
    h("header", null, h("h2", null, "Watches"), asTable), rows, twin, form.elements);

  function put(next) {
    list = next;
    try {
      localStorage.setItem(KEPT, JSON.stringify(list));
    } catch {} // full, or forbidden
    show();
    answers.read();
  }
  function row(text, i) {
    const gone = button("×", () => {
      put(list.filter((one) => one !== text));
      const near = rows.children[Math.min(i, list.length - 1)]?.querySelector(".gone");
      near ? near.focus() : form.focus();
    }, { class: "bare gone", "aria-label": `stop watching ${text}`, title: "remove" });
    return h("li", { "data-text": text }, h("code", null, text), h("b"), picture(), gone, h("small"));
  }
  function show() {
    const { at } = last, as = JSON.stringify(list);
    if (!list) return;
    if (as !== drawnAs) (drawnAs = as), rows.replaceChildren(...list.map(row));
    for (const li of rows.children) drawRow(li, answers.of(li.dataset.text), at);
    rows.hidden = tabled;
    twin.hidden = !tabled || !list.length;
    if (tabled) twin.replaceChildren(table(list, (text) => answers.of(text).values, at));
  }
  return {
    element,
    /** Step `at` of the run is shown. */
    draw(pane, at) {
      if (last.pane !== pane) answers.clear();
      const same = last.pane === pane && last.at === at;
      last = { pane, at };
      if (!same) show();
      answers.read();
    },
    /** The offered watches: some of them are on until the reader chooses. */
    known({ names }) {
      list ??= names.filter((one) => one.watch).slice(0, FIRST).map((one) => one.watch);
      show();
      answers.read();
    },
  };
}
