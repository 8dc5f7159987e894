/* given: what stands under the prompt: the text that the model is given in its place, where a chat template puts it,
 * and prompts to begin with. */
import { h } from "./scope.js";
import { openings } from "./openings.js";

const text = h("pre", { tabindex: 0, "aria-label": "What the model is given" });
const whole = h("div", { class: "ds-given", hidden: "" }, h("small", null, "The model is given"), text);

/** Its place. */
export const under = (host) => host.replaceChildren(whole, openings());

/** Tell the text that the model is given; "": it is the prompt itself. */
export function given(words) {
  whole.hidden = !words;
  if (text.textContent !== words) text.textContent = words;
}
