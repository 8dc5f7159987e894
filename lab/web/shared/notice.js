/* notice: the line of a page that reports what was done, with next actions, or why it was not. */
import { h } from "../scope.js";
import { errorText } from "../runs/runs.js";

/** Its element, say(words, ...ways) and refuse(error). */
export function createNotice() {
  const element = h("p", { class: "told", role: "status" });
  return {
    element,
    say(words, ...ways) {
      element.className = "told";
      element.replaceChildren(words, ...ways);
    },
    refuse(error) {
      element.className = "told ds-refusal";
      element.replaceChildren(errorText(error));
    },
  };
}
