/* whatif: how a decision would have gone with another draw, temperature or rule. The recorded run is never changed. */
import { button, glyph, h, tokenOf, statusWord } from "../scope.js";
import { forks, set } from "./forks.js";
import { ask, inWords } from "../runs.js";

const SAME = "as recorded";
const HOTTEST = 2; // the end of the temperature's slider, unless the run was hotter

const tokens = (all) => (all.length ? all.map((text) => [tokenOf(text, 14), h("wbr")]) : "nothing");
const option = (value, word = value) => h("option", { value }, word);
const capital = (word) => word[0].toUpperCase() + word.slice(1);
/** A slider that begins where the run was, and goes back there. */
function slider(word, high, fine, asks) {
  const box = h("input", { type: "range", min: 0, max: high, step: fine, value: 0, "aria-label": word }), was = h("s"),
    now = h("b");
  const mark = h("i", { class: "was", "aria-hidden": "true" }),
    undo = button("reset", () => ((slide.value = null), box.focus(), asks()), {
      class: "small",
      "aria-label": `${word} ${SAME}`,
    });
  const element = h("div", { class: "slide" }, h("span", null, word), h("span", { class: "track" }, mark, box),
    h("output", null, was, now), undo);
  const slide = {
    element,
    value: null, // what was chosen; null: as recorded
    draw(recorded) {
      element.hidden = recorded === null || recorded === undefined;
      if (element.hidden) slide.value = null;
      if (element.hidden) return;
      box.max = Math.max(high, recorded);
      const at = slide.value ?? recorded;
      if (Number(box.value) !== at) box.value = at;
      was.textContent = slide.value === null ? "" : recorded.toFixed(3);
      now.textContent = at.toFixed(3);
      undo.hidden = slide.value === null;
      mark.style.left = `calc(8px + (100% - 16px) * ${recorded / Number(box.max)})`;
      box.setAttribute("aria-valuetext",
        at.toFixed(3) + (slide.value === null ? `, ${SAME}` : `, recorded ${recorded.toFixed(3)}`));
    },
  };
  box.addEventListener("input", () => ((slide.value = Number(box.value)), asks()));
  return slide;
}

/** The temperature that a method samples at; 0: greedy; null: none is set. */
function heatOf(method) {
  const chain = [method?.sampler, method?.sampler?.parts].flat(2).filter(Boolean);
  return chain.find((one) => "temperature" in one)?.temperature
    ?? (chain.some((one) => one.name === "greedy") ? 0 : null);
}

/** The panel: what is asked, the answer, and forks of the run. answered(answer, step) is told of it; null: none. */
export function whatif(answered) {
  let rules = [], here = {}, key = "", busy = false, again = false, answer = null;
  const asks = () => (draw(), derive());
  const u = slider("u", 1, 0.001, asks), heat = slider("T", HOTTEST, 0.05, asks);
  const choice = (word) => {
    const list = h("select", { "aria-label": word });
    return { list, element: h("label", { class: "choice" }, h("span", null, word), list) };
  };
  const rule = choice("rule"), ties = choice("ties"), knobs = h("div", { class: "knobs" });
  rule.list.addEventListener("change", () => ((u.value = null), settings(), asks())); // another rule may draw nothing
  ties.list.addEventListener("change", asks);
  const why = h("p", { class: "why" }), verdict = h("p", { class: "verdict", role: "status" }),
    lines = h("ul", { class: "lines" }), texts = h("dl", { class: "texts" });
  const questions = h("div", null, u.element, heat.element, rule.element, knobs, ties.element, verdict, lines, texts);
  const branches = forks(() => {
    // a fork draws and breaks ties as every run; in it a verdict is forced
    const { u: _, ties: __, ...change } = asked();
    return change;
  });
  const element = h("section", { class: "whatif", "aria-label": "What if" },
    h("header", null, h("h2", null, "What if"), h("span", { class: "quiet" }, "a branch; the trace stays as it is")),
    why, questions);

  /** Inputs for the settings of the rule that was chosen. */
  function settings() {
    const chosen = rules.find((one) => one.name === rule.list.value), own = here.store?.head?.method?.acceptance;
    knobs.replaceChildren(...(chosen?.params || []).map((param) => {
      const box = param.choices?.length
        ? h("select", null, param.choices.map((x) => h("option", { value: x }, String(x))))
        : h("input", { type: "number", min: param.low, max: param.high, step: param.step ?? "any" });
      box.value = (own?.name === chosen.name ? own[param.name] ?? param.before : null) ?? param.default;
      box.dataset.name = param.name;
      box.addEventListener("change", asks);
      return h("label", { title: param.help }, h("span", null, param.name), box);
    }));
  }
  /** What is asked for, beside step and node; empty: nothing. */
  function asked() {
    const question = {};
    if (u.value !== null) question.u = u.value;
    if (heat.value !== null) question.temperature = heat.value;
    if (rule.list.value) question.rule = rule.list.value;
    if (knobs.firstChild)
      question.rule_settings = Object.fromEntries(
        [...knobs.querySelectorAll("[data-name]")].map((box) => [box.dataset.name, set(box)]).filter(([, x]) =>
          x !== null
        )
      );
    if (ties.list.value) question.ties = ties.list.value;
    return question;
  }
  /** Why nothing can be asked here; empty if something can. */
  function unable() {
    const { pane, store, step, node } = here;
    if (!pane?.id || !step) return "Open a run first.";
    if (store.head?.levels && !store.head.levels.includes("decisions"))
      return "This run was recorded without its decisions, so no verdict can be derived again: record one at the "
        + "level “decisions”.";
    if (step.beams || step.iteration)
      return "This method rejects nothing by chance or by rule, so there is no verdict to change.";
    if (!step.nodes) return "Fetching this step…";
    return node > 0 ? "" : "Choose a node of the tree: its verdict is derived again from the record.";
  }
  /** Ask how it would have gone. While one question is on its way the next one waits, and the last one counts. */
  async function derive() {
    if (busy) return void (again = true);
    const { pane, at, node } = here, wanted = asked();
    if (unable() || !Object.keys(wanted).length) return (answer = null), tell();
    busy = true;
    const got = await ask(`/ds/run/${pane.id}/whatif`, { method: "POST",
      body: JSON.stringify({ step: at, node, ...wanted }) })
      .catch((error) => ({ kind: "refused", why: inWords(error) }));
    busy = false;
    if (again) return (again = false), derive();
    if (pane === here.pane && at === here.at && node === here.node) (answer = got), tell();
  }

  function tell() {
    lines.replaceChildren();
    texts.replaceChildren();
    verdict.className = "verdict";
    answered(answer?.kind === "derived" ? answer : null, here.step);
    if (!answer)
      return verdict.replaceChildren(
        h("span", { class: "quiet" }, "Move u or the temperature, or choose a rule: the verdict follows at once.")
      );
    const fork = button("Fork from here", () => branches.fill(), { class: "small" });
    if (answer.kind !== "derived") {
      verdict.classList.add(answer.kind === "refused" ? "ds-refusal" : "rerun");
      return verdict.replaceChildren(...(answer.kind === "rerun" ? [h("b", null, "Needs a re-run. "), fork, " "] : []),
        answer.why);
    }
    const { node, flips, emitted, missing } = answer, status = node?.status || "unreached",
      before = here.step.nodes[here.node], was = before?.[6];
    const open = missing && !flips && status === "unreached" && was !== status; // the path breaks off before this node
    verdict.replaceChildren(glyph(status, 6),
      h("b", { class: status }, open ? "Not known" : capital(statusWord(status, answer.drawn) || status)),
      flips ? h("strong", null, "the verdict flips")
        : h("span", { class: "quiet" },
          status === was && !open ? "as it was" : `it was ${statusWord(was, before[5] !== null) || was}`));
    lines.replaceChildren(
      ...[...answer.lines, missing && [missing, " ", fork]].filter(Boolean).map((one) => h("li", null, one)));
    texts.replaceChildren(h("dt", null, "recorded"), h("dd", null, tokens(here.step.made.map(([, text]) => text))),
      h("dt", null, "then"), h("dd", null, tokens(emitted.map(([, text]) => text)), missing ? " …" : null));
  }
  function draw() {
    const { store, step, node } = here, no = unable(), row = step?.nodes?.[node];
    if (why.textContent !== no) why.textContent = no;
    why.hidden = !no;
    questions.hidden = !!no;
    u.draw(row?.[5] ?? null);
    heat.draw(heatOf(store?.head?.method));
    ties.element.hidden = ties.list.options.length < 2;
    branches.draw(here);
  }
  return {
    element,
    forks: branches.element,
    /** Another run is shown: everything is as recorded again. */
    reset() {
      u.value = heat.value = answer = null;
      rule.list.value = ties.list.value = "";
      knobs.replaceChildren();
      key = "";
    },
    /** `node` of step `at` is looked at. */
    draw(now) {
      const { pane, store, step, at, node } = now,
        as = `${pane?.id} ${at} ${node} ${!!step?.nodes} ${!!store.head} ${rules.length}`;
      here = now;
      if (as === key) return;
      key = as;
      u.value = answer = null; // a draw is one node's; temperature and rule stay for the next one
      draw();
      tell();
      derive();
    },
    /** The rules that can be asked for, and how a tie can be broken. */
    known(all) {
      rules = all.rules || [];
      rule.list.replaceChildren(option("", SAME),
        ...rules.map(({ name, title }) => option(name, title ? `${name}: ${title}` : name)));
      ties.list.replaceChildren(option("", SAME), ...(all.ties || []).map(([value, word]) => option(value, word)));
      key = "";
    },
    look: branches.look,
  };
}
