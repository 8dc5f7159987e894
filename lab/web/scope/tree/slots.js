/* Slots: the rows of the pass that checks a draft, side by side, if some of them belong to no token. */
import { OWN } from "../card/decision.js";
import { h, pool, say, see, set } from "../shared/elements.js";
import { statusWord, tokenOf } from "../shared/marks.js";
import { plural } from "../shared/numbers.js";
import { visibleText } from "../shared/tokens.js";

/** The root, the drafted tokens, and after them the slots in grey, grouped by the token that they are attached to. */
export function slotsView(context) {
  const list = h("ol", { class: "rows", "aria-label": "rows of the pass" }), says = h("p", { class: "quiet" });
  const cells = pool(list, () => h("li", null, h("button", { type: "button" })));
  const groups = h("div", { class: "hung" }), bunches = pool(groups, () => h("span", null, h("i"), h("span")));
  const element = h("div", { class: "pass-slots", role: "group", "aria-label": "the pass" }, h("div", { class: "lane" },
    list, groups), says);
  list.addEventListener("click", ({ target }) => {
    const row = target.closest("button");
    if (row) context.select(Number(row.dataset.node));
  });
  return {
    element,
    draw(store, i) {
      const { slots, verdict } = store.steps[i] ?? {}, nodes = slots && store.nodes(i);
      see(element, nodes);
      if (!nodes) return;
      const rows = nodes.filter(({ status }) => !OWN.has(status)), chosen = context.chosen(store, i);
      const total = slots.reduce((sum, x) => sum + x, 0), end = verdict.path.at(-1) ?? 0;
      rows.forEach(({ id, text, status, u }, k) => {
        const cell = cells.at(k).firstChild,
          words = `${visibleText(text)}, ${id ? statusWord(status, u !== null) : "root"}`;
        set(cell, { class: status, "data-node": id, "aria-pressed": id === chosen, title: words, "aria-label": words });
        say(cell, tokenOf(text, 6).textContent);
      });
      cells.trim(rows.length);
      const hung = slots.map((count, id) => [count, id]).filter(([count]) => count);
      hung.forEach(([count, id], k) => {
        const bunch = bunches.at(k), [boxes, word] = bunch.childNodes, on = nodes.find((one) => one.id === id);
        const behind = id ? `behind “${visibleText(on?.text ?? "")}”` : "behind the root";
        set(boxes, { style: `width:${10 * count}px` });
        say(word, id ? tokenOf(on?.text ?? "", 6).textContent : "root");
        set(bunch, { class: id === end ? "next" : null, title: `${plural(count, "slot")} ${behind}` });
      });
      bunches.trim(hung.length);
      const where = slots[end] ? "; those framed hang on the last token that stayed, and make the next draft" : "";
      say(says, `${plural(rows.length + total, "row")} of the pass: the root, ${rows.length - 1} drafted, and `
        + `${plural(total, "slot")}, grey: trained rows in which the target guesses further tokens. No token sees them `
        + `and none is kept${where}.`);
    },
  };
}
