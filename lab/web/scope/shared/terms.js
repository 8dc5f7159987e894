/* Terms: the meanings of the field's symbols and words, each once; each is shown at the elements that `addTerm`
 * was given, and all together in a list with the keys. */
import { h, say, see, set } from "./elements.js";

export const TERMS = {
  draft: "Draft: tokens guessed cheaply, by a smaller model, by heads or from a table. They stay only if accepted.",
  target: "Target: the model whose text is wanted. It reads all drafted tokens in one pass and checks them.",
  pass: "Verify pass: one forward pass of the target over the root and the drafted tokens.",
  root: "Root: the last token of the text before a step, which the whole draft hangs on.",
  p: "p: the target's probability of a token, 1 or 0 after a greedy sampler.",
  q: "q: the probability with which the draft proposed the token; 1 where it chose without a draw.",
  u: "u: a number drawn evenly between 0 and 1, which decides whether a token is accepted, or which is drawn.",
  residual: "Residual r: what p has left when the draft's q, or a rejected token, is taken off, scaled to a sum of 1.",
  threshold: "Threshold: the token is accepted if u lies below it, p / q or r / q by the lossless rule.",
  tau: "Tau: tokens of text per verify pass, accepted ones and the target's own together.",
  length: "Accepted length: drafted tokens that a step keeps; a step adds one of the target's own to them.",
  rate: "Acceptance rate: the share of the tested tokens that were accepted.",
  accepted: "Accepted: the test keeps the drafted token.",
  rejected: "Rejected: the test drops the drafted token, and all that continue it.",
  bonus: "Bonus: the whole path was accepted, and the same pass gives one more token of the target's.",
  resampled: "Resampled: drawn by the target where drafts were rejected, from the residual by the lossless rule.",
  correction: "Correction: the target's choice where drafts were rejected; nothing is drawn.",
  alone: "Small model's own: the small one of two models wrote the token, and nobody checked it.",
  unreached: "Not reached: verified in the same pass, but the walk ended before it.",
};
const ALSO = { "p(x)": "p", "q(x)": "q", "r(x)": "residual", "mean p": "p", "mean q": "q", "tokens / pass": "tau",
  "of trials accepted": "rate", "trials accepted": "rate", "accepted per drafting step": "length", Root: "root",
  "not reached": "unreached", "small model's own": "alone", Verify: "pass", Draft: "draft" };

/** Attach a term's meaning to an element, for pointers and screen readers; a word that is no term stays as it is.
 *  It is no stop of the Tab key, which would have too many. */
export function addTerm(element, word = element.textContent.trim()) {
  const term = ALSO[word] ?? word, known = Object.hasOwn(TERMS, term);
  set(element, { "data-term": known ? term : null, "aria-description": known ? TERMS[term] : null });
  return element;
}

/** Show the meaning of the marked elements within `root` while the pointer is on them. */
export function tips(root) {
  const tip = h("div", { class: "terms", role: "tooltip" });
  const hide = () => see(tip, false);
  function show({ target }) {
    const term = target.closest("[data-term]");
    if (!term || term.closest(".ds, .ds-page") !== root) return hide();
    if (!tip.isConnected) root.append(tip);
    see(tip, true);
    say(tip, TERMS[term.dataset.term]);
    const at = term.getBoundingClientRect(), { offsetWidth, offsetHeight } = tip;
    tip.style.left = `${Math.max(8, Math.min(at.left, innerWidth - offsetWidth - 16))}px`;
    const below = at.bottom + 6;
    tip.style.top = `${below + offsetHeight > innerHeight ? at.top - offsetHeight - 6 : below}px`;
  }
  root.addEventListener("pointerover", show);
  // a finger leaves as it lifts, and is cancelled as it scrolls
  root.addEventListener("pointercancel", hide);
  root.addEventListener("pointerleave", ({ pointerType }) => pointerType === "touch" || hide());
  root.addEventListener("keydown", ({ key }) => key === "Escape" && hide());
}
