/* phase: the text over the picture of a run before its first step: how many runs are before it, what it loads, how
 * far its prompt is read, and for how long. */
import { formatCount, plural } from "../scope.js";

const TICK = 1000; // ms between two looks at the clock
const clocks = new WeakMap(); // view -> the timer that updates its seconds

/** The activity of a run in this state, in words; "" if its steps show it. */
function phaseText({ status, steps, ahead, doing: now }, whose) {
  if (status === "queued") return ahead ? `${plural(ahead, "run")} before ${whose}` : "";
  if (status !== "running" || steps) return "";
  if (now?.phase) return now.phase[0].toUpperCase() + now.phase.slice(1);
  if (now?.read === undefined) return "Reading the prompt";
  return `Reading the prompt: ${formatCount(now.read)} of ${formatCount(now.of)} tokens`
    + (now.role === "target" ? "" : `, ${now.role} model`);
}

/** Show it for a run's state as the server sends it; without a state remove it. */
export function phase(view, state = null, whose = "this one") {
  clearInterval(clocks.get(view));
  clocks.delete(view);
  const words = state ? phaseText(state, whose) : "", since = performance.now() - TICK * (state?.seconds || 0);
  const tell = () => view.note(`${words}, ${Math.round((performance.now() - since) / TICK)} s`);
  if (!words || state.status === "queued") return view.note(words);
  clocks.set(view, setInterval(tell, TICK));
  tell();
}
