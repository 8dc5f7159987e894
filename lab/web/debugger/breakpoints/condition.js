/* condition: the form for the condition of a breakpoint: it is checked while it is typed, and the names that it
 * can use are listed below. */
import { button, h } from "../../scope.js";
import { ask, errorText } from "../../runs/runs.js";
import { MOST, add, list, numberOf } from "./breakpoints.js";
import { statusLine } from "../status_line.js";

const WAIT = 250; // ms after the last letter before a condition is checked

export function conditionForm() {
  const { element: line, say } = statusLine();
  const box = h("input", { type: "text", placeholder: "p/q < 0.1 and depth > 2",
    "aria-label": "condition of a new breakpoint", autocomplete: "off", spellcheck: "false", autocapitalize: "off" });
  const words = h("tbody"),
    more = h("details", { class: "words" }, h("summary", null, "What can be asked for"),
      h("div", { class: "scroll" },
        h("table", null,
          h("thead", null, h("tr", null, h("th", { scope: "col" }, "name"), h("th", { scope: "col" }, "meaning"))),
          words)));
  const form = h("form", null, box, h("button", { type: "submit", class: "ds-button" }, "Add"));
  let longest = 500, timer = 0, asked = 0;

  /** The text in the box, checked by the server; null if it is no condition or is wrong: then the sentence is
   *  shown below. */
  async function checked() {
    const written = box.value.trim(), text = written.includes('"') ? written : written.replace(/\s+/g, " "),
      mine = ++asked;
    if (!text) return say(""), null;
    if (text.length > longest)
      return say(
        `The condition has ${text.length} characters; at most ${longest} are read. Make two breakpoints of it.`,
        true
      ), null;
    try {
      const { reads } = await ask("ds/conditions", { method: "POST", body: JSON.stringify({ text }) });
      if (mine !== asked) return null;
      say(reads?.length ? `Reads ${reads.join(", ")}.` : "");
      return text;
    } catch (error) {
      if (mine === asked) say(errorText(error), true);
      return null;
    }
  }
  box.addEventListener("input", () => (clearTimeout(timer), (timer = setTimeout(checked, WAIT))));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    clearTimeout(timer);
    const text = await checked();
    if (text === null) return;
    if (list.length >= MOST && !numberOf(text))
      return say(`There are ${MOST} breakpoints, which is the limit: remove one first.`, true);
    box.value = "";
    add(text);
    say(`Breakpoint ${numberOf(text)} was added.`);
  });
  /** The names that a condition can use, with an example of each, which a press inserts. */
  function known(conditions) {
    longest = conditions.limit || longest;
    words.replaceChildren(...conditions.names.map(({ name, meaning, example }) => {
      const take = button(h("code", null, example), () => ((box.value = example), box.focus(), checked()),
        { class: "bare example", "aria-label": `write ${example}` });
      return h("tr", null, h("th", { scope: "row" }, h("code", null, name)),
        h("td", null, meaning, example ? [h("br"), take] : null));
    }));
  }
  return { elements: [form, line, more], say, known, focus: () => box.focus() };
}
