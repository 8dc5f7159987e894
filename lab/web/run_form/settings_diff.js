/* settings_diff: the displayed run compared with the run that the controls would make. Copies are of the displayed
 * run; if the controls differ, a banner says so, and they can be copied too. */
import { button, h } from "../scope.js";
import { ask, onChange, panes, shown, onStep } from "../runs/runs.js";

const WAIT = 150; // ms after a change of the controls before they are compared with the run
const MOST = 4; // differences listed in words
const WAYS = { command: "Command", python: "Python", link: "Link" };
const state = { asked: "", differs: [], settings: "", timer: 0 };
const listeners = new Set();

/** The question: this run, with its known state, and these settings. */
const key = () => `${panes[0]?.id} ${!!panes[0]?.view.store.head} ${shown.settings}`;

function look() {
  if (key() === state.asked) return;
  state.asked = key();
  clearTimeout(state.timer);
  state.timer = setTimeout(compareSettings, WAIT);
}
/** Compare the controls with the displayed run. */
async function compareSettings() {
  const mine = state.asked, run = panes[0]?.view.store.head && panes[0].id;
  const { differs = [], settings = "" } = run && shown.settings
    ? await ask(`ds/run/${run}/differs`, { method: "POST", body: JSON.stringify({ settings: shown.settings }) })
      .catch(() => ({}))
    : {};
  if (mine !== state.asked) return;
  Object.assign(state, { differs, settings });
  listeners.forEach((listener) => listener());
}
let watching = false;
function watch(listener) {
  listeners.add(listener);
  if (!watching) onChange(look), onStep(look);
  watching = true;
  listener();
}
/** The controls have changed. */
export const checkSettings = look;

/** The banner over the picture: the controls would make another run; it lets them follow the displayed one. */
export function settingsBanner() {
  const words = h("span"),
    follow = button("Put this run into the controls", () => shown.put?.(state.settings), { class: "ds-button" });
  const element = h("p", { class: "ds-next", role: "status" }, words, follow);
  watch(() => {
    const { differs } = state, more = differs.length - MOST;
    element.hidden = !differs.length;
    if (!differs.length) return;
    words.textContent = `The controls are those of the next run: ${differs.slice(0, MOST).join("; ")}`
      + `${more > 0 ? `; ${more} more` : ""}. `;
  });
  return element;
}

/** The buttons that copy the displayed run, and those for the controls if they differ. */
export function copyButtons(element) {
  const out = h("div", { id: "ds-copied" });
  const put = (way, asked) =>
    asked.then((value) => copyText(out, value), (error) => copyText(out, { refused: error.message }));
  const run = (way) => put(way, ask(`ds/run/${panes[0].id}/recipe?way=${way}`));
  const controls = (way) =>
    put(way, ask("ds/recipe", { method: "POST", body: JSON.stringify({ way, settings: shown.settings }) }));
  const row = (said, act, id) =>
    h("div", { class: "ways", role: "group", "aria-label": said }, h("span", null, said),
      Object.entries(WAYS).map(([way, word]) =>
        button(word, () => act(way), { class: null, id: `ds-copy-${id}${way}`, "aria-label": `${said}: ${word}` })
      ));
  const own = row("Copy this run", run, ""), next = row("Copy the next run", controls, "next-");
  element.replaceChildren(own, next, out);
  const draw = () => {
    const there = !!panes[0]?.view.store.head;
    own.hidden = !there;
    next.hidden = there && !state.differs.length;
  };
  watch(draw);
  onChange(draw);
  onStep(draw);
}

/** Text on its way to the clipboard; it is also shown here, to be selected. */
export function copyText(host, value) {
  host.setAttribute("role", "status");
  host.className = value.refused ? "ds-refusal" : "ds-copied";
  if (value.refused) return void (host.textContent = value.refused);
  const text = value.way === "link" ? location.origin + location.pathname + value.text : value.text;
  const said = h("small", null, "Select it and press Ctrl+C."),
    note = value.note ? h("small", null, " " + value.note) : "";
  const box = h("textarea", { readonly: "",
    rows: Math.min(8, Math.ceil(text.length / 44) + text.split("\n").length - 1), "aria-label": value.way,
    spellcheck: "false" });
  box.value = text;
  host.replaceChildren(box, said, note);
  navigator.clipboard?.writeText(text).then(() => (said.textContent = "Copied."), () => box.select());
}
