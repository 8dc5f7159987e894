/* status_line: the line below a form that shows the result of its input. */
import { h } from "../scope.js";

/** {element, say(sentence, bad)}; bad: it was refused. */
export function statusLine() {
  const element = h("p", { class: "said", role: "status" });
  const say = (sentence, bad = false) =>
    ((element.className = bad ? "said ds-refusal" : "said quiet"),
      element.textContent !== sentence && (element.textContent = sentence));
  return { element, say };
}
