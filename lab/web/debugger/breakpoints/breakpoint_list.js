/* breakpoint_list: the breakpoints on the page: each can be turned off, gone to and removed. */
import { button, h } from "../../scope.js";
import { isOver } from "../../runs/runs.js";
import { armed, onBreakpoints, list, remove, turn } from "./breakpoints.js";
import { conditionForm } from "./condition.js";
import { hitCounts } from "./hit_counts.js";

/** next(text): go to the next hit of one condition */
export function breakpointList(next) {
  const rows = h("ol", { class: "list" }), lead = h("span", { class: "quiet" });
  const form = conditionForm(), counts = hitCounts(() => draw(last.pane, last.at));
  const element = h("section", { class: "breaks", "aria-label": "Breakpoints" },
    h("header", null, h("h2", null, "Breakpoints"), lead), rows, form.elements);
  let last = {}, drawnAs = "";

  function row({ text, on }, i) {
    const tick = h("input", { type: "checkbox" });
    tick.checked = on;
    tick.addEventListener("change", () => turn(text, tick.checked));
    const to = button("", () => next(text), { class: "bare hits", "aria-label": `next hit of ${text}` });
    const gone = button("×", () => {
      const after = rows.children[i + 1] ? i : i - 1;
      remove(text);
      const near = rows.children[after]?.querySelector("input");
      near ? near.focus() : form.focus();
    }, { class: "bare gone", "aria-label": `remove the breakpoint ${text}`, title: "remove" });
    return h("li", { "data-text": text },
      h("label", null, tick, h("span", { class: "n" }, String(i + 1)), h("code", null, text)), to, gone);
  }
  /** The rows of another list; the focus stays where it was. */
  function fill() {
    const held = rows.contains(document.activeElement) && document.activeElement.closest("li").dataset.text,
      part = held && document.activeElement.className;
    rows.replaceChildren(...list.map(row));
    if (held)
      [...rows.children].find((li) => li.dataset.text === held)?.querySelector(
        part ? "." + part.split(" ").at(-1) : "input"
      )?.focus();
  }
  function draw(pane, at) {
    last = { pane, at };
    const as = JSON.stringify(list);
    if (as !== drawnAs) fill(), (drawnAs = as);
    lead.textContent = !list.length ? "none yet" : isOver(pane) || !pane.id ? "" : "they pause the run";
    [...rows.children].forEach((li) => {
      const [word, trouble] = counts.words(li.dataset.text, pane, at), to = li.querySelector(".hits");
      li.classList.toggle("here", word.startsWith("here"));
      li.classList.toggle("off", !li.querySelector("input").checked);
      to.hidden = !word;
      if (to.textContent !== word) to.textContent = word;
      to.title = trouble;
    });
    if (armed.trouble) form.say(`The run could not take the breakpoints: ${armed.trouble}`, true);
    counts.count(pane);
  }
  onBreakpoints(() => last.pane && draw(last.pane, last.at));
  return { element, draw, known: form.known };
}
