/* The content of one node's card, from the record alone. */
import { distributionsAt } from "./distributions.js";
import { rederives, testsOf } from "./judge.js";
import { isCertain } from "../notes/note_text.js";
import { prob } from "../shared/numbers.js";
import { nodesOf } from "../store.js";
import { visibleText } from "../shared/tokens.js";

/** Where a reader looks first: a rejection, else the target's own token, else the last kept. */
export function firstOf(step) {
  if (!step || !step.nodes) return null;
  if (step.chain || step.branches || step.threads || step.tally || step.tree)
    return (step.tree ?? step.tally)?.at ?? 1;
  if (step.canvas) return (step.canvas.now[0]?.[0] ?? step.canvas.among[0]) - step.canvas.at[0] + 1;
  const nodes = nodesOf(step);
  return (nodes.find((n) => n.status === "reject" && n.r !== null) || nodes.find((n) => OWN.has(n.status))
    || nodes[step.verdict.path.at(-1)] || nodes[0])?.id ?? null;
}
export const OWN = new Set(["bonus", "resample", "target", "draft"]);

/** The content of one node's card. */
export function decision(step, head, id) {
  const nodes = nodesOf(step), by = new Map(nodes.map((n) => [n.id, n])), node = by.get(id);
  if (!node || node.status === "root")
    return node
      ? { form: "root", status: "root", title: "Root", text: node.text, where: "the last token before this step",
        lines: ["The step starts here: the target reads this token and everything drafted after it in one pass."] }
      : null;
  const depthOf = (n) => (n && n.parent >= 0 ? 1 + depthOf(by.get(n.parent)) : 0);
  const rode = (n) => step.passengers?.includes(n.id);
  const family = nodes.filter((n) => n.parent === node.parent && !OWN.has(n.status) && !rode(n));
  const refused = (upto) => family.filter((n) => n.r !== null && n.status === "reject" && n.id <= upto);
  const decided = { form: "plain", status: node.status, title: "", text: node.text, id, depth: depthOf(node),
    after: by.get(node.parent), lines: [], numbers: [], agrees: null };
  const said = (n) => "“" + visibleText(n.text) + "”";
  if (OWN.has(node.status)) return extraOf(step, testsOf(step, head), node, decided, refused(Infinity));
  const tests = testsOf(step, head), { telling } = tests, trial = tests.at(node),
    again = trial < 0 ? null : tests.stays(trial);
  const recorded = trial < 0 ? null : step.verdict.ok ? !!step.verdict.ok[trial] : node.status !== "reject";
  decided.tried = family.length > 1 && trial >= 0
    ? `tried ${family.filter((n) => n.r !== null && step.verdict.tried.indexOf(n.id) <= trial).length} of `
      + `${family.length}` : "";
  decided.title = node.status === "accept" ? "Accepted" : node.status === "reject" ? "Rejected"
    : rode(node) ? "Passenger" : "Not reached";
  if (step.forced?.includes(id)) {
    decided.title += ", forced";
    decided.lines.push("Forced in a fork: nothing was tested.");
    return decided;
  }
  if (again !== null && recorded !== null) Object.assign(decided, { agrees: again === recorded, recorded, again });
  const next = nodes.find((n) => n.id === step.verdict.tried[trial + 1]) || nodes.find((n) => OWN.has(n.status));
  if (trial >= 0 && next) decided.then = next;

  if (trial < 0) {
    const parent = by.get(node.parent), kept = family.find((n) => n.status === "accept" && n.id !== id);
    const own = nodes.some((n) => OWN.has(n.status));
    if (!isCertain(step)) decided.numbers = [["draft", "q(x)", node.q]];
    if (rode(node)) decided.lines.push("A passenger: it rode for later drafts.");
    else if (kept) decided.lines.push(`${said(kept)} was accepted at the same place before its turn came.`);
    else if (parent && parent.status === "reject")
      decided.lines.push(`It continues ${said(parent)}, which was rejected.`);
    else if (parent && parent.status === "unreached")
      decided.lines.push(`It continues ${said(parent)}, which was not reached either.`);
    else decided.lines.push(own ? "The verdict was settled without it." : "The text ended before its turn came.");
    decided.lines.push("The target read it all the same, in the same pass: that is the price of a wide draft.");
    return decided;
  }
  if (tests.matching) {
    decided.form = "greedy";
    decided.laws = distributionsAt(step, node.parent, []);
    const choice = nodes.find((n) => n.parent === node.parent && (OWN.has(n.status) || n.status === "accept"));
    decided.numbers = [["draft", "proposes", node], ["target", "chooses", choice || null]];
    decided.test = ["the same token", null, node.p === 1 ? "same" : "another", null];
    decided.box = { ink: node.p, box: 1 };
    decided.lines.push(
      "A greedy target has one choice. This is "
        + `${node.p === 1 ? "it, so the guess stays" : "not it, so the guess goes"}; nothing is drawn.`
    );
    return decided;
  }
  decided.word = telling?.title;
  const owed = !telling || telling.rest || telling.also; // a rejection leaves p, or r, minus q
  decided.laws = distributionsAt(step, node.parent, owed && node.status === "reject" ? refused(node.id) : []);
  if (tests.path === "last") wholeOf(decided, step, head, tests, trial);
  else if (tests.bounded(trial)) boundOf(decided, tests, trial);
  else drawnOf(decided, step, tests, trial, refused(node.id).filter((n) => n.id !== node.id));
  if (recorded && node.status !== "accept" && tests.path === "longest") {
    decided.title = "Passed, not taken";
    decided.lines.push("It passed, but another path of passed tokens is longer, or as long and likelier.");
  }
  for (const one of telling?.card ?? []) decided.lines.push(tests.said(trial, one) ?? "");
  if (recorded && node.status !== "accept" && tests.path === "copies") {
    decided.title = "Accepted, another copy taken";
    decided.lines.push("The path goes on in another chain that holds the same token.");
  }
  return decided;
}

/** The numbers of a trial as its rule lists them, without those that are not recorded. */
const testList = (tests, i) =>
  tests.telling.numbers.map(([word, symbol, value]) =>
    [word, tests.said(i, symbol) ?? tests.telling.den, tests.value(i, value)]).filter(([, , x]) => x !== null);

/** The number that u is compared with, in symbols. */
const ratioText = ({ num, den }) => (den ? `${num} / ${den.includes("·") ? `(${den})` : den}` : num);

/** A chain on which its tests decide together: the numbers are in a table. */
function wholeOf(decided, step, head, tests, trial) {
  const { telling } = tests, counted = telling.numbers.filter(([, symbol]) => symbol.some((part) => part[0] === "k"));
  const rows = tests.tried.map((node, i) => ({ k: i + 1, node,
    cells: counted.map(([, , value]) => tests.value(i, value)), ok: tests.passed(i) })
  );
  Object.assign(decided, { form: "whole", k: trial + 1, agrees: rederives(step, head) });
  decided.table = {
    heads: [...counted.map(([, symbol]) => symbol.filter((part) => typeof part === "string").join("")), ""],
    rows,
    last: tests.last(),
    num: telling.num,
  };
  if (decided.status === "accept" && !decided.recorded) decided.title = "Accepted, repaired below";
}

/** A test against a bound: nothing is drawn. */
function boundOf(decided, tests, i) {
  const { num } = tests.telling, share = tests.num(i), bound = tests.den(i);
  decided.form = "bound";
  decided.numbers = testList(tests, i);
  decided.test = [`${num}(x) > bound`, share, tests.passed(i) ? ">" : "≤", bound];
  decided.box = { ink: share, box: 1, mark: bound };
}

/** A test against a draw. before: the guesses that were rejected at its place before it */
function drawnOf(decided, step, tests, i, before) {
  const node = tests.tried[i], { telling } = tests, num = tests.num(i), den = tests.den(i), stays = tests.passed(i);
  const own = telling?.numbers.length > 0, name = !own && before.length ? "r" : telling?.num ?? "p",
    symbol = ratioText({ num: name, den: telling?.den ?? "q" });
  decided.form = "drawn";
  if (own) decided.numbers = testList(tests, i);
  else {
    decided.numbers = [["target", "p(x)", node.p]];
    if (before.length) decided.numbers.push(["residual", "r(x)", node.r]);
    // drawn without replacement, q is scaled to the residual of its siblings; the table shows q before the first draw
    const first = decided.laws?.rows.find((row) => row.token === node.token)?.q;
    if (before.length && step.proposal === "without_replacement") {
      if (first !== undefined) decided.numbers.push(["draft, first draw", "q(x), table", first]);
      decided.numbers.push([`draft, draw ${before.length + 1}`, "q(x), test", node.q]);
      decided.lines.push("The test's q is that of this draw: the tokens drawn before it are out, and the rest is "
        + "scaled to one. The table's q is that of the first draw.");
    } else decided.numbers.push(["draft", "q(x)", node.q]);
    if (isCertain(step)) decided.lines.push("The draft chose this token without a draw: the test takes q = 1.");
    decided.numbers.push(["threshold", symbol, den ? num / den : null]);
    if (node.u !== null) decided.numbers.push(["draw", "u", node.u]);
  }
  decided.test = node.u !== null ? [`u < ${symbol}`, node.u, stays ? "<" : "≥", den ? num / den : Infinity]
    : [`${name} > 0`, num, stays ? ">" : "=", 0];
  decided.box = { ink: num, box: den, u: node.u, name, side: telling?.den ?? "q",
    against: symbol.replaceAll(" / ", "/") };
  if (!own && node.u !== null && node.num === null && node.den === null) {
    const owes = before.length ? "has left for it" : "gives it", share = Math.round((100 * num) / den);
    const never = before.length ? "Nothing of the target's distribution is left for it"
      : "The target never writes it here";
    decided.lines.push(num === 0 ? `${never}: it never stays, whatever is drawn.`
      : num >= den ? `The target ${owes} at least what the draft gave it, so it stays whatever is drawn.`
      : `The draft gave it ${prob(den)}, the target ${owes} ${prob(num)}: it stays in ${share || "less than one"} of `
        + `100 draws, and this draw was ${stays ? "" : "not "}among them.`);
  }
  if (!own && before.length)
    decided.lines.push(
      `${before.length === 1 ? "One guess was" : before.length + " guesses were"} rejected here before it: r, the `
        + "residual, is what is left of the target's distribution."
    );
}

/** The same for the token that the target added by itself. */
function extraOf(step, { telling, given }, node, decided, refused) {
  const [u, low, high] = step.verdict.extra || [null, 0, 1];
  decided.form = "extra";
  decided.title =
    { bonus: "Bonus token", resample: u === null ? "The target's token" : "Drawn again",
      target: "The target's token", draft: "The small model's token" }[node.status];
  const who = node.status === "draft" ? "small model" : "target";
  if (node.status === "draft") decided.lines.push("The small model wrote it by itself: nobody checked it.");
  const residual = node.status === "resample" && telling?.rest && refused.length;
  decided.laws = distributionsAt(step, node.parent, residual && u !== null ? refused : []);
  if (u === null) {
    const sure = telling?.likeliest && given(telling.likeliest), known = decided.laws?.rows ?? [];
    const best = known.reduce((a, b) => (b.token !== null && b.p > (a?.p ?? 0) ? b : a), null);
    const own = known.find((row) => row.token === node.token)?.p;
    const most = `the ${who}'s most likely token is taken, nothing is drawn.`;
    decided.lines.push(sure ? `This rule adds what is surest: ${most}`
      : !best || own >= best.p ? `The sampler is greedy: ${most}`
      : `The sampler is greedy: of what it leaves of the ${who}'s distribution the likeliest is taken, nothing is `
        + `drawn. Before it “${visibleText(best.text)}” has ${prob(best.p)}, and this token `
        + `${own === undefined ? "less" : prob(own)}.`);
    return decided;
  }
  decided.line = { u, low, high };
  decided.agrees = low - 1e-12 <= u && u < high + 1e-12;
  decided.again = decided.agrees;
  decided.recorded = true;
  decided.numbers = [
    ["draw", "u", u],
    ["interval", "from", low],
    ["", "to", high],
    ["probability", "to − from", high - low],
  ];
  decided.test = ["from ≤ u < to", low, "≤", u, "<", high];
  decided.lines.push(
    residual
      ? `${refused.length === 1 ? "One guess was" : refused.length + " guesses were"} rejected at this place. The `
        + "token is drawn from the residual, what is left of the target's distribution, scaled to one."
      : node.status === "bonus"
      ? "Every guess on the way was accepted. The same pass gave the target's distribution after the last one: one "
        + "more token, free."
      : node.status === "resample" && telling?.path === "last"
      ? `The block ends here. The token comes from ${telling.left} the target's distribution.`
      : node.status === "resample"
      ? (telling?.left
        ? "No guess stayed here. The token is drawn from what the rule left of the target's distribution."
        : "No guess at this place passed. The token is drawn from the target's distribution.")
      : `The ${who} draws one token from its own distribution.`
  );
  return decided;
}
