/* watches: figures of every step of the run, each as a line over all steps with its value at the present one. */
import { button, h, s, toggle } from "../scope.js";
import { ask, ended, inWords } from "../runs.js";

const KEPT = "decodescope-watches";
const MOST = 12; // watches at once
const FIRST = 4; // of those that are offered, to begin with
const WIDE = 96, HIGH = 22; // px of a line
const AGAIN = 1000; // ms between two questions about a run that is going

function kept() {
  try {
    const stored = JSON.parse(localStorage.getItem(KEPT));
    return Array.isArray(stored) ? stored.filter((one) => typeof one === "string").slice(0, MOST) : null;
  } catch {
    return null; // forbidden, or not ours
  }
}

/** A number as a watch shows it. */
export function short(x) {
  if (x === null || x === undefined) return "–";
  if (Number.isInteger(x) && Math.abs(x) < 1e6) return String(x);
  const size = Math.abs(x);
  return size >= 1e6 || size < 1e-4 ? x.toExponential(2)
    : size >= 100 ? x.toFixed(0) : size >= 1 ? x.toFixed(2) : x.toFixed(3);
}

/** Values over the steps as one path; a hole where a step has none, a dot where a value stands alone. */
export function line(values, first, last, low, high) {
  const x = (step) => 3 + ((step - first) / Math.max(1, last - first)) * (WIDE - 6);
  const y = (value) => (high > low ? HIGH - 3 - ((value - low) / (high - low)) * (HIGH - 6) : HIGH / 2);
  let path = "", before = null;
  for (const [step, value] of values) {
    if (value === null) {
      before = null;
      continue;
    }
    path += before === null ? `M${x(step).toFixed(1)},${y(value).toFixed(1)}h0`
      : `L${x(step).toFixed(1)},${y(value).toFixed(1)}`;
    before = value;
  }
  return { path, x, y };
}

/** The watches, as a part of the page. */
export function watches() {
  let list = kept(), tabled = false, last = {}, timer = 0;
  const answers = new Map(); // expression -> {as, values, trouble}
  const rows = h("ul", { class: "list" }),
    twin = h("div", { class: "scroll twin", tabindex: 0, role: "group", "aria-label": "the watches as a table",
      hidden: "" }),
    said = h("p", { class: "said", role: "status" });
  const box = h("input", { type: "text", placeholder: "mean(accepted)", "aria-label": "expression of a new watch",
    autocomplete: "off", spellcheck: "false", autocapitalize: "off" });
  const form = h("form", null, box, h("button", { type: "submit", class: "ds-button" }, "Watch"));
  const table = toggle("Show as table", (on) => ((tabled = on), show()));
  const element = h("section", { class: "watches", "aria-label": "Watches" },
    h("header", null, h("h2", null, "Watches"), table), rows, twin, form, said);

  const say = (sentence, bad = false) =>
    ((said.className = bad ? "said ds-refusal" : "said quiet"),
      said.textContent !== sentence && (said.textContent = sentence));
  function put(next) {
    list = next;
    try {
      localStorage.setItem(KEPT, JSON.stringify(list));
    } catch {} // full, or forbidden
    show();
    read();
  }
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const text = box.value.trim();
    if (!text) return say("");
    if (list?.includes(text)) return say("It is watched already.");
    if (list?.length >= MOST) return say(`There are ${MOST} watches, which is the limit: remove one first.`, true);
    try {
      await ask("/ds/conditions", { method: "POST", body: JSON.stringify({ text, watch: true }) });
      box.value = "";
      say("");
      put([...(list || []), text]);
    } catch (error) {
      say(inWords(error), true);
    }
  });

  /** The values of a watch in steps 0 to `count`, in as many answers as it takes. */
  async function all(run, text, count) {
    const values = [];
    for (let from = 0; from < count;) {
      const got = await ask(`/ds/run/${run}/watch?expression=${encodeURIComponent(text)}&from=${from}&to=${count}`);
      values.push(...got.values);
      const next = got.next ?? (got.values.length ? got.values.at(-1)[0] + 1 : count);
      if (next <= from) break;
      from = next;
    }
    return values;
  }
  /** Ask for the values of every watch in the run that is shown; while it goes on, from time to time. */
  function read() {
    const { pane } = last, count = pane?.view.store.count, as = `${pane?.id} ${count}`,
      wanted = (list || []).filter((text) => answers.get(text)?.as !== as);
    if (timer || !pane?.id || !count || !wanted.length) return;
    const again = !ended(pane) && wanted.every((text) => answers.has(text));
    timer = setTimeout(() => ((timer = 0), fetchAll()), again ? AGAIN : 0);
  }
  function fetchAll() {
    const { pane } = last, count = pane.view.store.count, as = `${pane.id} ${count}`;
    for (const text of list.filter((one) => pane.id && count && answers.get(one)?.as !== as)) {
      const mine = { values: answers.get(text)?.values || [], trouble: "", as };
      answers.set(text, mine);
      all(pane.id, text, count).then((values) => (mine.values = values), (error) =>
        Object.assign(mine, { values: [], trouble: error.message })).then(show);
    }
  }
  function row(text, i) {
    const gone = button("×", () => {
      put(list.filter((one) => one !== text));
      (rows.children[Math.min(i, list.length - 1)]?.querySelector(".gone") || box).focus();
    }, { class: "bare gone", "aria-label": `stop watching ${text}`, title: "remove" });
    return h("li", { "data-text": text }, h("code", null, text), h("b"),
      s("svg", { width: WIDE, height: HIGH, role: "img" }, s("path"), s("circle", { r: 2.5 })), gone, h("small"));
  }
  let drawnAs = "";
  function show() {
    const { at } = last, as = JSON.stringify(list);
    if (!list) return;
    if (as !== drawnAs) (drawnAs = as), rows.replaceChildren(...list.map(row));
    for (const li of rows.children) {
      const { values = [], trouble = "" } = answers.get(li.dataset.text) || {}, known = values.map((x) =>
        x[1]
      ).filter((x) => x !== null);
      const here = values.find(([step]) => step === at)?.[1] ?? null, [, value, svg, , wrong] = li.children,
        low = Math.min(...known), high = Math.max(...known);
      value.textContent = short(here);
      if (wrong.textContent !== trouble) wrong.textContent = trouble;
      svg.setAttribute("aria-label", trouble
        || (known.length ? `${li.dataset.text} over the steps: ${short(low)} to ${short(high)}`
          : "no value in this run"));
      const drawn = line(values, values[0]?.[0] ?? 0, values.at(-1)?.[0] ?? 0, low, high), [path, dot] = svg.children;
      path.setAttribute("d", drawn.path);
      dot.style.display = here === null ? "none" : "";
      if (here !== null)
        dot.setAttribute("transform", `translate(${drawn.x(at).toFixed(1)},${drawn.y(here).toFixed(1)})`);
    }
    rows.hidden = tabled;
    twin.hidden = !tabled || !list.length;
    if (tabled) tabulate(at);
  }
  function tabulate(at) {
    const columns = list.map((text) => new Map(answers.get(text)?.values || [])),
      steps = [...new Set(columns.flatMap((column) => [...column.keys()]))].sort((a, b) => a - b);
    twin.replaceChildren(
      h("table", null, h("caption", null, "Every step of the run"),
        h("thead", null, h("tr", null, ["step", ...list].map((x) => h("th", { scope: "col" }, h("code", null, x))))),
        h("tbody", null,
          steps.map((step) =>
            h("tr", { class: step === at ? "here" : null }, h("th", { scope: "row" }, String(step)),
              columns.map((column) => h("td", null, short(column.get(step) ?? null))))
          )))
    );
  }
  return {
    element,
    /** Step `at` of the run is shown. */
    draw(pane, at) {
      if (last.pane !== pane) answers.clear();
      const same = last.pane === pane && last.at === at;
      last = { pane, at };
      if (!same) show();
      read();
    },
    /** What can be asked for: some of it is watched until somebody says otherwise. */
    known({ names }) {
      list ??= names.filter((one) => one.watch).slice(0, FIRST).map((one) => one.watch);
      show();
      read();
    },
  };
}
