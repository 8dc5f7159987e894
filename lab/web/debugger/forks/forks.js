/* forks: runs that continue from a step of the displayed run, with something changed. */
import { h } from "../../scope.js";
import { ask, errorText } from "../../runs/runs.js";
import { branchList, compare } from "./branches.js";
import { forcedText, settingsText } from "./changes.js";
import { forcedVerdicts } from "./forced_verdicts.js";
import { drafterKnobs } from "./drafter_knobs.js";
import { replacement } from "./replacement.js";

const LONGEST = 80; // characters of a name

/** The form that forks the run, and the list of its forks. change(): the changes of the fork, as settings */
export function forks(change) {
  let here = {}, run = null, headed = null;
  const name = h("input", { type: "text", maxlength: LONGEST, placeholder: "name of the fork",
    "aria-label": "name of the fork", autocomplete: "off", spellcheck: "false" });
  const go = h("button", { type: "submit", class: "ds-button" }),
    refused = h("p", { class: "ds-refusal", role: "alert", hidden: "" });
  const forced = forcedVerdicts(() => here.node, draw), shape = drafterKnobs(draw), other = replacement(draw),
    branches = branchList(() => here.pane?.id);
  const inside = h("p", { class: "quiet" });
  const form = h("form", { class: "fork", novalidate: "" }, forced.element, shape.element, other.element,
    inside,
    h("div", { class: "name" }, name, go), refused);
  const element = h("section", { class: "forks", "aria-label": "Forks" },
    h("header", null, h("h2", null, "Fork"),
      h("span", { class: "quiet" }, "decodes on from this step, as a run of its own; this run stays as it is")), form,
    branches.elements);

  const changes = () => ({ ...change(), ...shape.change(), ...other.change() });
  const refuse = (sentence) => ((refused.textContent = sentence), (refused.hidden = false));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (go.getAttribute("aria-disabled") === "true") return;
    if (shape.wrong()) return refuse(shape.wrong());
    go.setAttribute("aria-disabled", "true");
    refused.hidden = true;
    const { pane, at } = here, change = changes(), body = { step: at, force: forced.entries() };
    if (name.value.trim()) body.name = name.value.trim();
    if (Object.keys(change).length) body.change = change;
    try {
      const fork = await ask(`ds/run/${pane.id}/fork`, { method: "POST", body: JSON.stringify(body) });
      name.value = "";
      forced.clear();
      compare(pane.id, fork.run);
    } catch (error) {
      refuse(errorText(error));
    }
    go.removeAttribute("aria-disabled");
    branches.look();
  });
  function draw() {
    const { pane, step, at } = here;
    element.hidden = !pane?.id || !step;
    form.hidden = !step?.nodes;
    forced.draw(step);
    go.textContent = `Fork from step ${at}`;
    const said = [forcedText(forced.entries()), settingsText(changes())].filter(Boolean).join("; ");
    inside.textContent = said ? `In the fork: ${said}.`
      : "Nothing is changed yet: the fork would go on as the run did.";
  }
  return {
    element,
    draw(now) {
      const { pane, at } = here, { head } = now.store;
      here = now;
      if (pane !== now.pane || at !== now.at) forced.clear(), (refused.hidden = true);
      if (headed !== head) (headed = head), [shape, other].forEach((one) => one.fill(head ? now.pane.id : ""));
      if (run !== now.pane?.id) (run = now.pane?.id), branches.reset();
      draw();
    },
    look: branches.look,
    /** Name the fork after its changes, ready to be made. */
    fill: () => ((name.value = settingsText(changes()).slice(0, LONGEST)), go.focus()),
  };
}
