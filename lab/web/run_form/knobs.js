/* knobs: the inputs of the knobs of a method's parts, of every kind: number, choice, switch, text, list and file;
 * and the panels next to the picture that contain them. */
import { h } from "../scope.js";
import { fileKnob } from "./file_knob.js";
import { ask, isUnreachable, errorText } from "../runs/runs.js";

const SLIDER = 130; // positions of a slider, so that each is a pixel or two; a longer range gets only a number box

const AGAIN = 1000; // ms until a server that does not answer is asked again
let coming = null; // kind -> name -> {title, knobs}, once it is there
/** The declarations of all knobs, requested once. It rejects if the server refuses. */
export const knobDeclarations = () => (coming ??= fetchDeclarations());
async function fetchDeclarations() {
  for (;;)
    try {
      return await ask("ds/knobs.json");
    } catch (error) {
      if (!isUnreachable(error)) throw error;
      await new Promise((done) => setTimeout(done, AGAIN));
    }
}

/** The input of a knob that takes no file. A list is written as text, with commas; the server parses it. */
export function boxOf({ type, choices = [], lines, low, high, step, auto }) {
  if (choices.length) return h("select", null, choices.map((x) => h("option", { value: x }, String(x))));
  if (type === "bool") return h("input", { type: "checkbox" });
  if (auto) // a number, or the word auto
    return h("input", { type: "text", autocomplete: "off", spellcheck: "false", "data-auto": "auto" });
  if (type === "int" || type === "float")
    return h("input", { type: "number", min: low, max: high, step: step ?? "any" });
  return lines ? h("textarea", { rows: 3, spellcheck: "false" })
    : h("input", { type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "off" });
}
/** The value of an input; null: nothing. */
export const boxText = (box) => (box.type === "checkbox" ? box.checked
  : box.dataset.auto && !Number.isNaN(Number(box.value)) ? (box.value.trim() === "" ? null : Number(box.value))
  : box.type !== "number" ? box.value : box.value === "" ? null : Number(box.value));
/** Set the value of an input; if it has that value already, it is left alone, with the text cursor. */
export function setBox(box, value) {
  if (box.type === "checkbox") box.checked = value;
  else if (boxText(box) !== value) box.value = value ?? "";
}

/** A slider for a number between two bounds, unless it has too many positions to hit. */
function sliderOf({ type, choices = [], low, high, step, auto }, word) {
  const by = step ?? (type === "int" ? 1 : 0.01);
  if (auto || choices.length || !["int", "float"].includes(type)) return null;
  if (low == null || high == null || (high - low) / by > SLIDER) return null;
  return h("input", { type: "range", min: low, max: high, step: by, "aria-label": `${word}, slider` });
}

/** {element, put(value)} of a knob in a panel; set(value): somebody changed it. id: of its input. */
function row(knob, id, path, set) {
  const plain = knob.name.replaceAll("_", " "),
    word = knob.unit && !plain.endsWith(knob.unit) ? `${plain}, ${knob.unit}` : plain;
  if (knob.file) {
    const element = h("div"), of = { path, label: plain, help: knob.help, most: knob.most, usual: "No file chosen" };
    const put = (value) => fileKnob(element, of, value, (next) => (put(next), set(next)));
    return { element, put };
  }
  const box = boxOf(knob), slider = sliderOf(knob, word);
  box.id = id;
  if (knob.help) box.setAttribute("aria-describedby", `${id}-help`);
  const put = (value) => {
    setBox(box, value);
    if (slider && typeof value === "number") slider.value = value;
  };
  box.addEventListener("input", () => {
    if (slider && boxText(box) !== null) slider.value = boxText(box);
    set(boxText(box));
  });
  slider?.addEventListener("input", () => (put(Number(slider.value)), set(boxText(box))));
  const element = h("div", { class: knob.type === "bool" ? "knob switch" : slider ? "knob slid" : "knob" },
    h("label", { for: id }, word), h("small", { id: `${id}-help` }, knob.help), box, slider);
  return { element, put };
}

const panels = new Map(); // kind -> its panel
let wanted = {}; // the last request to show knobs: a panel may come after it
/** The panel of the parts of a kind in `host`. of: {kind, shown: names}; held: {part: {knob: value}} of the knobs
 *  that were set, the others have their declared `value`; set(held): they have changed. */
export function panel(host, of, held, set) {
  if (panels.get(of.kind)?.host !== host) panels.set(of.kind, panelIn(host, of));
  panels.get(of.kind).put(held || {}, set);
}
/** Show the knobs of these parts, kind -> names, and no others. */
export function show(parts) {
  wanted = parts;
  for (const [kind, names] of Object.entries(parts)) panels.get(kind)?.show(names);
}

function panelIn(host, { kind, shown }) {
  // open: the names that are shown; said: the text until the knobs are declared
  let held = {}, set = (_) => {}, open = null, groups = [], rows = [], parts = null, said = "Reading the settings…";
  const value = (name, knob) => (knob.name in (held[name] || {}) ? held[name][knob.name] : knob.value);
  const change = (name, knob) => (next) => {
    const all = Object.fromEntries(parts[name].knobs.map((x) => [x.name, value(name, x)]));
    set((held = { ...held, [name]: { ...all, [knob.name]: next } }));
  };
  const draw = () => {
    if (groups.length && !host.firstChild) host.append(...groups); // the page's library emptied it
    rows.forEach(({ name, knob, put }) => put(value(name, knob)));
  };
  const group = (name) => {
    const mine = parts[name].knobs.map((knob) => {
      const at = `${kind}/${name}/${knob.name}`;
      return { name, knob, ...row(knob, `ds-knob-${at.replaceAll("/", "-")}`, `ds/files/${at}`, change(name, knob)) };
    });
    rows.push(...mine);
    const title = parts[name].title ? h("b", { class: "ds-stage" }, parts[name].title) : null;
    return h("div", { class: "ds-knobs", "data-part": name }, title, mine.map((x) => x.element));
  };
  const show = (names) => {
    if (open && names.join() === open.join()) return;
    [open, rows] = [names, []];
    groups = parts ? names.map(group) : names.length ? [h("p", { class: "ds-knobs quiet", role: "status" }, said)] : [];
    host.replaceChildren(...groups);
    draw();
  };
  const again = () => {
    const names = open;
    open = null;
    show(names);
  };
  knobDeclarations().then((all) => ((parts = all[kind]), again()),
    (error) => ((said = `The settings did not come: ${errorText(error)}`), again()));
  show(wanted[kind] || shown);
  return { host, show, put: (next, tell) => ([held, set] = [next, tell], draw()) };
}
