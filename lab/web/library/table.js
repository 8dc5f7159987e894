/* table: the traces of this machine, a row each: drawn, walked with keys, renamed, kept, deleted and restored. */
import { button, formatCount, h } from "../scope.js";
import { closeOnClick } from "./menu.js";
import { line } from "./row.js";
import { listedTitle } from "./trace_list.js";

const DRAWN = 300; // rows that are drawn at once
const HEADS = [["", "star"], ["name", "name"], ["method", "method"], ["model", "model"], ["tokens per step", "bars"],
  ["steps", "steps n"], ["tokens / pass", "tau n"], ["tokens / s", "rate n"], ["size", "size n"], ["recorded", "at"],
  ["", "acts"]];
const LABELS = { star: "kept in any case", acts: "what can be done" };

/** The table around the rows of `body`. */
const tableFrame = (body) =>
  h("table", { class: "traces" },
    h("caption", { class: "unseen" }, "Traces on this machine, the newest first"),
    h("thead", null,
      h("tr", null,
        HEADS.map(([word, cls]) =>
          h("th", { scope: "col", class: cls }, word || h("span", { class: "unseen" }, LABELS[cls]))
        ))), body);
/** The class of the cell that holds a part of a row, such as "name". */
const partOf = (element) => element.closest("td, th")?.className.split(" ")[0];

/** matching(): the rows that pass the filter; choice: of runs to compare; show(run); say(words, ...ways);
 *  redraw(): the page, and this table with it. */
export function traces({ shelf, choice, matching, show, say, redraw }) {
  const { act, find } = shelf, body = h("tbody"), element = tableFrame(body);
  const none = h("p", { class: "none quiet" });
  let renaming = null; // the run that is being renamed

  const focus = (run, part = ".name button") => body.querySelector(`[data-run="${run}"] ${part}`)?.focus();
  const rename = (run) => ((renaming = run), redraw(), body.querySelector("input")?.select());
  function renamed(row, to) {
    renaming = null;
    if (to === null || to.trim() === (row.title || "")) return redraw(), focus(row.run);
    act(row.run, "name", to, () => (say(`It is called ${listedTitle(find(row.run))} now.`), focus(row.run)));
    redraw();
  }
  const star = (row, on) => act(row.run, "star", on, () => focus(row.run, ".star button"));
  function remove(row) {
    const list = matching(), next = list[list.indexOf(row) + 1] || list[list.indexOf(row) - 1];
    choice.keep((run) => run !== row.run);
    const undo = button("Undo",
      () => act(row.run, "restore", undefined, () => (say(`${listedTitle(row)} is back.`), focus(row.run))));
    act(row.run, "delete", undefined, () => {
      say(`${listedTitle(row)} was deleted. For an hour it can be brought back.`, undo);
      if (next && find(next.run)) focus(next.run);
      else undo.focus();
    });
  }
  const uses = { body, show, star, remove, rename, renaming: (run) => renaming === run, renamed, choice };

  body.addEventListener("keydown", (event) => {
    const tr = event.target.closest("tr"), menu = event.target.closest("details");
    if (event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && menu?.open) (menu.open = false), menu.querySelector("summary").focus();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (menu?.open) return;
      const next = event.key === "ArrowDown" ? tr.nextElementSibling : tr.previousElementSibling,
        part = event.target.matches("summary") ? "summary" : `.${partOf(event.target)} button`;
      if (next) focus(next.dataset.run, part);
    } else if (event.key === "Delete") remove(find(tr.dataset.run));
    else if (event.key === "F2") rename(tr.dataset.run);
    else return;
    event.preventDefault();
  });
  closeOnClick(body);

  return {
    element,
    none,
    /** Draw these rows; empty: the text if nothing is recorded yet, or ""; most: as `bars` takes it. */
    draw(rows, empty, most) {
      const was = document.activeElement, at = body.contains(was) && was.closest("tr")?.dataset.run,
        part = at && partOf(was);
      body.replaceChildren(...rows.slice(0, DRAWN).map((row) => line(row, most, uses)));
      if (at) focus(at, part === "name" ? undefined : `.${part} :is(button, summary)`);
      element.hidden = !rows.length;
      none.textContent = empty
        || (!rows.length ? "No trace holds these words."
          : rows.length > DRAWN
          ? `The newest ${DRAWN} of ${formatCount(rows.length)}: write more into the filter to find the others.` : "");
    },
  };
}
