/* selection: the runs that are chosen for comparison: their letters, their description, and the way to Compare. */
import { button } from "../scope.js";
import { fragment, panel } from "../shared/address.js";
import { FEWEST, LETTERS, MOST } from "../compare/letters.js";
import { listedTitle } from "./trace_list.js";

/** find(run): its row, or nothing; say(words, ...ways); changed(): the choice has changed; left(): none is chosen,
 *  by "Not now". */
export function createSelection({ find, say, changed, left }) {
  /** @type {string[]} */
  let chosen = [];

  /** Add a run to the comparison, or remove it. */
  function compare(run) {
    if (chosen.length >= MOST && !chosen.includes(run))
      return choose(chosen, `At most ${MOST} runs are shown side by side: take one out first, or open these. `);
    choose(chosen.includes(run) ? chosen.filter((one) => one !== run) : [...chosen, run]);
  }
  function choose(runs, before = "") {
    chosen = runs;
    changed();
    const names = runs.map((run, k) => `${LETTERS[k]}: ${listedTitle(find(run))}`).join(", "),
      more = runs.length < MOST ? ", or press Compare at another trace or example" : "";
    const opening = button(`Compare ${runs.length} runs`, beside, { class: "ds-button go" }),
      not = button("Not now", () => (choose([]), left()));
    if (!runs.length) say("");
    else if (runs.length < FEWEST)
      say(`Compare ${listedTitle(find(runs[0]))} with: press Compare at another trace or example.`, not);
    else say(`${before}${names}. Open them${more}.`, opening, not);
  }
  /** Open the chosen runs in Compare. */
  function beside() {
    const others = location.hash.slice(1).split("&").filter((part) =>
        part.includes("=") && !/^(runs|at|align|base)=/.test(part)
      ), runs = `runs=${chosen}`;
    choose([]);
    location.hash = fragment([...others, runs], "compare");
    setTimeout(() => panel()?.focus({ preventScroll: true })); // after the change of the page
  }
  /** Keep the runs for which `wanted` holds. */
  const keep = (/** @type {(run: string) => boolean} */ wanted) =>
    chosen.every(wanted) || choose(chosen.filter(wanted));
  return {
    runs: () => chosen,
    keep,
    /** The button that adds a run to the comparison; it shows the run's letter there. */
    button(row) {
      const k = chosen.indexOf(row.run);
      return button(LETTERS[k] ?? "Compare", () => compare(row.run), { class: "ds-button compare",
        "aria-pressed": String(k >= 0), "aria-label": `compare ${listedTitle(row)}` });
    },
  };
}
