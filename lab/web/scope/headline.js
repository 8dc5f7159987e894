/* The result of the step, and the figures of the run so far. */
import { figures, h, say, see } from "./shared/elements.js";
import { rederives } from "./card/judge.js";
import { percent, plural, formatFixed } from "./shared/numbers.js";
import { addTerm } from "./shared/terms.js";

/** "Step 14: 7 tokens from one pass", and the figures of the run so far at the right end. */
export function headline() {
  const title = h("h1"), lead = h("span", { class: "lead" }), bold = h("b"), rest = h("span");
  lead.append(bold, rest);
  const sums = figures();
  const agrees = h("span", { class: "agrees", role: "status" });
  const element = h("header", { class: "headline" }, title, lead, agrees, sums.element);
  return {
    element,
    draw(store, i) {
      const step = store.steps[i];
      see(element, step);
      if (!step) return;
      say(title, `Step ${i}`);
      const own = step.made.filter(([, , origin]) => origin !== "accept").length, kept = step.made.length - own;
      say(bold, plural(step.made.length, "token"));
      let words = " from one pass";
      if (step.drafted)
        words += `: ${kept} of ${step.drafted} drafted accepted${own ? `, ${own} from the target` : ""}`;
      else if (step.branches) words = `: ${step.branches.says}`;
      else if (step.threads) words = `: ${step.threads.says}`;
      else if (step.turn) words = ` ${step.turn.says}`;
      else if (step.tally) words = `: ${step.tally.says}`;
      else if (step.tree) words = `: ${step.tree.says}`;
      else if (step.canvas) words = `: ${step.canvas.says}`;
      else if (step.chain) words = `: ${step.chain.says}`;
      say(rest, words);
      const { tokens, passes, tried, ok, decode } = step.sum;
      const list = [
        [decode ? formatFixed(tokens / decode) : "–", " tokens/s"],
        [passes ? formatFixed(tokens / passes) : "–", " tokens / pass"],
      ];
      if (tried) list.push([percent(ok / tried), " of trials accepted"]);
      sums.tell(list);
      for (const { lastChild } of sums.element.children) addTerm(lastChild);
      const same = step.brief || step.cut || !step.nodes ? null : rederives(step, store.head);
      element.classList.toggle("lies", same === false);
      say(agrees, step.forced ? "forced" : same === false ? "does not re-derive" : same ? "✓ re-derived" : "");
    },
  };
}
