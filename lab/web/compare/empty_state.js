/* empty_state: the page content while fewer than two runs are compared: the one that is chosen, and two examples
 * to begin with. */
import { button, h } from "../scope.js";
import { ask, exampleOf, paneTitle, shown } from "../runs/runs.js";
import { LETTERS } from "./letters.js";

/** Two examples with the same prompt, seed and sampling, so that their speeds and texts can be compared. */
function similarExamples() {
  const all = shown.examples,
    as = (x) => (({ prompt, seed, names }) => JSON.stringify([prompt, seed, names?.sampler]))(JSON.parse(x.settings));
  const first = all.find((x) => all.some((y) => y !== x && as(x) === as(y))) || all[0],
    second = all.find((y) => y !== first && as(y) === as(first)) || all.find((y) => y !== first);
  return [first, second].filter(Boolean);
}

/** The title of a run, as a text; for a run that was not drawn yet it is requested from the server. */
function titleOf(run) {
  const words = new Text(" "), say = () => (words.data = ` ${paneTitle(run)} `);
  if (run.view || run.named || exampleOf(run.id)) say();
  else ask(`ds/run/${run.id}`).then(({ named }) => (run.named = named), () => {}).then(say); // gone: it has a number
  return words;
}

/** choose(ids): compare these. */
export function emptyState({ choose }) {
  const chips = h("ul", { class: "chips" }),
    examples = button("Compare two examples", () => choose(similarExamples().map((x) => x.run)),
      { class: "ds-button go" });
  const element = h("section", { class: "none" }, h("h2", null, "Two to four runs side by side."),
    h("p", { class: "quiet" },
      "Live runs, recorded ones and examples in any mixture: one slider moves all of them, by token or by clock. The "
        + "examples need no model."), chips, examples);
  return {
    element,
    /** The runs that are chosen so far. */
    draw: (runs) =>
      chips.replaceChildren(...runs.map((run, k) =>
        h("li", null, h("b", null, LETTERS[k]), titleOf(run),
          button("Remove", () => choose([]), { "aria-label": `remove run ${LETTERS[k]}` })))),
  };
}
