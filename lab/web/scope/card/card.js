/* The decision behind one node. */
import { arrow, distributionTable, numbersTable, stretch } from "./arrow.js";
import { decision, OWN } from "./decision.js";
import { h, s, see, set } from "../shared/elements.js";
import { extra } from "../shared/extras.js";
import { fixedOf, rederives } from "./judge.js";
import { glyph, tokenOf, statusWord } from "../shared/marks.js";
import { nodeNotes } from "../notes/note_text.js";
import { formatApart, prob } from "../shared/numbers.js";
import { tallyOf, tallyAgrees } from "./tally.js";

function derivedMark(decided) {
  if (decided.agrees === false) return h("span", { class: "lie", role: "alert" }, "does not re-derive");
  return decided.agrees
    ? h("span", { class: "agree" },
      s("svg", { width: 14, height: 14, viewBox: "0 0 14 14", "aria-hidden": "true" },
        s("path", { d: "M2.5 7.5l3 3 6-7" })), "re-derived") : null;
}
/** Title, token and place over a card. */
export function shell(mark, title, token, where, decided) {
  return [h("header", null, mark ? glyph(mark, 5.5) : null, h("h2", { class: mark }, title), derivedMark(decided)),
    h("p", { class: "who" }, token, h("span", { class: "quiet" }, where))];
}
const verdictWord = (ok) => (ok ? "accepted" : "rejected");
/** The sentence if record and numbers differ. */
function lieOf(decided) {
  if (decided.agrees !== false || decided.again === undefined) return null;
  return h("table", { class: "sums lying" },
    h("tbody", null,
      h("tr", null, h("th", null, "record says"), h("td", { class: "value" }, verdictWord(decided.recorded))),
      h("tr", null, h("th", null, "numbers say"), h("td", { class: "value" }, verdictWord(decided.again)))));
}
/** The tests of a chain that decide together. */
function wholeTable(decided) {
  const { heads, rows, last, num } = decided.table;
  return h("table", { class: "laws block" },
    h("thead", null, h("tr", null, ["token", ...heads].map((x) => h("th", { scope: "col" }, x)))),
    h("tbody", null,
      rows.map((row) =>
        h("tr", { class: row.k === decided.k ? "tried" : null },
          h("th", { scope: "row" }, tokenOf(row.node.text, 12)),
          row.cells.map((x) => h("td", null, prob(x))),
          h("td", { class: row.ok ? "yes" : "no" },
            row.ok ? (row.k === last ? `u < ${num}, last` : `u < ${num}`) : `u ≥ ${num}`))
      )));
}
/** The line of the test, in one row or two; null if nothing was tested. */
function testRows(decided) {
  if (!decided.test) return null;
  const sign = decided.test[2], bad = decided.status === "reject" ? "bad" : decided.status === "accept" ? "good" : "";
  const [symbol, a, , b] = decided.test, [x, y] = typeof a === "number" ? formatApart(a, b) : [a || "", ""];
  const between = () => [decided.test[1], decided.test[3], decided.test[5]].map(prob)
    .map((v, k) => v + (k < 2 ? ` ${decided.test[2 + 2 * k]} ` : "")).join("");
  const shown = decided.test.length > 4 ? between() : a === null ? `${sign} token` : `${x} ${sign} ${y}`;
  const value = h("td", { class: "value " + bad }, shown), code = h("td", null, h("code", null, symbol)),
    row = h("tr", { class: "test" }, h("th", { scope: "row" }, decided.word || "test"), code);
  const long = symbol.length + shown.length > 29; // then the numbers have a row of their own
  if (long)
    set(code, { colspan: 2 }), set(value, { colspan: 3 });
  return long ? [row, h("tr", { class: "numbers" }, value)] : (row.append(value), row);
}
/** The distributions at the place of a decision, and the next trial. */
function rightSide(context, store, step, decided, half) {
  const right = [];
  if (decided.laws) {
    const residual = decided.laws.left, chance = step.proposal === "onehot" || decided.form === "greedy";
    const title = residual ? (OWN.has(decided.status) ? "What was left" : "Residual distribution")
      : decided.laws.drawn ? "Both distributions at this place"
      : decided.form === "greedy" ? "The target's distribution before the sampler" : "The target's distribution here";
    // a record has the distribution before a greedy sampler, which leaves one token, and else the one after the sampler
    const before = (step.sampler ?? store.head.parts?.sampler)?.greedy,
      known = `${before ? "model distribution, before" : "sampling distribution, after"} the sampler; `
        + `p has an entropy of ${prob(decided.laws.entropy)} nats`;
    const note = !residual ? known
      : chance ? "p without what was rejected"
      : decided.laws.total === null ? ""
      : `∝ max(0, ${decided.numbers.some((n) => n[1] === "r(x)") ? "r" : "p"} − q), `
        + `${prob(decided.laws.total)} in all`;
    right.push(...distributionTable(decided.laws, title, note, half < 300 ? 8 : 12));
    if (decided.status === "reject" && !residual && decided.form === "drawn")
      right.push(h("p", { class: "line" }, "What was left after that many rejections is not in the record."));
  } else if (decided.form !== "root" && decided.status !== "unreached" && (step.few || step.cut))
    right.push(h("p", { class: "quiet" }, context.absent(store, "The distributions at this place")));
  if (decided.then) {
    const next = decided.then, num = next.num ?? next.r, den = next.den ?? next.q,
      drawn = num !== null && next.u !== null && den && decided.form === "drawn",
      [a, b] = drawn ? formatApart(next.u, num / den) : [];
    const numbers = drawn
      ? `${next.parent === decided.after?.id && decided.status === "reject" ? " against what is left" : ""}: ${a} `
        + `${next.u * den < num ? "<" : "≥"} ${b}` : "";
    right.push(
      h("p", { class: "then" }, glyph(next.status), " Then ", tokenOf(next.text, 12),
        `${numbers}, ${statusWord(next.status, next.u !== null)}`)
    );
  }
  return right;
}
/** The content of a decision's card: the test on the left, the residual and the next token on the right. */
function cardOf(context, store, step, decided, width, two) {
  const half = two ? Math.floor((width - 32) / 2) : width;
  const odds = decided.box && decided.box.u !== undefined && decided.box.box > 0
    ? Math.min(1, decided.box.ink / decided.box.box) : null;
  const where = [decided.id !== undefined && !OWN.has(decided.status) ? `node ${decided.id}` : "",
    decided.depth ? `depth ${decided.depth}` : "", decided.tried].filter(Boolean).join(", ");
  const after = decided.after ? [where ? " after " : "after ", tokenOf(decided.after.text, 12)]
    : decided.where ? [decided.where] : [];
  const left = [
    shell(decided.status, decided.title, tokenOf(decided.text, 16), [where, ...after], decided), lieOf(decided),
    decided.box ? arrow(decided.box, half, decided.status) : decided.line ? stretch(decided.line, half) : null,
    odds !== null ? h("p", { class: "odds" }, odds >= 1 ? h("span", null, "accepts any u")
      : [h("span", null, `accept ${(100 * odds).toFixed(1)} %`),
        h("span", null, `reject ${(100 * (1 - odds)).toFixed(1)} %`)]) : null,
    decided.numbers?.length ? numbersTable(decided.numbers, testRows(decided)) : null,
    decided.table ? wholeTable(decided) : null,
    decided.lines.map((line) => h("p", { class: "line" }, line)), notesOn(store.head, step, decided.id ?? 0)];
  const right = rightSide(context, store, step, decided, half);
  return two && right.length ? [h("div", null, left), h("div", null, right)] : [left, right];
}
function notesOn(head, step, id) {
  const rows = nodeNotes(head, step, id);
  return rows.length ? [h("h3", null, "Noted"), numbersTable(rows)] : null;
}
/** A pass over a row of places that is settled from its beginning on. */
function chainCard(step, at) {
  const { form, before, after, fixed, words, which } = step.chain, agrees = rederives(step, null),
    verdict = { agrees, recorded: fixed, again: fixedOf(step) }, { title = "", heads = [], hint } = form;
  return [shell("", title, `${fixed} of ${after.length} final`, "", verdict),
    agrees === false
      ? h("p", { class: "line" }, `The record says ${fixed}, the guesses say ${verdict.again}.`) : null,
    h("table", { class: "laws block" },
      h("thead", null,
        h("tr", null, ["", ...heads, ""].map((x) => h("th", { scope: "col", class: x && "word" }, x)))),
      h("tbody", null,
        after.map(([, text], k) =>
          h("tr", { class: k + 1 === at ? "tried" : null }, h("th", { scope: "row" }, String(k + 1)),
            h("td", { class: "word" }, before[k] ? tokenOf(before[k][1], 10) : "–"),
            h("td", { class: "word" }, tokenOf(text, 10)),
            h("td", { class: k < fixed ? "yes" : "" },
              words[which[k]]))))),
    hint ? h("p", { class: "line" }, hint) : null];
}
/** The step's own trials, as a card, or below another one. */
const tallyCard = (context, store, step, at, under, tally = step.tally) => [
  under ? h("h3", null, tally.title)
    : shell("", tally.title, step.made[0] ? tokenOf(step.made.map(([, text]) => text).join(""), 24) : "",
      tally.says, { agrees: tallyAgrees(tally) }),
  ...tallyOf(tally, () => context.absent(store, "What was tried"), under ? 0 : at)];

/** The decision behind one node. It shows the first rejection of a step until a node is chosen. */
export function cardView(context) {
  const body = h("div", { class: "decision-body" });
  const element = h("aside", { class: "decision", tabindex: -1, role: "region", "aria-label": "decision" }, body);
  let drawn = null, drawnAs = "", wide = 0;
  /** A card of a part; empty until the part is loaded; the next drawing tries again. */
  const ofPart = (name, card, ...of) => {
    const given = extra(name);
    if (!given) drawn = null;
    return given?.[card](...of) ?? [];
  };
  return {
    element,
    focus: () => element.focus(),
    look: () => (wide = element.clientWidth),
    restyle: () => (drawn = null),
    draw(store, i) {
      const step = store.steps[i], at = context.chosen(store, i);
      see(element, store.count);
      if (!step)
        return void ((drawn = null),
          body.replaceChildren(h("p", { class: "quiet" }, store.count ? context.absent(store, "This step") : "")));
      const inner = Math.max(200, wide - 40), two = inner >= 620,
        as = `${i} ${at} ${inner} ${context.selection?.step === i}`;
      if (drawn === step && drawnAs === as) return;
      drawn = step;
      drawnAs = as;
      let parts;
      if (!step.nodes) parts = [h("p", { class: "quiet" }, context.absent(store, "What was decided in this step"))];
      else if (step.canvas) parts = ofPart("canvas", "canvasCard", store, i, at);
      else if (step.chain) parts = chainCard(step, at);
      else if (step.branches) parts = ofPart("trees", "branchCard", store, i, step, at);
      else if (step.threads) {
        parts = ofPart("threads", "threadsCard", store, i, step, at);
        if (step.tally) parts.push(tallyCard(context, store, step, at, true));
      } else if (step.tree) parts = ofPart("trees", "searchTreeCard", context, store, step, at, tallyCard);
      else if (step.tally) parts = tallyCard(context, store, step, at);
      else {
        const decided = at === null ? null : decision(step, store.head, at);
        if (decided && store.head?.levels && !store.head.levels.includes("decisions"))
          parts = [h("p", { class: "quiet" }, "This run was recorded without its decisions.")];
        else parts = decided ? cardOf(context, store, step, decided, inner, two)
            : [h("p", { class: "quiet" }, step.cut ? context.absent(store, "This node") : "Nothing was decided here.")];
        if (step.turn) parts.push(tallyCard(context, store, step, at, true, step.turn));
      }
      body.classList.toggle("two", two && parts.length === 2 && parts[0] instanceof Element);
      body.replaceChildren(...parts.flat(5).filter(Boolean));
    },
  };
}
