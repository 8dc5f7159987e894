/* active_runs: the unfinished runs of this machine, of all visitors, with the actions on each. */
import { button, h, plural } from "../scope.js";
import { ask, runTitle } from "./runs.js";

const LOOK = 2000; // ms between two looks
const WORDS = { queued: "waits", running: "is running", paused: "is paused" };

/** A list that is shown while `wanted()` and there are such runs; `said` is its heading, `those` chooses the runs,
 *  and show(id) opens one.
 *  @param {{said: string, wanted: () => boolean, show: (id: string) => void, those?: (row: any) => boolean}} how */
export function activeRuns({ said, wanted, show, those = () => true }) {
  const list = h("ul");
  const element = h("section", { class: "ds-trouble ds-going", "aria-label": said, hidden: "" },
    h("p", null, said), list);
  let timer = 0, drawn = "";

  function row({ run, status, steps, named }) {
    const act = (word, action) => {
      const done = () => ask(`ds/run/${run}/${action}`, { method: "POST" }).catch(() => {}).then(read);
      const label = `${word}, ${runTitle({ named, run })}, run ${run.slice(0, 8)}`;
      return button(word, action ? done : () => show(run), { "aria-label": label });
    };
    const state = `${WORDS[status] || status}${steps ? ` after ${plural(steps, "step")}` : ""}`;
    return h("li", { "data-run": run },
      h("span", null, h("b", null, runTitle({ named, run })), ` ${state}`),
      act("Show it"), status === "paused" ? act("Go on with it", "resume") : null, act("Stop it", "stop"));
  }
  function draw(rows) {
    const now = JSON.stringify(rows);
    element.hidden = !rows.length;
    if (now === drawn) return;
    drawn = now;
    const held = list.contains(document.activeElement) && document.activeElement.getAttribute("aria-label");
    list.replaceChildren(...rows.map(row));
    if (held) [...list.querySelectorAll("button")].find((one) => one.getAttribute("aria-label") === held)?.focus();
  }
  async function read() {
    clearTimeout(timer);
    timer = 0;
    if (!wanted()) return draw([]);
    const { rows } = await ask("ds/going").catch(() => ({ rows: [] }));
    draw(wanted() ? rows.filter(those) : []);
    timer = wanted() ? setTimeout(read, LOOK) : 0;
  }
  return {
    element,
    /** Whether it is wanted may have changed. */
    look: () => (!wanted() ? draw([]) : (timer ||= setTimeout(read, LOOK / 8))),
  };
}
