/* Model link: the pane of a run's models, closed until somebody opens it; then its part is fetched. */
import { h, say, see } from "../shared/elements.js";
import { extra } from "../shared/extras.js";
import { formatShort, size } from "../shared/numbers.js";

/** The description of a model, in a line. */
const inOneLine = ({ name, params, bytes, dense }) => `${name}, ${formatShort(params)} parameters, ${size(bytes)}`
  + (bytes < dense ? ` instead of ${size(dense)}` : "");

/** For a place that has the part, or can fetch it; it is open for a model that was made from another. */
export function modelLink(context, want) {
  const about = h("span", { class: "quiet" }), lacks = h("p", { class: "quiet" }, "This trace does not record what its "
    + "model is made of.");
  const door = h("details", null, h("summary", null, h("h2", null, "Model"), about));
  const element = h("section", { class: "model-pane", "aria-label": "model" }, door, lacks);
  let head = null, view = null;
  door.addEventListener("toggle", () => door.open && (want("model"), context.redraw()));
  return {
    element,
    look: () => door.open && view?.look(),
    restyle: () => view?.restyle(),
    draw(store) {
      const models = store.head?.built ?? {}, { target } = models;
      see(element, store.head);
      if (store.head !== head) {
        head = store.head;
        see(door, target), see(lacks, !target);
        if (target) say(about, inOneLine(target));
        door.open = Object.values(models).some((one) => one.changed);
      }
      if (!target || !door.open || !extra("model")) return;
      if (!view) door.append((view = extra("model").modelView(context)).element);
      view.draw(store);
    },
  };
}
