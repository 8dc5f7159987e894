/* slider: a number that begins at the run's value, and can be reset to it. */
import { button, h } from "../../scope.js";

/** The label of the choice that changes nothing. */
export const SAME = "as recorded";

/** word: its name; range: from 0 to `high`, or to the recorded value if that is larger, in steps of `fine`;
 *  asks(): called when it is moved. */
export function slider(word, high, fine, asks) {
  const box = h("input", { type: "range", min: 0, max: high, step: fine, value: 0, "aria-label": word }), was = h("s"),
    now = h("b");
  const mark = h("i", { class: "was", "aria-hidden": "true" }),
    undo = button("reset", () => ((slide.value = null), box.focus(), asks()), {
      class: "small",
      "aria-label": `${word} ${SAME}`,
    });
  const element = h("div", { class: "slide" }, h("span", null, word), h("span", { class: "track" }, mark, box),
    h("output", null, was, now), undo);
  const slide = {
    element,
    value: null, // the chosen value; null: as recorded
    draw(recorded) {
      element.hidden = recorded === null || recorded === undefined;
      if (element.hidden) slide.value = null;
      if (element.hidden) return;
      box.max = Math.max(high, recorded);
      const at = slide.value ?? recorded;
      if (Number(box.value) !== at) box.value = at;
      was.textContent = slide.value === null ? "" : recorded.toFixed(3);
      now.textContent = at.toFixed(3);
      undo.hidden = slide.value === null;
      mark.style.left = `calc(8px + (100% - 16px) * ${recorded / Number(box.max)})`;
      box.setAttribute("aria-valuetext",
        at.toFixed(3) + (slide.value === null ? `, ${SAME}` : `, recorded ${recorded.toFixed(3)}`));
    },
  };
  box.addEventListener("input", () => ((slide.value = Number(box.value)), asks()));
  return slide;
}
