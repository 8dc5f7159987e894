/* toolbar: the reader's actions on the run, as buttons and as keys. */
import { button, h } from "../scope.js";

const KEYS = [
  ["F8", "c", "continue to the next breakpoint; with Shift back"],
  ["F10", "n", "next step"],
  ["F11", "d", "next decision; with Shift the one before"],
  ["F9", "b", "breakpoint at this decision"],
];
/** The keys as the view of a run lists them: [keys, what they do]. */
export const keys = KEYS.map(([key, letter, word]) => [`${key} ${letter}`, word]);

/** The keys as a part of the page. */
export const keyList = () =>
  h("section", { class: "keys" }, h("header", null, h("h2", null, "Keys")),
    h("dl", null,
      KEYS.map(([key, letter, word]) =>
        h("div", null, h("dt", null, word), h("dd", null, h("kbd", null, key), " ", h("kbd", null, letter)))
      )));

/** onward(way), next(), decide(way), mark(): the actions; enable(yes): whether there is a run for them. */
export function toolbar({ onward, next, decide, mark }) {
  const all = [
    button("Continue", () => onward(1), { class: "ds-button go", title: "F8, c" }),
    button("Back", () => onward(-1), { class: "ds-button back", title: "Shift+F8, C" }),
    button("Step", () => next(), { title: "F10, n" }),
    button("Decision", () => decide(1), { title: "F11, d" }),
    button("Decision before", () => decide(-1), { class: "ds-button before", title: "Shift+F11, D" }),
    button("Break here", () => mark(), { class: "ds-button here", title: "F9, b" }),
  ];
  const acts = { F8: () => onward(1), c: () => onward(1), "Shift+F8": () => onward(-1), C: () => onward(-1), F10: next,
    n: next, F11: () => decide(1), d: () => decide(1), "Shift+F11": () => decide(-1), D: () => decide(-1), F9: mark,
    b: mark };
  function keyed(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey
      || event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]")) return;
    const act = acts[event.shiftKey && /^F\d/.test(event.key) ? "Shift+" + event.key : event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
  return {
    element: h("div", { class: "ways", role: "group", "aria-label": "walk" }, all),
    keyed,
    enable: (yes) => all.forEach((one) => one.setAttribute("aria-disabled", !yes)),
  };
}
