/* rule: another rule with its settings, and another choice at a tie, as lists in a what-if. */
import { h } from "../../scope.js";
import { knobSet } from "../knobs.js";
import { SAME } from "./slider.js";

const option = (value, word = value) => h("option", { value }, word);
function choice(word) {
  const list = h("select", { "aria-label": word });
  return { list, element: h("label", { class: "choice" }, h("span", null, word), list) };
}

/** own(): the rule of the run, as its header has it; asks(): called when something is chosen; other(): called
 *  before that, when it is another rule. */
export function ruleChoice({ own, asks, other }) {
  let rules = [];
  const rule = choice("rule"), ties = choice("ties"), knobs = knobSet("change", asks);
  rule.list.addEventListener("change", () => (other(), settings(), asks()));
  ties.list.addEventListener("change", asks);

  /** Inputs for the settings of the rule that was chosen. */
  function settings() {
    const chosen = rules.find((one) => one.name === rule.list.value), recorded = own();
    const valueOf = ({ name, default: usual }) =>
      (recorded?.name === chosen.name ? recorded[name] : null) ?? usual;
    knobs.fill((chosen?.params || []).map((knob) => ({ ...knob, value: valueOf(knob) })));
  }
  return {
    elements: [rule.element, knobs.element, ties.element],
    /** The question's parts; empty: as recorded. */
    asked() {
      const question = {};
      if (rule.list.value) question.rule = rule.list.value;
      if (knobs.element.firstChild) question.rule_settings = knobs.values(false);
      if (ties.list.value) question.ties = ties.list.value;
      return question;
    },
    draw: () => (ties.element.hidden = ties.list.options.length < 2),
    reset() {
      rule.list.value = ties.list.value = "";
      knobs.fill([]);
    },
    /** The available rules, and the ways to break a tie. */
    known(all) {
      rules = all.rules || [];
      rule.list.replaceChildren(option("", SAME),
        ...rules.map(({ name, title }) => option(name, title ? `${name}: ${title}` : name)));
      ties.list.replaceChildren(option("", SAME), ...(all.ties || []).map(([value, word]) => option(value, word)));
    },
    count: () => rules.length,
  };
}
