/* example_prompts: texts that the chosen model writes well after, to be put into the controls. The server chooses them
 * by the model. */
import { button, h } from "../scope.js";
import { shown } from "../runs/runs.js";

const WORDS = 5; // of a prompt, on its button
const FIRST = 6; // prompts that are shown at once

const begins = (prompt) => {
  const words = prompt.split(/\s+/);
  return words.slice(0, WORDS).join(" ") + (words.length > WORDS ? "…" : "");
};
/** The beginning of a prompt, or its end if another one begins in the same way. */
const brief = (prompt, all) => all.some((x) => x !== prompt && begins(x) === begins(prompt))
  ? `…${prompt.split(/\s+/).slice(-WORDS).join(" ")}` : begins(prompt);

const element = h("div", { class: "ds-prompts", role: "group", "aria-label": "prompts to begin with" });
let drawn = "";

/** The row of buttons, one for each prompt. */
export const examplePrompts = () => element;

/** Offer these prompts, [{prompt, chat}]: the first ones, and the others behind a button. */
export function offerPrompts(prompts) {
  const text = JSON.stringify(prompts);
  if (text === drawn) return;
  drawn = text;
  const use = ({ prompt, chat }) =>
    shown.settings && shown.put?.(JSON.stringify({ ...JSON.parse(shown.settings), prompt, chat: !!chat }));
  const texts = prompts.map((x) => x.prompt);
  const all = prompts.map((one) =>
    button(brief(one.prompt, texts), () => use(one), { class: null, title: one.prompt }));
  const more = button("more", () => {
    more.replaceWith(...all.slice(FIRST));
    all[FIRST].focus();
  }, { class: "more", "aria-expanded": "false", title: "more prompts for this model" });
  element.replaceChildren(...all.slice(0, FIRST), ...(all.length > FIRST ? [more] : []));
}
