/* repeats: the compared runs decoded several more times, so that a ratio of their speeds has an interval. */
import { button, formatCount, h, plural } from "../scope.js";
import { ask } from "../runs/runs.js";

const LOOK = 500; // ms between two requests for active repeats

/** options: runs() that are compared, refuse(error), changed() when ratios come or go. */
export function repeatRuns({ runs, refuse, changed }) {
  let rounds = null, timer = 0;
  const times = h("input", { type: "number", min: 3, max: 40, value: 5, "aria-label": "repeats" });
  const again = button("Repeat", () => repeat());
  const stop = button("Stop",
    () => (again.focus(), ask(`ds/compare/repeat/${rounds.id}/stop`, { method: "POST" }).then(take, refuse)),
    { hidden: "" });
  const note = h("p", { class: "quiet note", role: "status" });
  const element = h("div", { class: "repeat" },
    h("span", { class: "times" }, again, times, h("span", { class: "quiet" }, "times each, in turns, unrecorded")),
    stop);
  const going = () => rounds && !rounds.over;

  function draw() {
    const over = runs().length > 0 && runs().every((run) => run.end);
    again.setAttribute("aria-disabled", !over || !!going());
    again.title = over ? "" : "when all runs are over";
    stop.hidden = !going();
  }
  async function repeat() {
    const body = JSON.stringify({ runs: runs().map((run) => run.id), times: Number(times.value) });
    try {
      take(await ask("ds/compare/repeat", { method: "POST", body }));
    } catch (error) {
      refuse(error);
    }
  }
  /** Take the server's answer on the repeats; ask again while they are active. */
  function take(answer) {
    rounds = answer;
    clearTimeout(timer);
    if (going())
      timer = setTimeout(
        () => ask(`ds/compare/repeat/${answer.id}`).then(take, (error) => ((rounds = null), changed(), refuse(error))),
        LOOK
      );
    note.textContent = said(answer);
    changed();
  }
  function said(answer) {
    const other = answer.runs.some((run) => !run.same_text);
    if (answer.status === "failed") return `The repeats failed: ${answer.message || "the reason is not known"}`;
    if (answer.status === "queued") return "The repeats wait for the runs before them.";
    if (answer.phase) return `Before the first round: ${answer.phase}.`;
    if (answer.over && !answer.rounds && answer.message) return answer.message;
    if (!answer.rounds)
      return answer.over ? "Stopped before the first round was over: there is no ratio."
        : `Repeating: round 1 of ${answer.times}.`;
    return (answer.over ? (answer.rounds < answer.times ? "Stopped: " : "") : "Repeating: ")
      + (answer.over ? plural(answer.rounds, "round")
        : `${formatCount(answer.rounds)} of ${answer.times} rounds`) + ". "
      + "The median of the rounds' ratios of tokens/s, prompt left out; 95 % interval: percentile bootstrap. Every "
      + "call has its run's seed, so the interval is of this machine's noise, not of "
      + `prompts.${other ? " A repeat wrote another text than its run." : ""}`;
  }
  /** Whether the repeats belong to the runs that are compared now. */
  const fits = () => !!rounds && rounds.runs.every(({ run }) => runs().some((one) => one.id === run));
  return {
    element,
    note,
    draw,
    /** The server's last answer on the repeats, or null. */
    rounds: () => rounds,
    /** Their id, if they belong to the runs that are compared. */
    id: () => (fits() ? rounds.id : ""),
    /** The ratio of run b to run a with its interval, if it was repeated. */
    ratio: (a, b) => rounds?.ratios?.[a]?.[b] ?? null,
    /** Show earlier repeats by their id. */
    restore: (id) => id !== rounds?.id && ask(`ds/compare/repeat/${id}`).then(take, refuse),
  };
}
