/* tour: leads through an example, stop by stop: a step, a node, and what is to be seen there. */
import { example, heard, open, panes, stepped } from "./runs.js";
import { walk } from "./walk.js";

let run = null, wanted = null;
const stops = () => (panes.length === 1 && example(panes[0].id)?.tour) || [];
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
  heard(() => line.update(panes[0]?.id === run));
  stepped(arrive);
  return line.element;
}
