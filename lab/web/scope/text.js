/* The text so far. */
import { h, say } from "./elements.js";
import { WORDS } from "./marks.js";
import { grouped } from "./numbers.js";
import { running } from "./tokens.js";

const WINDOW = 2000; // tokens shown at once
/** The text so far, underlined by origin; a click on a token goes to the step that made it. */
export function textView(context) {
  const box = h("div", { class: "text", tabindex: 0, "aria-label": "text" });
  const counts = h("div", { class: "figures" }, h("span", null, h("b"), " new"), h("span", null, h("b"), " prompt"));
  const element = h("section", { class: "text-pane" },
    h("header", null, h("h2", null, "Text"), h("span", { class: "key accept" }, "accepted draft"), h("span", { class: "key target" }, "target's own"), counts), box);
  const caret = h("span", { class: "caret" });
  let head = null, spans = [], flat = [], shownTo = -1, made = 0, marked = [], parted = null, stick = true;
  const token = (text, cls) => {
    const span = h("span", { class: "tok " + cls });
    for (const [kind, shown] of running(text)) span.append(kind === "text" ? h("i", null, shown) : kind === "space" ? h("i", { class: "lead" }, shown) : h("span", { class: kind }, shown));
    return span;
  };
  box.addEventListener("click", (event) => {
    const span = event.target.closest("[data-step]");
    if (span) context.seek(Number(span.dataset.step));
  });
  function reset(store) {
    head = store.head;
    spans = [];
    flat = [];
    parted = null;
    shownTo = -1;
    made = 0;
    const prompt = head.prompt.map(([, text]) => token(text, "prompt"));
    if (head.prompt_tokens > head.prompt.length) prompt.unshift(h("span", { class: "quiet" }, `… ${grouped(head.prompt_tokens - head.prompt.length)} tokens before `));
    box.replaceChildren(...prompt, caret);
  }
  return {
    element,
    look: () => (stick = box.scrollTop + box.clientHeight >= box.scrollHeight - 24),
    settle: () => stick && (box.scrollTop = box.scrollHeight),
    draw(store, i) {
      element.style.display = store.head ? "" : "none";
      if (!store.head) return;
      if (store.head !== head) reset(store);
      // elements are made in order, as far as the steps are there
      while (made < store.count && store.steps[made]) {
        const step = store.steps[made];
        const group = step.made.map(([, text, origin]) => {
          const span = token(text, origin === "accept" ? "accepted" : "target");
          span.dataset.step = made;
          span.title = `step ${made}, ${WORDS[origin]}`;
          if (made > i) span.hidden = true;
          return span;
        });
        spans[made] = group;
        flat.push(...group);
        caret.before(...group);
        made++;
        shownTo = Math.max(shownTo, Math.min(i, made - 1));
      }
      for (let k = Math.min(shownTo, i) + 1; k <= Math.max(shownTo, i) && k < made; k++) for (const span of spans[k]) span.hidden = k > i;
      shownTo = Math.min(i, made - 1);
      for (const span of marked) span.classList.remove("now");
      marked = spans[i] || [];
      for (const span of marked) span.classList.add("now");
      const other = context.parted === null ? null : (flat[context.parted] ?? null);
      if (other !== parted) {
        parted?.classList.remove("parted");
        other?.classList.add("parted");
        if ((parted = other)) other.title += ", where the texts part";
      }
      if (marked.length) marked[marked.length - 1].after(caret);
      let first = box.firstElementChild;
      for (let extra = box.childElementCount - WINDOW; extra > 0 && first; extra--) {
        const next = first.nextElementSibling;
        if (first !== caret) first.remove();
        first = next;
      }
      const [fresh, prompt] = counts.querySelectorAll("b");
      say(fresh, grouped(store.steps[i]?.sum.tokens ?? 0));
      say(prompt, grouped(store.head.prompt_tokens));
    },
  };
}
