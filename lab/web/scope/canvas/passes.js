/* Passes: a method that works on many places at once, by pass and place: a table with a row for each pass. */
import { h, set } from "../shared/elements.js";

export const SIDES = 34 + 84; // px of the words next to the cells

/** seek(step): its row was chosen; choose(step, place): one of its cells. label: of the table, for screen readers. */
export function passesView({ seek, choose, label }) {
  const head = h("tr"), body = h("tbody"), table = h("table", null, h("thead", null, head), body);
  const element = h("div", { class: "passes", role: "group", tabindex: 0, "aria-label": label }, table);
  let drawn = new WeakMap(), rowsFor = "", broughtTo = null;
  body.addEventListener("click", ({ target }) => {
    const cell = target.closest("td, th"), row = target.closest("tr"), step = Number(row?.dataset.step);
    if (cell?.dataset.place) choose(step, Number(cell.dataset.place));
    else if (row) seek(step);
  });
  return {
    element,
    /** rows: [{of: its record, step, cell(place) -> {kind, shade, word, title} or nothing, after: [words, title]}],
     *  made once for a record, these places and `upto`, the steps that a cell's words cover; every: so many places
     *  have a number, counted from `from`; at, place: what is chosen; wide: px of a column, else as its words need;
     *  end: the heading of the words after the cells; bring: whether the cells of pass `at` are scrolled to.
     *  @param places
     *  @param rows
     *  @param {{every: number, from: number, at: number, place: number, wide?: number, end: string, upto?: string,
     *    bring: boolean}} how */
    draw(places, rows, { every, from, at, place, wide, end, upto, bring }) {
      const as = [places[0], places.length, every, from, wide, upto].join();
      if (as !== rowsFor) {
        drawn = new WeakMap();
        rowsFor = as;
        head.replaceChildren(h("th", { scope: "col" }, "pass"), ...places.map((x) => h("th", { scope: "col" },
          (x - from) % every === every - 1 || (x === from && every > 1) ? h("span", null, String(x - from + 1)) : "")),
        h("th", { scope: "col", class: "end" }, end));
        set(table, { style: wide ? `--cell:${wide}px;table-layout:fixed;width:${SIDES + places.length * wide}px`
          : null });
      }
      const lines = rows.map(({ of, step, cell, after }) => {
        if (!drawn.has(of)) {
          const cells = places.map((x) => {
            const one = cell(x);
            return h("td", { "data-place": x, class: one?.kind, style: one?.shade === undefined ? null
              : `--p:${Math.round(100 * one.shade)}%`, title: one?.title }, one?.word);
          });
          drawn.set(of, h("tr", { "data-step": step }, h("th", { scope: "row" },
            h("button", { type: "button", "aria-label": `pass ${step}` }, String(step))), ...cells,
          h("td", { class: "end", title: after[1] }, after[0])));
        }
        return drawn.get(of);
      });
      if (lines.length !== body.children.length || lines.some((line, k) => line !== body.children[k]))
        body.replaceChildren(...lines);
      for (const line of lines) {
        set(line, { class: Number(line.dataset.step) === at ? "own" : null });
        set(line.querySelector("button"), { "aria-current": Number(line.dataset.step) === at ? "step" : null });
      }
      for (const old of element.querySelectorAll(".at")) old.classList.remove("at");
      const k = places.indexOf(place), own = lines.find((line) => Number(line.dataset.step) === at);
      if (k >= 0 && own) own.children[k + 1].classList.add("at");
      const begins = bring && broughtTo !== own && own?.querySelector("[data-place][title]");
      if (begins) element.scrollLeft = begins.offsetLeft - 2 * own.firstChild.offsetWidth;
      broughtTo = own;
    },
  };
}
