/* openings: texts that the shipped models do well, those of the examples, to be put into the controls. */
import { button, h } from "./scope.js";
import { heard, shown } from "./runs.js";

const WORDS = 5; // of a prompt, on its button

/** A row of buttons, one for each prompt of the examples. */
export function openings() {
  const element = h("div", { class: "ds-prompts", role: "group", "aria-label": "prompts to begin with" });
  const use = (prompt) => shown.put?.(JSON.stringify({ ...JSON.parse(shown.settings), prompt }));
  const brief = (prompt) => {
    const words = prompt.split(/\s+/).filter((word) => !word.startsWith("<|"));
    return words.slice(0, WORDS).join(" ") + (words.length > WORDS ? "…" : "");
  };
  let filled = null;
  heard(() => {
    if (filled === shown.examples) return;
    filled = shown.examples;
    const all = [...new Set(filled.map((x) => JSON.parse(x.settings).prompt))],
      texts = all.filter((text) => !all.some((other) => other !== text && other.startsWith(text)));
    element.replaceChildren(...texts.map((text) =>
      button(brief(text), () => shown.settings && use(text), { class: null, title: text })
    ));
  });
  return element;
}
