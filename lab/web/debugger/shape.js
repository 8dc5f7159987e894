/* shape: the drafter's own numbers, which a fork may change: another depth, tree or draft. */
import { h } from "../scope.js";
import { values } from "./knobs.js";

/** changed(): told when one of them is another. */
export function shaping(changed) {
  const knobs = h("div", { class: "knobs" }),
    element = h("details", { class: "shape" }, h("summary", null, "Another depth, tree or draft"), knobs);
  let own = {};
  return {
    element,
    /** The numbers of the run whose header this is. */
    fill(head) {
      own = head?.method?.drafter || {};
      const numbers = Object.entries(own).filter(([, x]) => typeof x === "number");
      element.hidden = !numbers.length;
      knobs.replaceChildren(...numbers.map(([word, x]) => {
        const box = h("input", { type: "number", min: 0, step: "any", value: x, "data-name": word });
        box.addEventListener("input", changed);
        return h("label", null, h("span", null, word.replaceAll("_", " ")), box);
      }));
    },
    /** What they were changed to, as parts of a change; empty: nothing. */
    asked() {
      const other = Object.entries(values(knobs)).filter(([word, x]) => x !== own[word]);
      return other.length ? { drafter: Object.fromEntries(other) } : {};
    },
  };
}
