/* Cascade: the answers of a small model, what a router made of them, and what each branch cost. */
import { button, figures, h, pool, say, see, set } from "./elements.js";
import { bring } from "./extras.js";
import { tokenOf } from "./marks.js";
import { grouped, percent, plural, prob } from "./numbers.js";
import { scaled } from "./roof.js";
import { spoken } from "./tokens.js";

const STANDS = { 1: "the answer is likelier", 0: "they are alike", "-1": "the answer is less likely" };

/** What became of answer k, in words. */
function becameOf({ kept, chosen, answers }, k) {
  const [, , form, ended] = answers[k], many = new Set(answers.map((x) => x[2])).size > 1;
  return [k === chosen ? (kept ? "kept: it is the text" : "the best, not kept") : "", many ? `form ${form + 1}` : "",
    ended ? "" : "cut at the limit"].filter(Boolean).join(", ");
}

/** What the branches cost up to step i: [{name, rows, flops, passes}, ...], the small model first; `lacks`: steps whose
 *  passes are not here. */
export function branches(store, i) {
  const sums = { draft: { rows: 0, flops: 0, passes: 0 }, target: { rows: 0, flops: 0, passes: 0 } };
  let lacks = 0;
  for (const all of [store.head?.passes ?? [], ...store.steps.slice(0, i + 1).map((step) => step?.passes)]) {
    if (!all) lacks++;
    for (const { lane, rows, flops, n } of all ?? []) {
      const sum = sums[lane];
      if (sum) (sum.rows += rows), (sum.flops += flops), (sum.passes += n);
    }
  }
  return { small: sums.draft, large: sums.target, lacks };
}

/** Who answered at first, and what became of it, in one sentence. */
function ruling({ score, tau, above, kept, number, asked }) {
  const sign = score === tau ? "=" : score > tau ? ">" : "<";
  const why = `${number} ${prob(score)} ${sign} tau ${prob(tau)}`;
  return !asked ? `The small model was not asked: ${why}. The large model answers.`
    : kept ? `${why}: the answer is kept, the large model is not asked.`
    : `${why}: ${above ? "too little" : "too much"}, so the large model is asked and answers anew.`;
}

/** The answers as rows of one axis, with the line of tau, and below them the price of both models. Shown where a
 *  cascade ran. */
export function cascadeView(context) {
  const sums = figures(), body = h("tbody"), tau = h("th", { scope: "col", class: "axis" });
  const number = h("th", { scope: "col" }), head = h("tr", null, h("th", { scope: "col" }, "answer"), tau, number,
    h("th", { scope: "col" }, ""));
  const table = h("table", { class: "answers" }, h("caption", { class: "unsaid" }, "Answers of the small model"),
    h("thead", null, head), body);
  const rows = pool(body, () => h("tr", null, h("th", { scope: "row" }),
    h("td", { class: "axis" }, h("span", { class: "fill" }), h("i", { class: "tau" })), h("td", { class: "n" }),
    h("td")));
  const said = h("p", { class: "took" }), rule = h("p", { class: "quiet" }), note = h("p", { class: "quiet" });
  const costs = h("tbody"), priced = pool(costs, () => h("tr", null, h("th", { scope: "row" }),
    h("td", { class: "axis" }, h("span", { class: "fill" })), h("td", { class: "n" }), h("td")));
  const heads = ["model", "operations", "", "rows and passes"].map((x) => h("th", { scope: "col" }, x));
  const prices = h("table", { class: "answers prices" }, h("caption", null, "Price of each branch"),
    h("thead", { class: "unsaid" }, h("tr", null, heads)), costs);
  const element = h("section", { class: "cascade-pane", "aria-label": "cascade" }, h("header", null,
    h("h2", null, "Cascade"),
    h("span", { class: "quiet" }, "a small model answers, a large one where that is not enough"),
    sums.element), table, said, rule, prices, note);

  /** An answer as the name of its row; pressed, the card tells it. */
  const answered = (step, k, text) => ({ of: `${step} ${k} ${text}`, element: () => button(tokenOf(text, 60),
    () => context.ring({ step, node: k + 1 }),
    { class: "answer", "aria-label": `answer ${k + 1}: ${spoken(text)}` }) });
  /** One row: its name, its bar from 0 to 1 of the axis, the number, and words. */
  function row(line, cls, name, share, figure, words) {
    const [first, bar, value, last] = line.childNodes;
    set(line, { class: cls || null });
    if (typeof name === "string") say(first, name), delete first.dataset.of;
    else if (first.dataset.of !== name.of) first.replaceChildren(name.element()), (first.dataset.of = name.of);
    set(bar.firstChild, { style: `width:${(100 * Math.max(0, Math.min(1, share ?? 0))).toFixed(1)}%` });
    see(bar.firstChild, share !== null);
    say(value, figure);
    say(last, words);
  }
  function draw(store, i) {
    const at = store.steps.findIndex((step) => step?.cascade), one = store.steps[at]?.cascade;
    see(element, one);
    if (!one) return;
    const { answers, compared = [], asked } = one, known = answers ?? [];
    const most = 1.08 * Math.max(one.tau, one.score, ...known.map((x) => x[1] ?? 0), 1e-9);
    element.style.setProperty("--tau", `${((100 * one.tau) / most).toFixed(1)}%`);
    say(number, one.number);
    say(tau, one.above ? `kept from tau ${prob(one.tau)} on` : `kept up to tau ${prob(one.tau)}`);
    const list = known.map(([text, score, , , tokens], k) => [k === one.chosen ? (one.kept ? "kept" : "lost") : "other",
      answered(at, k, text), score === null ? null : score / most, score === null ? "–" : prob(score),
      [plural(tokens, "token"), becameOf(one, k)].filter(Boolean).join(", ")]);
    if (!asked) list.push(["lost", "not asked", one.score / most, prob(one.score), "by what was bet before"]);
    compared.forEach(([right, weight, judged], k) => list.push(["voted",
      `reference ${k + 1}, ${right ? "right" : "wrong"}`, null,
      (weight > 0 ? "+" : "") + prob(weight), STANDS[judged]]));
    list.forEach((line, k) => row(rows.at(k), ...line));
    rows.trim(list.length);
    say(said, answers ? ruling(one) : context.absent(store, "What the small model answered"));
    say(rule, one.rule + (one.wrong === undefined ? ""
      : ` The chance that the small model is wrong was put at ${prob(one.wrong)}.`));
    const { small, large, lacks } = branches(store, i), all = small.flops + large.flops;
    const cost = ({ flops, rows, passes }) => [all ? flops / all : null, flops ? `${scaled(flops)}FLOP`.trim() : "–",
      rows ? `${plural(rows, "row")} in ${plural(passes, "pass").replace("passs", "passes")}` : "not asked"];
    row(priced.at(0), "by-small", `small, ${store.head.lanes.draft?.name ?? "draft"}`, ...cost(small));
    row(priced.at(1), "by-large", `large, ${store.head.model.name ?? "target"}`, ...cost(large));
    row(priced.at(2), "by-sum", "together", ...cost({ flops: all, rows: small.rows + large.rows,
      passes: small.passes + large.passes }));
    say(note, `${i < store.count - 1 || !store.end ? `Up to step ${i}. ` : ""}`
      + `${lacks ? `The passes of ${plural(lacks, "step")} are not here. ` : ""}`
      + (all && large.flops ? `The small model's part is ${percent(small.flops / all)}`
        + `${one.kept || !asked ? "" : ", and its answers are not used"}.` : ""));
    sums.tell([[grouped(asked), asked === 1 ? " answer" : " answers"],
      [one.kept ? "small" : "large", " model wrote the text"]]);
  }
  return { element, draw };
}

bring("cascade", { cascadeView });
