/* Keys: the functions of keys on a run, and the list of them and of the terms. */
import { button, h } from "./shared/elements.js";
import { TERMS } from "./shared/terms.js";

const KEYS = [
  ["← →", "step back, on; with Shift ten"],
  ["Home End", "first, last step"],
  ["Space", "play, pause"],
  ["f", "follow the run"],
  ["h l", "in the tree: parent, child"],
  ["j k", "next, previous sibling"],
  ["Enter Esc", "to the card, and back"],
  ["r R", "next, previous rejection"],
  ["e E", "next, previous eviction"],
  ["+ − 0", "on Time: zoom in, out, all; ← → go along"],
  ["[ ]", "along the cache map; Enter one row, j k the next"],
  ["?", "this list"],
];

/** The list of the terms, and of the keys; more: further keys. */
export function keyList(more = []) {
  const part = (title, list) => h("section", null, h("h2", null, title), list);
  const dialog = h("dialog", { class: "keys", "aria-label": "terms and keys", tabindex: -1 },
    button("Close", () => dialog.close(), { class: "small" }),
    part("Terms", h("ul", null, Object.values(TERMS).map((text) => h("li", null, text)))),
    part("Keys",
      h("dl", null, [...KEYS, ...more].map(([key, word]) => h("div", null, h("dt", null, key), h("dd", null, word))))));
  return dialog;
}

/** A key on a run. views: its tree and its card, where they are shown, and the list of the keys. */
export function runKey(event, context, store, { tree, card, help }) {
  if (event.target.closest("input, textarea, select, [contenteditable]") || event.ctrlKey || event.metaKey
    || event.altKey) return;
  const { key } = event, at = context.at, node = context.chosen(store, at);
  const go = { ArrowLeft: -1, ",": -1, ArrowRight: 1, ".": 1, "<": -10, ">": 10 }[key];
  if (go) context.seek(at + go * (event.shiftKey && key.startsWith("Arrow") ? 10 : 1));
  else if (key === "Home") context.seek(0);
  else if (key === "End" || key === "f") context.follow(true);
  else if (key === " " && !event.target.closest("button, a, summary")) context.play();
  else if ("jkhl".includes(key) && tree) {
    const next = tree.step(key, node);
    if (next !== null) context.select(next);
  } else if (key === "Enter" && !event.target.closest("button, a, summary") && card) {
    if (node !== null) context.select(node);
    card.focus();
  } else if (key === "Escape" && help.open) help.close();
  else if (key === "Escape" && card?.element.contains(event.target)) tree?.focus();
  else if (key === "r" || key === "R") context.find("refused", key === "R" ? -1 : 1);
  else if (key === "e" || key === "E") context.find("evicted", key === "E" ? -1 : 1);
  else if (key === "?") context.help();
  else return;
  event.preventDefault();
}
