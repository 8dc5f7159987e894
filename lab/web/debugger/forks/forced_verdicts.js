/* forced_verdicts: verdicts that are forced in a fork, node by node. */
import { button, h } from "../../scope.js";

/** node(): the chosen node; changed(): called when a verdict is forced, or left to the rule again. */
export function forcedVerdicts(node, changed) {
  const forced = new Map(); // node -> "accept" or "reject"
  const force = (word, kind) => {
    const act = () => {
      if (forced.get(node()) === kind) forced.delete(node());
      else forced.set(node(), kind);
      changed();
    };
    return [button(word, act, { "aria-pressed": "false" }), kind];
  };
  const forces = [force("Force accept", "accept"), force("Force reject", "reject")];
  const element = h("div", { class: "forces", role: "group", "aria-label": "the verdict in the fork" },
    forces.map(([one]) => one));
  return {
    element,
    entries: () => [...forced].map(([node, verdict]) => ({ node, verdict })),
    clear: () => forced.clear(),
    /** `step` is shown; its last, own token and its root were not drafted. */
    draw(step) {
      const at = node(), own = step?.verdict?.extra && at === step.nodes.length - 1;
      element.hidden = !step?.verdict || !(at > 0) || own;
      for (const [one, kind] of forces) one.setAttribute("aria-pressed", forced.get(at) === kind);
    },
  };
}
