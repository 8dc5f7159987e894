/* breaks: the conditions at which a run is stopped. They are kept in this browser. A run that is going pauses at them;
 * in a recorded one they are places to go to. */
import { button, h, plural } from "../scope.js";
import { ask, ended, heard, panes, inWords } from "../runs.js";

const KEPT = "decodescope-breakpoints";
const MOST = 32; // conditions that a run takes
const WAIT = 250; // ms after the last letter before a condition is checked
export const list = []; // {text, on}
export const armed = { trouble: "" }; // why the conditions could not be given to a run that is going
const listeners = new Set();

/** Be told whenever a breakpoint has come, gone or changed. */
export const changed = (listener) => listeners.add(listener);
export const enabled = () => list.filter((one) => one.on);
/** The number of a condition, as it is told, from 1; 0 if it is not in the list. */
export const numbered = (text) => list.findIndex((one) => one.text === text) + 1;

function kept() {
  try {
    const stored = JSON.parse(localStorage.getItem(KEPT));
    return (Array.isArray(stored) ? stored : []).filter((one) => typeof one?.text === "string").slice(0, MOST);
  } catch {
    return []; // forbidden, or not ours
  }
}
function keep() {
  try {
    localStorage.setItem(KEPT, JSON.stringify(list));
  } catch {} // full, or forbidden: then they last as long as the page
  arm();
  listeners.forEach((listener) => listener());
}
/** Put a condition into the list; one that is there is turned on. */
export function add(text) {
  const old = list.find((one) => one.text === text);
  if (old) old.on = true;
  else list.push({ text, on: true });
  keep();
}
export function remove(text) {
  list.splice(0, list.length, ...list.filter((one) => one.text !== text));
  keep();
}
export function turn(text, on) {
  for (const one of list) if (one.text === text) one.on = on;
  keep();
}

const given = new WeakMap(); // pane -> the conditions that its run has, as text
/** Give the conditions that are on to every run that is going. */
function arm() {
  if (panes.every(ended)) armed.trouble = "";
  for (const pane of panes) {
    if (!pane.id || pane.broke === undefined || ended(pane)) continue; // `broke` comes with the first word of its state
    const conditions = enabled().map((one) => one.text), as = JSON.stringify(conditions);
    if (as === (given.get(pane) ?? "[]")) continue;
    given.set(pane, as);
    const said = (sentence) =>
      armed.trouble !== sentence && ((armed.trouble = sentence), listeners.forEach((listener) => listener()));
    ask(`/ds/run/${pane.id}/breaks`, { method: "POST", body: JSON.stringify({ conditions }) }).then(() => said(""),
      (error) => {
        if (!ended(pane)) given.delete(pane), said(error.message);
      });
  }
}
list.push(...kept().map(({ text, on }) => ({ text, on: on !== false })));
heard(arm);

/** The list of breakpoints, as a part of the page. next(text): go to the next hit of one condition */
export function breakpoints(next) {
  const rows = h("ol", { class: "list" }), said = h("p", { class: "said", role: "status" });
  const box = h("input", { type: "text", placeholder: "p/q < 0.1 and depth > 2",
    "aria-label": "condition of a new breakpoint", autocomplete: "off", spellcheck: "false", autocapitalize: "off" });
  const words = h("tbody"),
    more = h("details", { class: "words" }, h("summary", null, "What can be asked for"),
      h("div", { class: "scroll" },
        h("table", null,
          h("thead", null, h("tr", null, h("th", { scope: "col" }, "name"), h("th", { scope: "col" }, "meaning"))),
          words)));
  const form = h("form", null, box, h("button", { type: "submit", class: "ds-button" }, "Add"));
  const element = h("section", { class: "breaks", "aria-label": "Breakpoints" },
    h("header", null, h("h2", null, "Breakpoints"), h("span", { class: "quiet" })), rows, form, said, more);
  const lead = element.querySelector(".quiet");
  let longest = 500, timer = 0, asked = 0;

  const say = (sentence, bad = false) =>
    ((said.className = bad ? "said ds-refusal" : "said quiet"),
      said.textContent !== sentence && (said.textContent = sentence));
  /** What is in the box, checked by the server; null if it is none, or is wrong: then the sentence stands below. */
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
      const { reads } = await ask("/ds/conditions", { method: "POST", body: JSON.stringify({ text }) });
      if (mine !== asked) return null;
      say(reads?.length ? `Reads ${reads.join(", ")}.` : "");
      return text;
    } catch (error) {
      if (mine === asked) say(inWords(error), true);
      return null;
    }
  }
  box.addEventListener("input", () => (clearTimeout(timer), (timer = setTimeout(checked, WAIT))));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    clearTimeout(timer);
    const text = await checked();
    if (text === null) return;
    if (list.length >= MOST && !numbered(text))
      return say(`There are ${MOST} breakpoints, which is the limit: remove one first.`, true);
    box.value = "";
    add(text);
    say(`Breakpoint ${numbered(text)} was added.`);
  });

  const hits = new Map(); // text -> {as, steps, count, trouble}: where a condition holds in the run that is shown
  /** Count the hits of every condition in the run; while it goes on, only at its pauses. */
  function count(pane) {
    if (!pane?.id || (!ended(pane) && pane.status !== "paused")) return;
    const as = `${pane.id} ${pane.view.store.count} ${ended(pane)}`;
    for (const { text } of list) {
      if (hits.get(text)?.as === as) continue;
      const mine = { ...(hits.get(text)?.run === pane.id ? hits.get(text) : {}), as, run: pane.id };
      hits.set(text, mine);
      ask(`/ds/run/${pane.id}/find?condition=${encodeURIComponent(text)}&all=1`).then(
        (answer) => Object.assign(mine, answer, { trouble: "" }),
        (error) => Object.assign(mine, { steps: null, trouble: error.message })
      ).then(() => draw(last.pane, last.at));
    }
  }
  function counted(text, at) {
    const hit = hits.get(text)?.run === last.pane.id ? hits.get(text) : null;
    if (hit?.trouble) return ["!", hit.trouble];
    if (!hit?.steps) return ["", ""];
    const k = hit.steps.indexOf(at);
    return k >= 0 ? [`here, ${k + 1} of ${hit.count}`, ""]
      : [
        hit.count === 1 ? `at ${hit.steps[0]}`
          : hit.count ? plural(hit.count, "hit").replace(" ", hit.more ? "+ " : " ") : "no hit",
        "",
      ];
  }
  let last = {}, drawnAs = "";
  function row({ text, on }, i) {
    const tick = h("input", { type: "checkbox" });
    tick.checked = on;
    tick.addEventListener("change", () => turn(text, tick.checked));
    const to = button("", () => next(text), { class: "bare hits", "aria-label": `next hit of ${text}` });
    const gone = button("×", () => {
      const after = rows.children[i + 1] ? i : i - 1;
      remove(text);
      (rows.children[after]?.querySelector("input") || box).focus();
    }, { class: "bare gone", "aria-label": `remove the breakpoint ${text}`, title: "remove" });
    return h("li", { "data-text": text },
      h("label", null, tick, h("span", { class: "n" }, String(i + 1)), h("code", null, text)), to, gone);
  }
  function draw(pane, at) {
    last = { pane, at };
    const as = JSON.stringify(list);
    if (as !== drawnAs) {
      const held = rows.contains(document.activeElement) && document.activeElement.closest("li").dataset.text,
        part = held && document.activeElement.className;
      rows.replaceChildren(...list.map(row));
      if (held)
        [...rows.children].find((li) => li.dataset.text === held)?.querySelector(
          part ? "." + part.split(" ").at(-1) : "input"
        )?.focus();
      drawnAs = as;
    }
    lead.textContent = !list.length ? "none yet" : ended(pane) || !pane.id ? "" : "they pause the run";
    [...rows.children].forEach((li) => {
      const [word, trouble] = counted(li.dataset.text, at), to = li.querySelector(".hits");
      li.classList.toggle("here", word.startsWith("here"));
      li.classList.toggle("off", !li.querySelector("input").checked);
      to.hidden = !word;
      if (to.textContent !== word) to.textContent = word;
      to.title = trouble;
    });
    if (armed.trouble) say(`The run could not take the breakpoints: ${armed.trouble}`, true);
    count(pane);
  }
  /** The names that a condition can use, and an example of each, which is one press away from being written. */
  function known(conditions) {
    longest = conditions.limit || longest;
    words.replaceChildren(...conditions.names.map(({ name, meaning, example }) => {
      const take = button(h("code", null, example), () => ((box.value = example), box.focus(), checked()),
        { class: "bare example", "aria-label": `write ${example}` });
      return h("tr", null, h("th", { scope: "row" }, h("code", null, name)),
        h("td", null, meaning, example ? [h("br"), take] : null));
    }));
  }
  changed(() => last.pane && draw(last.pane, last.at));
  return { element, draw, known, focus: () => box.focus() };
}
