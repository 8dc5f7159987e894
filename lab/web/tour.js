/* tour: leads through an example, stop by stop: a step, a node, and what is to be seen there. */
import { button, h } from "./scope.js";
import { example, heard, open, panes, stepped } from "./runs.js";

let at = -1, run = null, wanted = null, line = null;
const listeners = new Set();
const update = () => listeners.forEach((listener) => listener());
const stops = () => (panes.length === 1 && example(panes[0].id)?.tour) || [];

/** Show an example and begin its tour. */
export function guide(id) {
  if (panes[0]?.id !== id || panes.length > 1) open(id);
  go(0);
}
function go(i) {
  run = panes[0].id;
  at = i;
  wanted = stops()[i] || null;
  arrive();
  update();
}
/** Go to the wanted place as soon as its step has come. */
function arrive() {
  const view = panes[0]?.view;
  if (!wanted || panes[0].id !== run || view.store.count <= wanted.step) return;
  const { step, node } = wanted;
  wanted = null;
  view.play(false);
  view.select({ step, node });
  seen(at, 50);
}
/** As soon as the chosen node is drawn: scroll until it is in view, below the tour, where it stands beyond the edge of
 *  the screen, or the screen is small and the tour stays at its top. It is looked for some seconds at most. */
function seen(i, left) {
  requestAnimationFrame(() => {
    if (at !== i || !left) return;
    const box = document.querySelector(".ds .node[aria-selected=true]")?.getBoundingClientRect();
    if (!box?.height) return void setTimeout(() => seen(i, left - 1), 100);
    const stays = getComputedStyle(line).position === "sticky";
    if (!stays && box.top >= line.getBoundingClientRect().bottom && line.getBoundingClientRect().top >= 0
      && box.bottom <= innerHeight) return;
    line.scrollIntoView({ block: "start" });
    const over = document.querySelector(".ds .node[aria-selected=true]").getBoundingClientRect().bottom + 16
      - innerHeight;
    if (over > 0) scrollBy(0, over);
  });
}

/** The line above the picture: the way in, and the present stop. */
export function tour() {
  const enter = button("", () => (go(0), next.focus())), count = h("span", { class: "count" }), title = h("b"),
    text = h("span", { class: "told" });
  const back = button("Back", () => go(at - 1));
  const next = button("Next", () => (at + 1 < stops().length ? go(at + 1) : leave()),
      { class: "ds-button go" }),
    close = button("Leave", () => leave());
  const leave = () => (go(-1), enter.focus());
  const stop = h("div", { class: "stop" }, h("p", { "aria-live": "polite" }, count, title, text),
    h("div", { class: "ways" }, back, next, close));
  const element = (line = h("section", { class: "ds-tour", "aria-label": "Guided tour" }, enter, stop));
  listeners.add(() => {
    const all = stops(), on = at >= 0 && panes[0]?.id === run && all[at];
    if (!on) at = -1;
    element.hidden = !all.length;
    enter.hidden = !!on;
    stop.hidden = !on;
    element.classList.toggle("on", !!on);
    enter.textContent = `Guided tour, ${all.length} stops`;
    if (!on) return;
    count.textContent = `${at + 1} of ${all.length}`;
    title.textContent = all[at].title;
    text.textContent = all[at].text;
    back.setAttribute("aria-disabled", at === 0);
    next.textContent = at + 1 < all.length ? "Next" : "End";
  });
  heard(update);
  stepped(arrive);
  return element;
}
