/* The text so far. */
import { figures, h, see } from "./elements.js";
import { drafts, draws, statusWord } from "./marks.js";
import { grouped } from "./numbers.js";
import { running } from "./tokens.js";

const WINDOW = 2000; // tokens shown at once, besides the prompt's
/** The text so far, underlined by origin; a click on a token goes to the step that made it. */
export function textView(context) {
  const lines = h("div"), box = h("div", { class: "text", tabindex: 0, "aria-label": "text" }, lines);
  const sums = figures(), kept = h("span", { class: "key accept" }, "accepted draft");
  const element = h("section", { class: "text-pane" },
    h("header", null, h("h2", null, "Text"), kept,
      h("span", { class: "key target" }, "target's own"), sums.element), box);
  const caret = h("span", { class: "caret" });
  let head = null, spans = [], flat = [], shownTo = -1, from = 0, added = 0, before = 0, marked = [], parted = null,
    stick = true;
  const token = (text, cls) => {
    const span = h("span", { class: "tok " + cls });
    for (const [kind, shown] of running(text))
      span.append(
        kind === "text" ? h("i", null, shown)
          : kind === "space" ? h("i", { class: "lead" }, shown) : h("span", { class: kind }, shown)
      );
    return span;
  };
  box.addEventListener("scroll", () => (stick = box.scrollTop + box.clientHeight >= box.scrollHeight - 24));
  // after the layout of a frame
  new ResizeObserver(() => stick && (box.scrollTop = box.scrollHeight)).observe(lines);
  box.addEventListener("click", (event) => {
    const span = event.target.closest("[data-step]");
    if (span) context.seek(Number(span.dataset.step));
  });
  /** The text anew, from the tokens of step `at` on. */
  function begin(store, at) {
    head = store.head;
    see(kept, drafts(head));
    spans = [];
    flat = [];
    parted = null;
    from = added = at;
    shownTo = at - 1;
    before = store.steps[at - 1]?.sum.tokens ?? 0;
    const prompt = at ? [] : head.prompt.map(([, text]) => token(text, "prompt")),
      left = before + head.prompt_tokens - prompt.length;
    if (left) prompt.unshift(h("span", { class: "quiet" }, `… ${grouped(left)} tokens before `));
    lines.replaceChildren(...prompt, caret);
  }
  /** Where the tokens begin that are shown with step i: a quarter of a WINDOW before it, as far as they are there. */
  function start(store, i) {
    let at = Math.max(0, i);
    for (let left = WINDOW / 4; at && left > 0 && store.steps[at - 1]; at--) left -= store.steps[at - 1].made.length;
    return at;
  }
  return {
    element,
    draw(store, i) {
      see(element, store.head);
      if (!store.head) return;
      if (store.head !== head) begin(store, 0);
      if (store.steps[i] && (i < from || i > added + WINDOW / 4 || flat.length > WINDOW)) begin(store, start(store, i));
      // elements are made in order, as far as the steps are there
      for (; added <= i && store.steps[added]; added++) {
        const group = store.steps[added].made.map(([, text, origin]) => {
          const span = token(text, origin === "accept" ? "accepted" : "target");
          span.dataset.step = added;
          span.title = `step ${added}, ${statusWord(origin, draws(head))}`;
          return span;
        });
        spans[added] = group;
        flat.push(...group);
        lines.append(...group);
      }
      for (let k = Math.max(from, Math.min(shownTo, i) + 1); k <= Math.max(shownTo, i) && k < added; k++)
        for (const span of spans[k]) span.hidden = k > i;
      shownTo = Math.min(i, added - 1);
      for (const span of marked) span.classList.remove("now");
      marked = spans[i] || [];
      for (const span of marked) span.classList.add("now");
      const other = context.parted === null ? null : (flat[context.parted - before] ?? null);
      if (other !== parted) {
        parted?.classList.remove("parted");
        other?.classList.add("parted");
        if ((parted = other)) other.title += ", where the texts part";
      }
      if (marked.length) marked[marked.length - 1].after(caret);
      sums.tell([[grouped(store.steps[i]?.sum.tokens ?? 0), " new"], [grouped(head.prompt_tokens), " prompt"]]);
    },
  };
}
