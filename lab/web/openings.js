/* openings: texts that the shipped models do well, those of the examples, to be put into the controls. */
import { button, h } from "./scope.js";
import { heard, shown } from "./runs.js";

const WORDS = 5; // of a prompt, on its button

/** A row of buttons, one for each prompt of the examples. */
export function openings() {
  const element = h("div", { class: "ds-prompts", role: "group", "aria-label": "prompts to begin with" });
  const use = ({ prompt, chat }) =>
    shown.put?.(JSON.stringify({ ...JSON.parse(shown.settings), prompt, chat: !!chat }));
  const brief = (prompt) => {
    const words = prompt.split(/\s+/);
    return words.slice(0, WORDS).join(" ") + (words.length > WORDS ? "…" : "");
  };
  let filled = null;
  heard(() => {
    if (filled === shown.examples) return;
    filled = shown.examples;
    const all = filled.map((x) => JSON.parse(x.settings)), first = new Map(all.map((x) => [x.prompt, x])),
      texts = [...first.keys()].filter((text) => ![...first.keys()].some((x) => x !== text && x.startsWith(text)));
    element.replaceChildren(...texts.map((text) =>
      button(brief(text), () => shown.settings && use(first.get(text)), { class: null, title: text })
    ));
  });
  return element;
}
