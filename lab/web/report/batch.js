/* batch: one method on a set of prompts: the settings, the progress, and what was refused. The server queues the
 * runs one at a time, or several in step; it continues when this page is left. */
import { button, h, plural } from "../scope.js";
import { ask, errorText, withModels, shown as lab } from "../runs/runs.js";
import { current, fragment } from "../shared/address.js";
import { prompts } from "../run_form/prompts.js";
import { batchList } from "./batch_list.js";

const AGAIN = 500; // ms between two requests for the progress
const ABREAST = 32; // prompts at a time, at most

/** The state of the batch: how far it is, and the prompts that were refused. */
function progress(stop) {
  const bar = h("progress", { max: 1, value: 0 }), words = h("p", { role: "status" }),
    now = h("p", { class: "quiet" }), put = h("p", { class: "quiet" }), refused = h("ul", { class: "refused" }),
    end = button("Stop", stop);
  const element = h("div", { class: "progress", hidden: "" }, h("div", { class: "line" }, bar, words, end), now, put,
    refused);
  const named = ({ name, kind, begins }) => `${[name, kind].filter(Boolean).join(", ")}: “${begins}”`;
  return {
    element,
    draw(record) {
      const { of, done, tokens, rows, over, stopped, doing } = record,
        went = rows.filter((row) => row.run && !row.why).length;
      element.hidden = false;
      Object.assign(bar, { max: of, value: done });
      bar.setAttribute("aria-label", "prompts that are over");
      words.textContent = `${done} of ${plural(of, "prompt")}, ${plural(tokens, "token")}`
        + (over ? `; ${stopped ? "stopped" : "done"}, ${plural(went, "run")} recorded.` : "");
      end.hidden = over;
      put.textContent = (record.asked || []).join(" ");
      const going = rows.filter((row) => row.run && !row.why && !["done", "cancelled", "failed"].includes(row.status));
      now.hidden = !(going.length || doing) || over;
      if (going.length)
        now.replaceChildren(going.length > 1 ? `${going.length} in step: ` : "", ...going.flatMap((row, i) => [
          `${i ? "; " : ""}${row.status}: ${named(row)}, `,
          h("a", { href: fragment([`run=${row.run}`], "lab"), "aria-label": `look at ${named(row)}` }, "look at it"),
        ]));
      else now.textContent = doing || "";
      const bad = rows.filter((row) => row.why);
      refused.hidden = !bad.length;
      if (refused.children.length !== bad.length)
        refused.replaceChildren(...bad.map((row) => h("li", null, h("b", null, named(row)), " ", row.why)));
    },
  };
}

/** The panel. methods(): [[run, words], ...] of the recorded ones; reported(runs): called at its end, with the
 *  runs to report on; moved(): another batch is followed, or none. */
export function batch({ methods, reported, moved }) {
  let id = null, turn = 0, asked = false;
  const notice = h("p", { class: "told", role: "alert" });
  const refuse = (error) => {
    notice.className = error ? "told ds-refusal" : "told";
    notice.replaceChildren(error ? errorText(error) : "");
  };
  const set = prompts({ refuse }), method = h("select"),
    start = h("button", { type: "submit", class: "ds-button go" }, "Run");
  const number = (value, min, max) => h("input", { type: "number", min, max, step: 1, value });
  const seed = number(0, 0, 2 ** 31), fresh = number(64, 1, 4096),
    abreast = number(1, 1, ABREAST);
  const field = (word, input) => h("label", null, h("span", null, word), input);
  const far = progress(() => ask(`ds/batch/${id}/stop`, { method: "POST" }).then(draw, refuse));
  const form = h("form", { "aria-label": "run a method on prompts" }, field("Method", method), set.element,
    h("div", { class: "numbers" }, field("Seed of the first", seed), field("New tokens of each", fresh),
      field("Prompts at a time", abreast), start),
    h("p", { class: "quiet" }, "Several at a time share their passes; each writes what it writes alone, to rounding. ",
      "A step's time then holds what is done for the others."));
  const element = h("section", { class: "panel", hidden: "" }, h("h2", null, "Run a method on prompts"), form, notice,
    far.element);

  const others = batchList(reported), listed = () => others.read().catch(refuse);

  async function offered() {
    const presets = (await ask(withModels("ds/compare"))).presets.filter((one) => !one.why);
    const was = method.value, group = (label, rows) =>
      rows.length ? [h("optgroup", { label }, rows.map(([value, word]) => h("option", { value }, word)))] : [];
    method.replaceChildren(...(lab.settings ? [h("option", { value: "own" }, "The Lab's settings")] : []),
      ...group("As in recorded runs", methods()), ...group("Presets", presets.map((one) => [one.key, one.title])));
    if ([...method.options].some((one) => one.value === was)) method.value = was;
  }
  function draw(record) {
    far.draw(record);
    start.setAttribute("aria-disabled", String(!record.over));
  }
  /** Request the progress until it is over, or another is followed. */
  async function follow(name) {
    const mine = ++turn;
    id = name;
    moved();
    try {
      for (;;) {
        const record = await ask(`ds/batch/${name}`);
        if (mine !== turn) return;
        draw(record);
        if (record.over) {
          id = null;
          moved();
          listed();
          if (record.runs.length && current() === "report") reported(record.runs);
          return;
        }
        await new Promise((done) => setTimeout(done, AGAIN));
        if (current() !== "report") return void (turn += mine === turn ? 1 : 0); // followed again when it is shown
      }
    } catch (error) {
      if (mine !== turn) return;
      id = null;
      moved();
      refuse(error);
      start.setAttribute("aria-disabled", "false");
    }
  }
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (start.getAttribute("aria-disabled") === "true") return;
    start.setAttribute("aria-disabled", "true");
    refuse(null);
    try {
      const said = { method: method.value === "own" ? lab.settings : method.value, ...set.value(),
        models: lab.models, place: lab.place,
        ...Object.fromEntries([["seed", seed], ["new", fresh], ["batch", abreast]]
          .map(([name, input]) => [name, input.value === "" ? null : Number(input.value)])) };
      const record = await ask("ds/batch", { method: "POST", body: JSON.stringify(said) });
      draw(record);
      follow(record.id);
    } catch (error) {
      refuse(error);
      start.setAttribute("aria-disabled", "false");
    }
  });
  const opener = button("Run a method on prompts", () => show(element.hidden), { "aria-expanded": "false" });
  function show(on) {
    element.hidden = !on;
    opener.setAttribute("aria-expanded", String(on));
    if (on) offered().catch(refuse);
    if (on && !asked) (asked = true), set.focus();
  }
  element.addEventListener("keydown", (event) => event.key === "Escape" && (show(false), opener.focus()));
  return {
    element,
    opener,
    earlier: others.element,
    id: () => id,
    /** The page is shown again, and its address names this batch, or none. */
    shown(name) {
      listed();
      const wanted = name || id;
      if (!wanted) return;
      if (element.hidden) show(true);
      follow(wanted);
    },
  };
}
