/* The text so far. */
import { joiner } from "./characters.js";
import { copiesOf } from "./copies.js";
import { figures, h, see, set } from "../shared/elements.js";
import { drafts, draws, routes, statusWord } from "../shared/marks.js";
import { waitingPlaces } from "../canvas/fills.js";
import { formatCount, plural } from "../shared/numbers.js";
import { textParts, visibleText } from "../shared/tokens.js";

// tokens shown at once, besides the prompt's
const WINDOW = 2000;
// settled tokens of a canvas that are shown at once if they wait for places before them
const WAITING = 128;
const TINT = 60; // percent of the colour
// scripts with letters that change with their neighbours, also across tokens
const CURSIVE = /[\u0600-\u0DFF]/;

/** Puts a text into a token's element and replaces what was there. */
function write(span, text) {
  span.replaceChildren(...textParts(text).map(([kind, shown]) =>
    kind === "text" ? h("i", { class: CURSIVE.test(shown) && "cursive" }, shown)
      : kind === "space" ? h("i", { class: "lead" }, shown) : h("span", { class: kind }, shown)
  ));
}

/** Elements of tokens as they come. A character of several tokens is in the element of its last token; the others
 *  are visible until that has come, `takenAt` is its step. make(text, class, step, title) */
function tokens() {
  const join = joiner();
  return (text, cls, step = null, title = "") => {
    const span = h("span", { class: "tok " + cls }), whole = join(text, span);
    const said = visibleText(text) + (title && ": ") + title;
    Object.assign(span, { step: step ?? -1, takenAt: Infinity, said, parts: [] });
    if (step !== null) set(span, { "data-step": step, title });
    write(span, whole ? whole.text : text);
    if (!whole) return span;
    span.parts = whole.keys.slice(0, -1);
    span.title = `one character of ${whole.keys.length} tokens: ${whole.keys.map((token) => token.said).join("; ")}`;
    for (const part of span.parts)
      if (part.takenAt === Infinity) Object.assign(part, { takenAt: span.step, whole: span });
    return span;
  };
}

/** The tokens of a canvas after the text of step i that wait for places before them: [places with masks between
 *  them, the same in words]; null if none waits. */
function behindText(store, i) {
  const all = store.steps[i]?.canvas ? waitingPlaces(store, i) : [], step = store.steps[i];
  if (!all.length) return null;
  const first = step.canvas.at[0], out = step.n + step.made.length, parts = [];
  let next = out;
  for (const { place, text } of all.slice(0, WAITING)) {
    if (place > next) parts.push(h("span", { class: "gap" }, "▁".repeat(Math.min(8, place - next))));
    parts.push(h("span", { class: "waits" }, textParts(text).map(([, shown]) => shown)));
    next = place + 1;
  }
  const list = all.slice(0, WAITING).map(({ place, text }) => `“${visibleText(text)}” at place ${place - first + 1}`);
  return [parts, `${plural(all.length, "settled token")} ${all.length === 1 ? "waits" : "wait"} for places before: `
    + list.join(", ") + (all.length > WAITING ? ", …" : "")];
}

/** The reference's result for a token (head.along): [KL in nats, its own choice, or null]. */
const alongText = (along, [kl, other]) =>
  `KL to ${along} ${kl > 0 && kl < 0.0005 ? "< 0.001" : kl.toFixed(3)} nats, which would `
  + (other === null ? "say the same" : `say “${visibleText(other)}”`);
/** The tint of such a token in percent, full from 1 nat on; small numbers are still visible. */
const tint = (kl) => `${(TINT * Math.sqrt(Math.min(1, kl))).toFixed(0)}%`;

const SIGN = { accept: "accepted", draft: "drafted" };
/** The text so far, underlined by origin; a click on a token goes to the step that made it. */
export function textView(context) {
  const lines = h("div"), box = h("div", { class: "text", tabindex: 0, "aria-label": "text" }, lines);
  const copies = copiesOf(context, box), sums = figures(), kept = h("span", { class: "key accept" }, "accepted draft");
  const alone = h("span", { class: "key drafted" }, "small model's own");
  const held = h("span", { class: "key ahead" }, "settled, waits for places before");
  const far = h("span", { class: "key far" }), otherwise = h("span", { class: "key otherwise" }, "would be another");
  const element = h("section", { class: "text-pane" },
    h("header", null, h("h2", null, "Text"), kept,
      h("span", { class: "key target" }, "target's own"), alone, held, far, otherwise, sums.element), box, copies.line);
  const later = h("span", { class: "later", role: "img" });
  const caret = h("span", { class: "caret" });
  let head = null, spans = [], flat = [], read = [], shownTo = -1, from = 0, added = 0, before = 0, marked = [],
    parted = null, stick = true;
  let make = tokens();
  /** Show a token with step i, unless a later one shows the character that it is a part of. */
  const reveal = (span, i) => (span.hidden = span.step > i || span.takenAt <= i);
  box.addEventListener("scroll", () => (stick = box.scrollTop + box.clientHeight >= box.scrollHeight - 24));
  // after the layout of a frame
  new ResizeObserver(() => stick && (box.scrollTop = box.scrollHeight)).observe(lines);
  box.addEventListener("click", (event) => {
    const span = event.target.closest("[data-step]");
    if (span) context.seek(Number(span.dataset.step));
  });
  /** Draw the text again, from the tokens of step `at` on. */
  function begin(store, at) {
    head = store.head;
    see(kept, drafts(head));
    see(alone, routes(head));
    for (const key of [far, otherwise]) see(key, head.along);
    far.textContent = `KL to ${head.along}, full at 1 nat`;
    spans = [];
    flat = [];
    parted = null;
    from = added = at;
    shownTo = at - 1;
    before = store.steps[at - 1]?.sum.tokens ?? 0;
    make = tokens();
    const prompt = at ? [] : head.prompt.map(([, text, read]) =>
      read === 0 ? make(text, "prompt left", null, "left out: the model did not read it") : make(text, "prompt")
    );
    for (const span of prompt) reveal(span, -1);
    read = prompt.filter((_, k) => head.prompt[k][2] !== 0);
    read.forEach((span, k) => (span.place = readTokens() - read.length + k));
    const left = before + head.prompt_tokens - prompt.length;
    if (left) prompt.unshift(h("span", { class: "quiet" }, `… ${formatCount(left)} tokens before `));
    lines.replaceChildren(...prompt, caret);
  }
  const readTokens = () => head.prompt_read ?? head.prompt_tokens;
  /** The element at a place, counted in what the target read; undefined where it is not shown. */
  const elementAt = (place) => (place < readTokens() ? read[place - readTokens() + read.length]
    : flat[place - readTokens() - before]);
  /** The first token that is shown with step i: a quarter of a WINDOW before it, as far as they have come. */
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
        const { beside } = store.steps[added];
        const group = store.steps[added].made.map(([, text, origin], k) => {
          const what = `step ${added}, ${statusWord(origin, draws(head))}`, row = beside?.[k];
          if (!row) return make(text, SIGN[origin] ?? "target", added, what);
          const span = make(text, `${SIGN[origin] ?? "target"} far${row[1] === null ? "" : " otherwise"}`, added,
            `${what}; ${alongText(head.along, row)}`);
          span.style.setProperty("--far", tint(row[0]));
          return span;
        });
        spans[added] = group;
        group.forEach((span, k) => (span.place = readTokens() + before + flat.length + k));
        flat.push(...group);
        store.steps[added].from?.forEach((place, k) =>
          place !== null && copies.take(group[k], place, elementAt(place)));
        lines.append(...group);
      }
      see(kept, drafts(head) || store.steps[i]?.sum.drafted);
      for (let k = Math.max(from, Math.min(shownTo, i) + 1); k <= Math.max(shownTo, i) && k < added; k++)
        for (const span of spans[k]) for (const one of [span, ...span.parts]) reveal(one, i);
      shownTo = Math.min(i, added - 1);
      for (const span of marked) span.classList.remove("now");
      marked = spans[i] || [];
      for (const span of marked) span.classList.add("now");
      let other = context.parted === null ? null : (flat[context.parted - before] ?? null);
      while (other?.hidden && other.whole) other = other.whole;
      if (other !== parted) {
        parted?.classList.remove("parted");
        other?.classList.add("parted");
        if ((parted = other)) other.title += ", where the texts part";
      }
      copies.draw(store, i, { at: elementAt, texts: store.texts(), prompt: readTokens() });
      if (marked.length) marked[marked.length - 1].after(caret);
      const behind = behindText(store, i);
      see(held, behind);
      later.replaceChildren(...(behind?.[0] ?? []));
      set(later, { "aria-label": behind?.[1] ?? null, title: behind?.[1] ?? null });
      if (behind) caret.after(later);
      else later.remove();
      sums.tell([[formatCount(store.steps[i]?.sum.tokens ?? 0), " new"], [formatCount(head.prompt_tokens), " prompt"],
        ...(head.prompt_read ? [[formatCount(head.prompt_read), " of it read"]] : [])]);
    },
  };
}
