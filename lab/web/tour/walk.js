/* walk: the line of a guided tour: start, the present stop, next and back, and exit. */
import { button, h } from "../scope.js";

/** The line of a tour. stops(): its {title, text, step, node}, none where there is no tour; show(stop): go to its
 *  place, null when the tour is left. go(i) shows stop i, update(on) updates the text on the line (not `on`: the
 *  tour is over), lead(view, stop) chooses the stop's node in a view that has its step. */
export function walk(stops, show) {
  let at = -1;
  const enter = button("", () => (go(0), next.focus())), count = h("span", { class: "count" }), title = h("b"),
    text = h("span", { class: "told" });
  const back = button("Back", () => go(at - 1));
  const next = button("Next", () => (at + 1 < stops().length ? go(at + 1) : leave()), { class: "ds-button go" }),
    close = button("Leave", () => leave());
  const stop = h("div", { class: "stop" }, h("p", { "aria-live": "polite" }, count, title, text),
    h("div", { class: "ways" }, back, next, close));
  const element = h("section", { class: "ds-tour", "aria-label": "Guided tour" }, enter, stop);

  const leave = () => (go(-1), enter.focus());
  function go(i) {
    at = i;
    show(stops()[i] || null);
    update(true);
  }
  function update(on) {
    const all = stops(), present = (on && all[at]) || null;
    if (!present) at = -1;
    element.hidden = !all.length;
    enter.hidden = !!present;
    stop.hidden = !present;
    element.classList.toggle("on", !!present);
    enter.textContent = `Guided tour, ${all.length} stops`;
    if (!present) return;
    count.textContent = `${at + 1} of ${all.length}`;
    title.textContent = present.title;
    text.textContent = present.text;
    back.setAttribute("aria-disabled", at === 0);
    next.textContent = at + 1 < all.length ? "Next" : "End";
  }
  function lead(view, { step, node }) {
    const here = at;
    view.play(false);
    view.select({ step, node });
    bringIntoView(element, () => at === here, 50);
  }
  return { element, go, update, lead };
}

/** The drawn mark of the chosen node, or of a canvas place; nothing before it is drawn. */
const chosenMark = () =>
  [...document.querySelectorAll(".ds .node[aria-selected=true], .ds .canvas [aria-pressed=true]")]
  .find((x) => x.getBoundingClientRect().height);

/** As soon as the chosen node is drawn: scroll it into view, below the tour's line, if it is beyond the edge of
 *  the screen, or if the screen is small and the line stays at its top. It searches for some seconds at most. */
function bringIntoView(line, wanted, left) {
  requestAnimationFrame(() => {
    if (!wanted() || !left) return;
    const box = chosenMark()?.getBoundingClientRect();
    if (!box) return void setTimeout(() => bringIntoView(line, wanted, left - 1), 100);
    const stays = getComputedStyle(line).position === "sticky";
    if (!stays && box.top >= line.getBoundingClientRect().bottom && line.getBoundingClientRect().top >= 0
      && box.bottom <= innerHeight) return;
    line.scrollIntoView({ block: "start" });
    const over = chosenMark().getBoundingClientRect().bottom + 16 - innerHeight;
    if (over > 0) scrollBy(0, over);
  });
}
