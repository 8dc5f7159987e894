/* trace: one recorded run on a page of a gallery: its picture, its tour, and the place that the address names. */
import { mount } from "../scope.js";
import { walk } from "../walk.js";

const given = JSON.parse(document.getElementById("data").textContent); // {messages, views, without, stops}
let begun = false; // what is shown at first needs no name
const shade = () => (document.documentElement.classList.contains("dark") ? "dark" : "light");
const view = mount(document.getElementById("scope"), {
  ...given, theme: shade(), label: "recorded run", onSeek: named, onSelect: named, onPlay: named });
new MutationObserver(() => view.theme(shade())).observe(document.documentElement, { attributeFilter: ["class"] });
for (const message of given.messages) view.push(message);

const tour = walk(() => given.stops, (stop) => stop && tour.lead(view, stop));
tour.update(false);
document.getElementById("tour").replaceWith(tour.element);

/** Go to the step and the node that the address names; a step that the run has not is passed over. */
function arrive() {
  const [step, node] = ["step", "node"].map((name) => {
    const digits = new RegExp(`[#&]${name}=([0-9]{1,7})(?:&|$)`).exec(location.hash)?.[1];
    return digits === undefined ? null : Number(digits);
  });
  if (step === null || step >= view.store.count) return false;
  if (node !== null) view.select({ step, node });
  else view.seek(step);
  return true;
}
/** Name what is shown in the address; while it plays, the step where it stops. */
function named() {
  if (!begun || view.playing) return;
  const chosen = view.selection?.step === view.at ? `&node=${view.selection.node}` : "";
  const hash = `#step=${view.at}${chosen}`;
  if (location.hash !== hash) history.replaceState(null, "", hash);
}

addEventListener("hashchange", arrive);
if (!arrive()) view.seek(0);
begun = true;
