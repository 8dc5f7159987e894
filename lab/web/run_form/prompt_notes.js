/* prompt_notes: the place under the prompt: its text in the chat template, notes on its special tokens, and
 * example prompts. */
import { button, h } from "../scope.js";
import { shown } from "../runs/runs.js";
import { examplePrompts } from "./example_prompts.js";

const text = h("pre", { tabindex: 0, "aria-label": "What the model is given" });
const whole = h("div", { class: "ds-given", hidden: "" }, h("small", null, "The model is given"), text);

const remarks = h("ul", { class: "ds-remarks", role: "status", hidden: "" });

const talk = h("p", { class: "ds-talk", role: "status", hidden: "" });
const plain = new Set(); // prompts that look like messages and are to be read as text

/** Its place. */
export const placePromptNotes = (host) => host.replaceChildren(talk, whole, remarks, examplePrompts());

/** Say that the prompt is read as messages. JSON that holds messages becomes that by itself, once. */
export function showConversation(value) {
  const messages = value?.talk || "", settings = JSON.parse(value?.keep || shown.settings || "{}");
  const read = (kind) => shown.put?.(JSON.stringify({ ...settings, prompt_kind: kind, chat: false }));
  const keepText = () => (plain.add(settings.prompt), read("text"));
  const way = (words, act) => button(words, act, { class: "ds-button" });
  talk.hidden = !messages;
  if (!messages) return;
  if (value.kind === "messages")
    talk.replaceChildren(`Read as a conversation: ${messages}. `, way("Read it as text", keepText));
  else if (plain.has(settings.prompt))
    talk.replaceChildren(`Read as text. It holds ${messages}. `, way("Read it as messages", () => read("messages")));
  else read("messages");
}

/** Show the text that the model is given, "" if it is the prompt itself, and the notes on it. */
export function showPromptNotes(words, notes) {
  whole.hidden = !words;
  if (text.textContent !== words) text.textContent = words;
  remarks.hidden = !notes.length;
  const lines = notes.map((x) => h("li", null, x));
  if (remarks.textContent !== lines.map((x) => x.textContent).join("")) remarks.replaceChildren(...lines);
}
