/* library: the traces in the folder of this machine, and the examples: open, filter, name, keep, delete, compare, add,
 * save. Each part is a file of library/. */
import { formatCount, h, size } from "./scope.js";
import { exampleOf, isOver, onChange, open, panes, shown } from "./runs/runs.js";
import { current, go } from "./shared/address.js";
import { activeRuns } from "./runs/active_runs.js";
import { uploadArea } from "./library/upload.js";
import { calibrations } from "./library/calibrations.js";
import { cards } from "./library/cards.js";
import { createSelection } from "./library/selection.js";
import { trainings } from "./library/trainings.js";
import { createTraceList } from "./library/trace_list.js";
import { traces } from "./library/table.js";
import { createNotice } from "./shared/notice.js";

const LOWEST = 4; // tokens per step that the highest of the small columns represents at least

const live = activeRuns({
  said: "Going on this machine now:",
  wanted: () => current() === "library",
  show: (id) => (open(id), go("lab")),
});

/** Show a run in the Lab. */
function show(run) {
  open(run);
  if (exampleOf(run)) shown.put?.(exampleOf(run).settings); // Run repeats it
  go("lab");
  /** @type {HTMLElement} */
  const view = document.querySelector(".ds-places .ds");
  view?.focus({ preventScroll: true });
}

export function page(element) {
  const { element: notice, say, refuse } = createNotice();
  const filter = h("input", { type: "search", placeholder: "Filter by name, text, method, model",
    "aria-label": "Filter the traces", autocomplete: "off", spellcheck: "false" });
  const count = h("span", { class: "quiet count" });
  const shelf = createTraceList({ changed: () => (choice.keep(shelf.find), draw()), refuse }); // others delete, too
  const choice = createSelection({ find: shelf.find, say, changed: () => draw(), left: () => filter.focus() });
  const examples = cards({ show, choice });
  const matching = () => shelf.matching(filter.value);
  const table = traces({ shelf, choice, matching, show, say, redraw: () => draw() });
  const risks = calibrations(), heads = trainings();
  const files = uploadArea({ page: element, shelf, show, say, refuse });
  const start = h("section", { class: "start" },
    h("header", null, h("h1", null, "Start here"),
      h("span", { class: "quiet" }, "recorded runs that come with the package; no model is needed")), examples.element);
  element.replaceChildren(
    live.element, start,
    h("section", null,
      h("header", null, h("h1", null, "Traces"), count, h("span", { class: "tools" }, filter, files.elements)),
      notice, table.element, table.none),
    risks.element,
    heads.element
  );

  function draw() {
    const list = shelf.list();
    if (!list) return;
    const own = list.rows.filter((row) => !row.example), others = list.rows.filter((row) => row.example);
    const most = Math.max(LOWEST, ...list.rows.flatMap((row) => row.bars || []));
    table.draw(matching(),
      own.length ? "" : "No run was recorded here yet: press Run in the Lab, or drop a trace here.", most);
    examples.draw(others, most);
    start.hidden = !others.length;
    count.textContent = `${formatCount(own.length)} on this machine, ${size(list.bytes)}; above ${size(list.most)} the `
      + "oldest without a star go";
  }
  filter.addEventListener("input", draw);
  let ended = "";
  onChange(() => { // a run of this page has ended: its trace belongs into the list
    const now = panes.filter(isOver).map((pane) => pane.id).join();
    if (now !== ended && current() === "library") shelf.read();
    ended = now;
  });
  new MutationObserver(() => current() === "library" && (examples.restyle(), draw())).observe(document.body, {
    attributes: true,
    attributeFilter: ["class"],
  });
  return { shown: () => (live.look(), shelf.read(), risks.look(), heads.look()) };
}
