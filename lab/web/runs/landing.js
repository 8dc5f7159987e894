/* landing: opens the step, or a node of it, that an address names: #run=...&step=17&node=9. */
import { panes, onStep } from "./runs.js";

let wanted = null, last = "";
/** A number in the address; null if there is none. */
const addressNumber = (name) => {
  const number = new RegExp(`(?:^#|&)${name}=([0-9]{1,7})(?:&|$)`).exec(location.hash)?.[1];
  return number === undefined ? null : Number(number);
};

function read() {
  const step = addressNumber("step"), run = /(?:^#|&)run=([0-9a-f]{16})(?:&|$)/.exec(location.hash)?.[1];
  const node = addressNumber("node"), as = `${run} ${step} ${node}`;
  if (as === last) return; // only the page has changed, and the reader may be elsewhere by now
  last = as;
  wanted = step === null || !run ? null : { run, step, node };
  openStep();
}

/** Go there as soon as the step has come; a step that the run does not have is ignored. */
function openStep() {
  const view = panes[0]?.view, store = view?.store;
  if (!wanted || panes[0].id !== wanted.run) return;
  const { step, node } = wanted;
  if (store.count <= step) return void (store.end && (wanted = null));
  wanted = null;
  if (node === null) view.seek(step);
  else view.select({ step, node });
}

/** Watch the address and the steps. */
export function followStepLinks() {
  onStep(openStep);
  window.addEventListener("hashchange", read);
  read();
}

/** The address of the displayed place: run, step and chosen node. */
export function stepLink() {
  const pane = panes[0], view = pane?.view, chosen = view?.selection;
  const parts = [`run=${pane.id}`, ...(panes[1] ? [`with=${panes[1].id}`] : []),
    ...(view.at >= 0 ? [`step=${view.at}`] : []),
    ...(chosen?.step === view.at && chosen.node !== null ? [`node=${chosen.node}`] : [])];
  return `${location.origin}${location.pathname}#${parts.join("&")}`;
}
