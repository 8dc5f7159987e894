/* breakpoints: the conditions at which a run stops. They are stored in this browser. A live run pauses at them; in
 * a recorded one they are places to go to. */
import { ask, isOver, onChange, panes } from "../../runs/runs.js";

const KEPT = "decodescope-breakpoints";
export const MOST = 32; // maximum conditions of a run
export const list = []; // {text, on}
export const armed = { trouble: "" }; // why the conditions could not be sent to a live run
const listeners = new Set();

/** Call a listener whenever a breakpoint has come, gone or changed. */
export const onBreakpoints = (listener) => listeners.add(listener);
export const enabledConditions = () => list.filter((one) => one.on);
/** The displayed number of a condition, from 1; 0 if it is not in the list. */
export const numberOf = (text) => list.findIndex((one) => one.text === text) + 1;

function readStored() {
  try {
    const stored = JSON.parse(localStorage.getItem(KEPT));
    return (Array.isArray(stored) ? stored : []).filter((one) => typeof one?.text === "string").slice(0, MOST);
  } catch {
    return []; // forbidden, or not ours
  }
}
function keep() {
  try {
    localStorage.setItem(KEPT, JSON.stringify(list));
  } catch {} // full, or forbidden: then they last as long as the page
  arm();
  listeners.forEach((listener) => listener());
}
/** Add a condition to the list; an existing one is turned on. */
export function add(text) {
  const old = list.find((one) => one.text === text);
  if (old) old.on = true;
  else list.push({ text, on: true });
  keep();
}
export function remove(text) {
  list.splice(0, list.length, ...list.filter((one) => one.text !== text));
  keep();
}
export function turn(text, on) {
  for (const one of list) if (one.text === text) one.on = on;
  keep();
}

const given = new WeakMap(); // pane -> the conditions that its run has, as text
/** Send the active conditions to every live run. */
function arm() {
  if (panes.every(isOver)) armed.trouble = "";
  for (const pane of panes) {
    // `broke` comes with the first word of its state
    if (!pane.id || pane.broke === undefined || isOver(pane)) continue;
    const conditions = enabledConditions().map((one) => one.text), as = JSON.stringify(conditions);
    if (as === (given.get(pane) ?? "[]")) continue;
    given.set(pane, as);
    const said = (sentence) =>
      armed.trouble !== sentence && ((armed.trouble = sentence), listeners.forEach((listener) => listener()));
    ask(`ds/run/${pane.id}/breaks`, { method: "POST", body: JSON.stringify({ conditions }) }).then(() => said(""),
      (error) => {
        if (!isOver(pane)) given.delete(pane), said(error.message);
      });
  }
}
list.push(...readStored().map(({ text, on }) => ({ text, on: on !== false })));
onChange(arm);
