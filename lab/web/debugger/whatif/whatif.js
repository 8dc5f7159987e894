/* whatif: the decision under another draw, temperature or rule. The recorded run is never changed. */
import { h } from "../../scope.js";
import { ask, errorText } from "../../runs/runs.js";
import { forks } from "../forks/forks.js";
import { ruleChoice } from "./rule.js";
import { slider } from "./slider.js";
import { verdictOf } from "./verdict.js";

const HOTTEST = 2; // the end of the temperature's slider, unless the run was hotter

/** The temperature that a method samples at; 0: greedy; null: none is set. */
function temperatureOf(method) {
  const chain = [method?.sampler, method?.sampler?.parts].flat(2).filter(Boolean);
  return chain.find((one) => "temperature" in one)?.temperature
    ?? (chain.some((one) => one.name === "greedy") ? 0 : null);
}

/** Why nothing can be asked of a node; empty if something can.
 *  @param {{pane?: any, store?: any, step?: any, node?: number}} here */
function whyUnable({ pane, store, step, node }) {
  if (!pane?.id || !step) return "Open a run first.";
  if (store.head?.levels && !store.head.levels.includes("decisions"))
    return "This run was recorded without its decisions, so no verdict can be derived again: record one at the "
      + "level “decisions”.";
  if (step.branches || step.threads || step.chain || step.canvas || step.tally || step.tree)
    return "This method rejects nothing by chance or by rule, so there is no verdict to change.";
  if (!step.nodes) return "Fetching this step…";
  return node > 0 ? "" : "Choose a node of the tree: its verdict is derived again from the record.";
}

/** The panel: the question, the answer, and forks of the run. answered(answer, step) is called with it; null:
 *  none. */
export function whatif(answered) {
  let here = {}, key = "", busy = false, again = false, answer = null;
  const asks = () => (draw(), derive());
  const u = slider("u", 1, 0.001, asks), heat = slider("T", HOTTEST, 0.05, asks);
  const rule = ruleChoice({ own: () => here.store?.head?.method?.acceptance, asks,
    other: () => (u.value = null) }); // another rule may draw nothing
  const verdict = verdictOf(() => branches.fill());
  const why = h("p", { class: "why" }),
    questions = h("div", null, u.element, heat.element, rule.elements, verdict.elements);
  const branches = forks(() => {
    // a fork draws and breaks ties as every run does; a verdict can be forced in it
    const { u: _, ties: __, ...change } = asked();
    return change;
  });
  const element = h("section", { class: "whatif", "aria-label": "What if" },
    h("header", null, h("h2", null, "What if"), h("span", { class: "quiet" }, "a branch; the trace stays as it is")),
    why, questions);

  /** The question, besides step and node; empty: nothing. */
  const asked = () => ({ ...(u.value === null ? {} : { u: u.value }),
    ...(heat.value === null ? {} : { temperature: heat.value }), ...rule.asked() });
  /** Ask the server. While one question is under way the next one waits, and only the last one is sent. */
  async function derive() {
    if (busy) return void (again = true);
    const { pane, at, node } = here, wanted = asked();
    if (whyUnable(here) || !Object.keys(wanted).length) return (answer = null), tell();
    busy = true;
    const got = await ask(`ds/run/${pane.id}/whatif`, { method: "POST",
      body: JSON.stringify({ step: at, node, ...wanted }) })
      .catch((error) => ({ kind: "refused", why: errorText(error) }));
    busy = false;
    if (again) return (again = false), derive();
    if (pane === here.pane && at === here.at && node === here.node) (answer = got), tell();
  }
  function tell() {
    answered(answer?.kind === "derived" ? answer : null, here.step);
    verdict.show(answer, here.step, here.node);
  }
  function draw() {
    const { store, step, node } = here, no = whyUnable(here), row = step?.nodes?.[node];
    if (why.textContent !== no) why.textContent = no;
    why.hidden = !no;
    questions.hidden = !!no;
    u.draw(row?.[5] ?? null);
    heat.draw(temperatureOf(store?.head?.method));
    rule.draw();
    branches.draw(here);
  }
  return {
    element,
    forks: branches.element,
    /** Another run is shown: reset everything to the record. */
    reset() {
      u.value = heat.value = answer = null;
      rule.reset();
      key = "";
    },
    /** `node` of step `at` is selected. */
    draw(now) {
      const { pane, store, step, at, node } = now,
        as = `${pane?.id} ${at} ${node} ${!!step?.nodes} ${!!store.head} ${rule.count()}`;
      here = now;
      if (as === key) return;
      key = as;
      u.value = answer = null; // a draw is one node's; temperature and rule stay for the next one
      draw();
      tell();
      derive();
    },
    /** The available rules, and the ways to break a tie. */
    known: (all) => (rule.known(all), (key = "")),
    look: branches.look,
  };
}
