/* calibrations: the calibrations of decodescope calibrate on this machine, each with its curve. */
import { ask } from "../runs/runs.js";
import { button, formatCount, h } from "../scope.js";
import { calibration } from "../run_form/calibration.js";

/** The list; it is hidden if there are none. */
export function calibrations() {
  const rows = h("tbody"), view = calibration();
  const heads = ["name", "value", "promises", "texts", "models"].map((x) => h("th", { scope: "col" }, x));
  const table = h("table", null, h("thead", null, h("tr", null, heads)), rows);
  const element = h("section", { class: "calibrations", "aria-label": "Calibrations" }, h("header", null,
    h("h1", null, "Calibrations"), h("span", { class: "quiet" }, "knobs that decodescope calibrate set for a risk")),
  h("div", { class: "scroll" }, table), view.element);
  element.hidden = view.element.hidden = true;
  let open = null;

  function row({ name, trouble, part, knob, value, risk, delta, how, promise, eps, n, models }) {
    const opens = button(name, () => {
      open = open === name ? null : name;
      view.element.hidden = !open;
      marked();
      if (open) view.show(open);
    }, { class: "bare", "aria-expanded": "false", "data-name": name });
    const said = trouble ? [h("td", { colspan: 4, class: "wide" }, trouble)]
      : [`${part}.${knob} = ${value}`,
        how ? promise : `${risk} ≤ ${delta}, ${+(100 * (1 - eps)).toFixed(2)} % sure`, formatCount(n),
        Object.values(models).join(", ")].map((x) => h("td", null, x));
    return h("tr", null, h("th", { scope: "row" }, trouble ? name : opens), said);
  }
  const marked = () => rows.querySelectorAll("button").forEach((one) =>
    one.setAttribute("aria-expanded", one.dataset.name === open));
  return {
    element,
    async look() {
      const answer = await ask("ds/calibrations").catch(() => null);
      if (!answer) return;
      element.hidden = !answer.rows.length;
      /** @type {HTMLElement} */
      const focused = document.activeElement?.closest?.(".calibrations button"), held = focused?.dataset.name;
      rows.replaceChildren(...answer.rows.map(row));
      if (held) [...rows.querySelectorAll("button")].find((x) => x.dataset.name === held)?.focus();
      marked();
    },
  };
}
