/* panels: areas of the page that a button opens and Escape closes; at most one is open. */
import { button } from "../scope.js";

/** list: [[word of its button, panel], ...]; a panel is {element, shown(focus)}. */
export function panels(list) {
  const buttons = list.map(([word, panel]) => {
    panel.element.hidden = true;
    return button(word, () => show(panel.element.hidden ? panel : null), { "aria-expanded": "false" });
  });
  /** Open one of them, or none. */
  function show(panel, focus = true) {
    list.forEach(([, one], k) => {
      one.element.hidden = one !== panel;
      buttons[k].setAttribute("aria-expanded", one === panel);
    });
    panel?.shown(focus);
  }
  list.forEach(([, { element }], k) =>
    element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      show(null);
      buttons[k].focus();
    }));
  return { buttons, elements: list.map(([, { element }]) => element), show };
}
