/* verdict: the answer to a what-if: the other decision, and the tokens of the step with it. */
import { button, glyph, h, tokenOf, statusWord } from "../../scope.js";

const tokens = (all) => (all.length ? all.map((text) => [tokenOf(text, 14), h("wbr")]) : "nothing");
const capital = (word) => word[0].toUpperCase() + word.slice(1);

/** fork(): lead to a fork of the run, if only that can answer. */
export function verdictOf(fork) {
  const verdict = h("p", { class: "verdict", role: "status" }), lines = h("ul", { class: "lines" }),
    texts = h("dl", { class: "texts" });
  /** How the node was decided, compared with the record: `before`, its row. */
  function decided({ node, drawn, flips, missing }, before) {
    const status = node?.status || "unreached", was = before?.[6];
    const open = missing && !flips && status === "unreached" && was !== status; // the path breaks off before this node
    verdict.replaceChildren(glyph(status, 6),
      h("b", { class: status }, open ? "Not known" : capital(statusWord(status, drawn) || status)),
      flips ? h("strong", null, "the verdict flips")
        : h("span", { class: "quiet" },
          status === was && !open ? "as it was" : `it was ${statusWord(was, before[5] !== null) || was}`));
  }
  /** answer: from the server, on `node` of `step`; null: no question was asked. */
  function show(answer, step, node) {
    lines.replaceChildren();
    texts.replaceChildren();
    verdict.className = "verdict";
    if (!answer)
      return verdict.replaceChildren(
        h("span", { class: "quiet" }, "Move u or the temperature, or choose a rule: the verdict follows at once.")
      );
    const to = button("Fork from here", fork, { class: "small" });
    if (answer.kind !== "derived") {
      verdict.classList.add(answer.kind === "refused" ? "ds-refusal" : "rerun");
      return verdict.replaceChildren(...(answer.kind === "rerun" ? [h("b", null, "Needs a re-run. "), to, " "] : []),
        answer.why);
    }
    const { emitted, missing } = answer;
    decided(answer, step.nodes[node]);
    lines.replaceChildren(
      ...[...answer.lines, missing && [missing, " ", to]].filter(Boolean).map((one) => h("li", null, one)));
    texts.replaceChildren(h("dt", null, "recorded"), h("dd", null, tokens(step.made.map(([, text]) => text))),
      h("dt", null, "then"), h("dd", null, tokens(emitted.map(([, text]) => text)), missing ? " …" : null));
  }
  return { elements: [verdict, lines, texts], show };
}
