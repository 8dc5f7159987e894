/* comparison_form: chooses two to four methods for one prompt, or for a set of prompts, and starts them. */
import { h } from "../scope.js";
import { ask, withModels, shown as lab } from "../runs/runs.js";
import { prompts } from "../run_form/prompts.js";
import { LETTERS } from "./letters.js";

const FIRST = ["plain", "chain", "lookup", ""];

/** options: begin(answer) when the runs are queued, refuse(error); many: on a set of prompts. */
export function comparisonForm({ begin, refuse, many = false }) {
  const title = `Run methods on ${many ? "a set of prompts" : "one prompt"}`,
    set = many ? prompts({ refuse: (error) => error && refuse(error) }) : null;
  const prompt = h("textarea", { rows: 3, spellcheck: "false" });
  const number = (value, min, max) => h("input", { type: "number", min, max, step: 1, value });
  const seed = number(7, 0, 2 ** 31), fresh = number(64, 1, 4096),
    warm = h("input", { type: "number", min: 0.05, max: 5, step: 0.05, value: 0.8 });
  const sampler = h("select", null,
    [["", "as each method has it"], ["greedy", "greedy for all"], ["temperature", "temperature for all"]]
      .map(([value, word]) => h("option", { value }, word)));
  const boxes = FIRST.map(() => h("select"));
  const chat = h("input", { type: "checkbox" }), past = h("input", { type: "checkbox" });
  const start = h("button", { type: "submit", class: "ds-button go" }, "Run");
  const field = (word, ...inputs) => h("label", null, h("span", null, word), inputs);
  const tick = (box, word) => h("label", { class: "tick" }, box, word);
  const heat = field("Temperature", warm);
  const form = h("form", { class: "lineup", "aria-label": title },
    h("div", { class: "methods" }, boxes.map((box, k) => field(`Method ${LETTERS[k]}`, box))),
    set?.element || field("Prompt", prompt),
    h("div", { class: "numbers" }, field("Seed", seed), field("New tokens", fresh), field("Sampling", sampler), heat,
      tick(chat, "chat template"), tick(past, "go on after the end token"), start),
    h("p", { class: "quiet" }, many
      ? "On every prompt all methods run once with one seed, recorded like any run; who begins moves on. The first one "
        + "is the baseline."
      : "They are queued one behind the other and recorded like any run. One sampling for all makes lossless methods "
        + "comparable: greedy, they must write the same text; drawn with one seed, they share the target's own "
        + "draws."));
  const models = h("p", { class: "quiet models" });
  form.append(models);
  const heated = () => (heat.hidden = sampler.value !== "temperature");
  sampler.addEventListener("change", heated);
  heated();
  let asked = false;
  async function shown(focus) {
    if (focus) (set || prompt).focus();
    try {
      const offered = await ask(withModels("ds/compare")), own = lab.settings ? JSON.parse(lab.settings) : null;
      models.textContent = `Models, as the Lab has them: ${offered.models.map((x) => x.name).join(", ")}.`;
      boxes.forEach((box, k) => {
        const was = asked ? box.value : FIRST[k];
        box.replaceChildren(...(k > 1 ? [h("option", { value: "" }, "none")] : []), ...offered.presets.map((x) =>
          h("option", { value: x.key, disabled: x.why ? "" : null, title: x.why || null },
            x.why ? `${x.title} (not with these models)` : x.title)
        ), ...(own ? [h("option", { value: "own" }, "The Lab's settings")] : []));
        box.value = was;
        if (!box.value || box.selectedOptions[0]?.disabled)
          box.value = k > 1 ? "" : ([...box.options].find((x) =>
            !x.disabled && x.value !== boxes[0].value
          )?.value ?? "");
      });
      if (!asked) {
        prompt.value = own?.prompt || offered.prompt;
        seed.value = own?.seed ?? offered.seed;
        fresh.value = own?.new ?? offered.new;
        chat.checked = !many && !!own?.chat;
        past.checked = !!own?.ignore_eos;
      }
      asked = true;
    } catch (error) {
      refuse(error);
    }
  }
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (start.getAttribute("aria-disabled") === "true") return;
    start.setAttribute("aria-disabled", "true");
    const methods = boxes.map((box) => (box.value === "own" ? lab.settings : box.value)).filter(Boolean);
    try {
      const mine = JSON.parse(lab.settings || "{}"), same = mine.prompt === prompt.value;
      const said = { ...(set ? set.value() : { prompt: prompt.value, prompt_kind: same && mine.prompt_kind || "text" }),
        seed: seed.value === "" ? null : Number(seed.value),
        new: fresh.value === "" ? null : Number(fresh.value), methods, sampler: sampler.value,
        temperature: Number(warm.value), chat: chat.checked, ignore_eos: past.checked, models: lab.models,
        place: lab.place };
      const path = `ds/compare/${set ? "set" : "start"}`;
      begin(await ask(path, { method: "POST", body: JSON.stringify(said) }));
    } catch (error) {
      refuse(error);
    }
    start.setAttribute("aria-disabled", "false");
  });
  return { element: h("section", { class: "panel" }, h("h2", null, title), form), shown, title };
}
