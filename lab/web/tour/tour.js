/* tour: leads through an example, stop by stop: a step, a node, and what is visible there. */
import { exampleOf, onChange, open, panes, onStep } from "../runs/runs.js";
import { walk } from "./walk.js";

let run = null, wanted = null;
const stops = () => (panes.length === 1 && exampleOf(panes[0].id)?.tour) || [];
const line = walk(stops, (stop) => {
  run = panes[0].id;
  wanted = stop;
  arrive();
});

/** Show an example and begin its tour. */
export function guide(id) {
  if (panes[0]?.id !== id || panes.length > 1) open(id);
  line.go(0);
}
/** Go to the wanted place as soon as its step has come. */
function arrive() {
  const view = panes[0]?.view;
  if (!wanted || panes[0].id !== run || view.store.count <= wanted.step) return;
  const stop = wanted;
  wanted = null;
  line.lead(view, stop);
}

/** The line above the picture: the way in, and the present stop. */
export function tour() {
  onChange(() => line.update(panes[0]?.id === run));
  onStep(arrive);
  return line.element;
}
