/* Run header: the text over one of several runs: its name, its figures, and how fast it is against another. */
import { figures, h, say, see } from "../shared/elements.js";
import { formatCount, keptBytes, size, formatFixed } from "../shared/numbers.js";

/** Tokens per second of decoding, 0 if unknown. */
const rate = (store) => {
  const last = store.steps[store.count - 1]?.sum;
  return last && last.decode ? last.tokens / last.decode : 0;
};

/** The head of the run with that letter; tools: further elements. */
export function runHead(letter, tools) {
  const name = h("b"), about = h("span", { class: "quiet" }), large = h("b", { class: "ratio" }),
    under = h("span", { class: "quiet" }), text = h("span", { class: "quiet of-text" }), sums = figures();
  const element = h("header", { class: "run" }, h("span", { class: "letter" }, letter),
    h("div", null, name, about, text), h("div", { class: "much" }, large, under), sums.element, tools);

  /** base: {store, letter} of its baseline run; ratio: [large, small] if a better value is known; ended: whether
   *  all runs are; away: where its text departs from a plain run; waiting: the name of a run that has no head yet. */
  function draw(store, base, ratio, ended, away, waiting) {
    const title = store.head ? store.head.named || store.head.called : waiting;
    see(element, title);
    say(name, title || "");
    if (!store.head) return;
    say(about, `${store.head.model.name}${store.end ? "" : store.count ? ", not ended yet" : ", waiting"}`);
    say(text, [...store.head.text ?? [], away].filter(Boolean).join(", "));
    const times = rate(store) / rate(base.store), known = Number.isFinite(times) && times > 0;
    const [much, small] = base.store === store ? ["baseline", ""]
      : ratio() || (known ? [`× ${formatFixed(times)}`,
        `tokens/s of ${base.letter}${ended ? ", one run each" : " so far"}`]
        : ["", ""]);
    say(large, much);
    say(under, small);
    const step = store.steps[store.count - 1], sum = step?.sum, target = step?.kv?.find((x) => x.lane === "target");
    const list = sum
      ? [
        [sum.decode ? formatFixed(sum.tokens / sum.decode) : "–", " tokens/s"],
        [sum.passes ? formatFixed(sum.tokens / sum.passes) : "–", " tokens / pass"],
        [formatCount(sum.tokens), " tokens"],
      ] : [];
    if (target) list.push([size(keptBytes(target)), " KV kept"]);
    sums.tell(list);
  }
  return { element, draw };
}
