/* breakpoint_toggle: a breakpoint at the displayed decision. */
import { NONE } from "../../runs/runs.js";
import { add, list, numberOf, remove, turn } from "./breakpoints.js";

/** Set a breakpoint there, or remove it; on a row of the list: turn that one on or off. */
export function toggleBreakpoint({ mine, store, chosen }, tell) {
  tell("");
  /** @type {HTMLElement} */
  const line = document.activeElement?.closest?.(".breaks li"), held = line?.dataset.text;
  if (held) return turn(held, !list.find((one) => one.text === held)?.on);
  if (mine.at < 0) return tell(NONE);
  const row = store().steps[mine.at]?.nodes?.[chosen()],
    text = `step == ${mine.at}` + (row && row[0] >= 0 ? ` and token in {${row[2]}}` : "");
  if (numberOf(text)) remove(text), tell(`The breakpoint at “${text}” is gone.`);
  else add(text), tell(`Breakpoint ${numberOf(text)}: ${text}.`);
}
