/* trace: one recorded run on a page of a gallery: its picture, its tour, and the place in the address. */
import { mount } from "../scope.js";
import { walk } from "../tour/walk.js";

/** Draw the run of `given` ({messages, views, without, stops}); shade() says light or dark. Call the returned
 *  function to draw it again, light or dark. */
export function drawTrace(given, shade) {
  let begun = false; // the initial place needs no name
  /** Write the displayed place into the address; while it plays, the step where it stops. */
  const named = () => {
    if (!begun || view.playing) return;
    const chosen = view.selection?.step === view.at ? `&node=${view.selection.node}` : "";
    const hash = `#step=${view.at}${chosen}`;
    if (location.hash !== hash) history.replaceState(null, "", hash);
  };
  const view = mount(document.getElementById("scope"), {
    ...given, theme: shade(), label: "recorded run", onSeek: named, onSelect: named, onPlay: named });
  for (const message of given.messages) view.push(message);

  const tour = walk(() => given.stops, (stop) => stop && tour.lead(view, stop));
  tour.update(false);
  document.getElementById("tour").replaceWith(tour.element);

  /** Go to the step and the node in the address; a step that the run does not have is ignored. */
  const arrive = () => {
    const [step, node] = ["step", "node"].map((name) => {
      const digits = new RegExp(`[#&]${name}=([0-9]{1,7})(?:&|$)`).exec(location.hash)?.[1];
      return digits === undefined ? null : Number(digits);
    });
    if (step === null || step >= view.store.count) return false;
    if (node !== null) view.select({ step, node });
    else view.seek(step);
    return true;
  };
  addEventListener("hashchange", arrive);
  if (!arrive()) view.seek(0);
  begun = true;
  return () => view.theme(shade());
}
