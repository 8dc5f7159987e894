/* prompt_notes: the place under the prompt: its text in the chat template, notes on its special tokens, and
 * example prompts. */
import { h } from "../scope.js";
import { examplePrompts } from "./example_prompts.js";

const text = h("pre", { tabindex: 0, "aria-label": "What the model is given" });
const whole = h("div", { class: "ds-given", hidden: "" }, h("small", null, "The model is given"), text);

const remarks = h("ul", { class: "ds-remarks", role: "status", hidden: "" });

/** Its place. */
export const placePromptNotes = (host) => host.replaceChildren(whole, remarks, examplePrompts());

/** Show the text that the model is given, "" if it is the prompt itself, and the notes on it. */
export function showPromptNotes(words, notes) {
  whole.hidden = !words;
  if (text.textContent !== words) text.textContent = words;
  remarks.hidden = !notes.length;
  const lines = notes.map((x) => h("li", null, x));
  if (remarks.textContent !== lines.map((x) => x.textContent).join("")) remarks.replaceChildren(...lines);
}
