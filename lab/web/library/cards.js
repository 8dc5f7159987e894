/* cards: the examples, each opened by its card, with its guided tour and its button for Compare. */
import { button, h, plural } from "../scope.js";
import { exampleOf } from "../runs/runs.js";
import { guide } from "../tour/tour.js";
import { bars } from "./bars.js";

/** show(run); choice: of runs to compare. */
export function cards({ show, choice }) {
  const element = h("ul", { class: "examples" });
  let drawn = "";

  function card(row, most) {
    const words = [h("span", { class: "bars" }, row.bars?.length ? bars(row.bars, most, element) : ""),
      h("b", null, row.title), h("span", { class: "about" }, row.about),
      h("small", null, `${plural(row.steps ?? 0, "step")}, ${row.called || ""}`)];
    const props = { class: "card", "aria-label": `open the example ${row.title}` };
    const opening = button(words, () => show(row.run), props);
    const stops = exampleOf(row.run)?.tour?.length,
      leading = stops ? button(`Guided tour, ${stops} stops`, () => (show(row.run), guide(row.run))) : null;
    return h("li", { "data-run": row.run }, opening, h("span", { class: "ways" }, leading, choice.button(row)));
  }
  return {
    element,
    /** most: as `bars` takes it. */
    draw(rows, most) {
      const as = JSON.stringify([rows, choice.runs()]), was = document.activeElement;
      if (as === drawn) return;
      const on = element.contains(was)
        && `[data-run="${was.closest("li").dataset.run}"] .${was.matches(".compare") ? "compare" : "card"}`;
      drawn = as;
      element.replaceChildren(...rows.map((row) => card(row, most)));
      if (on) element.querySelector(on)?.focus();
    },
    /** The colours have changed: draw again the next time. */
    restyle: () => (drawn = ""),
  };
}
