/* picker: chooses a run to add to a comparison: from this page, from the library, or an example. */
import { button, formatCount, h, plural } from "../scope.js";
import { ask, shown as lab, errorText, runTitle } from "../runs/runs.js";

const DRAWN = 100; // rows that are drawn at once

/** options: add(id), letter(id) of a run that is already compared, full() whether no more can be added. */
export function picker({ add, letter, full }) {
  let rows = [], words = "", read = false; // whether the whole list of recorded runs is known
  const filter = h("input", { type: "search", placeholder: "Filter by name, method, model",
    "aria-label": "filter the runs", autocomplete: "off", spellcheck: "false" });
  const list = h("ul", { class: "found" }), note = h("p", { class: "quiet", role: "status" });
  const element = h("section", { class: "panel picker" }, h("h2", null, "Add a run"), filter, list, note);
  const about = (row) =>
    [row.kind, row.called, row.model, row.steps !== undefined && plural(row.steps, "step")].filter(Boolean).join(", ");
  function drawn() {
    const parts = words.toLowerCase().split(/\s+/).filter(Boolean),
      fitting = rows.filter((row) =>
        !row.trouble
        && parts.every((part) =>
          `${runTitle(row)} ${about(row)} ${row.text || ""} ${row.run}`.toLowerCase().includes(part)
        )
      );
    const was = /** @type {HTMLElement} */ (document.activeElement)?.dataset?.run;
    list.replaceChildren(...fitting.slice(0, DRAWN).map((row) => {
      const there = letter(row.run), off = !!there || full();
      const inside = [h("b", null, runTitle(row)), h("span", { class: "quiet" }, about(row)),
        h("span", { class: "at" }, there ? `is ${there}` : "Add")];
      const props = { class: null, "data-run": row.run, "aria-disabled": String(off) };
      return h("li", null, button(inside, () => add(row.run), props));
    }));
    if (was) list.querySelector(`[data-run="${was}"]`)?.focus();
    note.textContent = full() ? "Four runs are compared, which is the most: remove one first."
      : !rows.length ? (read ? "Nothing is recorded here yet." : "Looking for runs…")
      : !fitting.length ? "No run holds these words."
      : fitting.length > DRAWN
      ? `The first ${DRAWN} of ${formatCount(fitting.length)}: write more into the filter to find the others.` : "";
  }
  async function look() {
    try {
      const [library, own] = await Promise.all([ask("ds/library"), Promise.all((lab.own || []).map((run) =>
        ask(`ds/run/${run}`).catch(() => null)
      ))]);
      const known = new Set(library.rows.map((row) => row.run));
      const here = own.filter((one) => one && !known.has(one.run)).map((one) => ({ run: one.run,
        kind: `of this page, ${one.status}`, named: one.named, steps: one.steps })
      );
      const mine = new Set(lab.own || []), rank = (row) => (mine.has(row.run) ? 0 : row.example ? 1 : 2);
      rows = [...here,
        ...library.rows.map((row) => ({ ...row,
          kind: mine.has(row.run) ? "of this page" : row.example ? "example" : "library" })
        ).sort((a, b) => rank(a) - rank(b))];
      read = !library.more;
      drawn();
      if (library.more && !element.hidden) setTimeout(() => element.hidden || look(), 500);
    } catch (error) {
      note.textContent = errorText(error);
    }
  }
  filter.addEventListener("input", () => ((words = filter.value), drawn()));
  element.addEventListener("keydown", (event) => {
    const all = [...list.querySelectorAll("button")], i = all.indexOf(event.target);
    const to = { ArrowDown: i + 1, ArrowUp: i - 1 }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    (to < 0 ? filter : all[Math.min(to, all.length - 1)])?.focus();
  });
  return {
    element,
    drawn,
    shown(focus) {
      if (focus) filter.focus();
      look();
    },
  };
}
