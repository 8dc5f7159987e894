/* example_prompts: texts that the shipped models write well, those of the examples, to be put into the controls. */
import { button, h } from "../scope.js";
import { onChange, shown } from "../runs/runs.js";

const WORDS = 5; // of a prompt, on its button
const target = ({ models }) => models?.target ?? "";

/** A row of buttons, one for each prompt of the examples. */
export function examplePrompts() {
  const element = h("div", { class: "ds-prompts", role: "group", "aria-label": "prompts to begin with" });
  let own = new Set(); // models that only some of the prompts are for
  /** A prompt for another model than the others comes with that model and its method. So does one of the others if
   *  such a model is chosen. */
  function use(one) {
    const { names, settings, models, prompt, chat } = one, now = JSON.parse(shown.settings);
    const other = target(now) !== target(one) && (own.has(target(now)) || own.has(target(one)));
    shown.put?.(JSON.stringify({ ...now, ...(other ? { names, settings, models } : {}), prompt, chat: !!chat }));
  }
  const begins = (prompt) => {
    const words = prompt.split(/\s+/);
    return words.slice(0, WORDS).join(" ") + (words.length > WORDS ? "…" : "");
  };
  /** The beginning of a prompt, or its end if another one begins in the same way. */
  const brief = (prompt, all) => all.some((x) => x !== prompt && begins(x) === begins(prompt))
    ? `…${prompt.split(/\s+/).slice(-WORDS).join(" ")}` : begins(prompt);
  let filled = null;
  onChange(() => {
    if (filled === shown.examples) return;
    filled = shown.examples;
    const all = filled.map((x) => JSON.parse(x.settings)), first = new Map();
    for (const one of all) if (!first.has(one.prompt)) first.set(one.prompt, one);
    const texts = [...first.keys()].filter((text) => ![...first.keys()].some((x) => x !== text && x.startsWith(text)));
    own = new Set(all.map(target).filter((model) => model !== target(all[0])));
    element.replaceChildren(...texts.map((text) => {
      const model = own.has(target(first.get(text))) ? target(first.get(text)) : "";
      const said = [brief(text, texts), model && h("small", null, ` ${model}`)];
      return button(said, () => shown.settings && use(first.get(text)),
        { class: null, title: model ? `${text}\n(for ${model}: chosen with it, and with its method)` : text });
    }));
  });
  return element;
}
