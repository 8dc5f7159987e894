/* Divergence: where the texts of several runs depart from that of one of them, in sentences. */
import { divergenceOf } from "./alignment.js";
import { button, h, see } from "../shared/elements.js";
import { tokenOf } from "../shared/marks.js";
import { formatCount, plural } from "../shared/numbers.js";

/** show(token): go there; why(k, split): more about it, or nothing; mark(k, token): mark it in run k, or null. */
export function divergences(letters, stores, { show, why, mark }) {
  const element = h("div", { class: "parts" });
  const compared = letters.map(() => []);
  let drawn = "";

  /** Where each run parts from run `base`: {at, a, b}, or {at, same}. */
  function splits(base) {
    return stores.map((store, k) => {
      const known = compared[base];
      if (!known[k] || known[k].count > store.count) known[k] = { split: divergenceOf(stores[base], store) };
      known[k].count = store.count;
      return known[k].split();
    });
  }
  /** For each run with a text that may differ: where it departs from a plain run with its settings; "" if there is
   *  none. */
  function fromPlain() {
    const heads = stores.map((store) => store.head);
    return heads.map((head, k) => {
      if (head?.exactness !== "lossy") return "";
      const plain = heads.findIndex((one) => one?.plain && one.setting === head.setting);
      if (plain < 0) return "";
      const split = splits(plain)[k], whose = `plain decoding (${letters[plain]})`;
      return split.same ? `as ${whose} for ${plural(split.at, "token")}`
        : `parted from ${whose} at token ${formatCount(split.at + 1)}`;
    });
  }
  /** Per run, the token from which on its text differs; for `base` the first of them. */
  function firsts(all, base) {
    const at = all.map((split) => (split.same ? Infinity : split.at));
    at[base] = Math.min(...at);
    return at;
  }
  function draw(all, base, ended) {
    const known = stores.every((store) => store.count),
      as = JSON.stringify([all, known, ended, all.map((split, k) => why?.(k, split))]);
    see(element, known);
    if (as === drawn) return;
    drawn = as;
    firsts(all, base).forEach((token, k) => mark(k, token === Infinity ? null : token));
    const spelt = (text) => (text === null ? "the end" : tokenOf(text, 16)), one = letters[base];
    element.replaceChildren(...all.flatMap((split, k) => {
      if (k === base) return [];
      const both = h("b", null, `${one} and ${letters[k]} `);
      if (split.same)
        return h("p", null, both, ended ? "wrote the same " : "are the same so far: ", plural(split.at, "token"), ".");
      return h("p", null, both,
        split.at ? `are the same up to token ${formatCount(split.at)}; then ` : "part at the first token: ",
        `${one} has `,
        spelt(split.a), `, ${letters[k]} `, spelt(split.b), ". ", why?.(k, split), " ",
        button("go there", () => show(split.at + 1), { class: "small" }));
    }));
  }
  return { element, splits, firsts, fromPlain, draw };
}
