/* notice: the line of a page that reports what was done, with next actions, or why it was not. */
import { button, h } from "../scope.js";
import { errorText } from "../runs/runs.js";

/** A button that opens the dialog for a missing model, if it can be fetched; none without its name. */
export function offerButton(name) {
  const open = () => import("../run_form/get_model.js").then(({ openGetModel }) => openGetModel(name));
  return name ? [" ", button("Get it…", open, { class: "ds-button" })] : [];
}

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
      element.replaceChildren(errorText(error), ...offerButton(error.offer));
    },
  };
}
