/* What the card says of one node, from the record alone. */
import { blockOf, exact, judged, planOf, rederives } from "./judge.js";
import { lawsAt } from "./laws.js";
import { prob } from "./numbers.js";
import { nodesOf } from "./store.js";
import { spoken } from "./tokens.js";

/** Where a reader looks first: a refusal, else the target's own token, else the last kept. */
export function firstOf(step) {
  if (!step || !step.nodes) return null;
  if (step.iteration || step.beams) return 1;
  const nodes = nodesOf(step);
  return (nodes.find((n) => n.status === "reject" && n.r !== null) || nodes.find((n) => OWN.has(n.status)) || nodes[step.verdict.path.at(-1)] || nodes[0])?.id ?? null;
}
export const OWN = new Set(["bonus", "resample", "target"]);

/** What the card says of one node. */
export function decision(step, rule, id, method = {}) {
  if (step.by) (rule = step.by.name), (method = { acceptance: step.by });
  const nodes = nodesOf(step), by = new Map(nodes.map((n) => [n.id, n])), node = by.get(id);
  if (!node || node.status === "root") return node ? { form: "root", status: "root", title: "Root", text: node.text, where: "the last token before this step", lines: ["The step starts here: the target reads this token and everything drafted after it in one pass."] } : null;
  const depthOf = (n) => (n && n.parent >= 0 ? 1 + depthOf(by.get(n.parent)) : 0);
  const family = nodes.filter((n) => n.parent === node.parent && !OWN.has(n.status));
  const refused = (upto) => family.filter((n) => n.r !== null && n.status === "reject" && n.id <= upto);
  const made = { form: "plain", status: node.status, title: "", text: node.text, id, depth: depthOf(node), after: by.get(node.parent), lines: [], numbers: [], agrees: null };
  const said = (n) => "“" + spoken(n.text) + "”";
  if (OWN.has(node.status)) return extraOf(step, rule, node, made, refused(Infinity));
  const trial = step.verdict.tried.indexOf(id), again = judged(step, rule, node);
  const recorded = trial < 0 ? null : step.verdict.ok ? !!step.verdict.ok[trial] : node.status !== "reject";
  made.tried = family.length > 1 && trial >= 0 ? `tried ${family.filter((n) => n.r !== null && step.verdict.tried.indexOf(n.id) <= trial).length} of ${family.length}` : "";
  made.title = node.status === "accept" ? "Accepted" : node.status === "reject" ? "Rejected" : "Not reached";
  if (step.forced?.includes(id)) {
    made.title += ", forced";
    made.lines.push("Forced in a fork: nothing was tested.");
    return made;
  }
  if (again !== null && recorded !== null) Object.assign(made, { agrees: again === recorded, recorded, again });
  const next = nodes.find((n) => n.id === step.verdict.tried[trial + 1]) || nodes.find((n) => OWN.has(n.status));
  if (trial >= 0 && next) made.then = next;

  if (trial < 0) {
    const parent = by.get(node.parent), kept = family.find((n) => n.status === "accept" && n.id !== id);
    const own = nodes.some((n) => OWN.has(n.status));
    made.numbers = [["draft", "q(x)", node.q]];
    if (kept) made.lines.push(`${said(kept)} was accepted at the same place before its turn came.`);
    else if (parent && parent.status === "reject") made.lines.push(`It continues ${said(parent)}, which was rejected.`);
    else if (parent && parent.status === "unreached") made.lines.push(`It continues ${said(parent)}, which was not reached either.`);
    else made.lines.push(own ? "The verdict was settled without it." : "The text ended before its turn came.");
    made.lines.push("The target read it all the same, in the same pass: that is the price of a wide draft.");
    return made;
  }
  if (rule === "block" && step.rule) {
    const block = blockOf(step), k = trial + 1;
    Object.assign(made, { form: "block", block, k });
    if (block) {
      made.agrees = rederives(step, rule);
      made.lines.push(`A weight w goes down the block and says how well all of it is backed so far. Every place has a test, and the last success repairs the failures above it: ${block.last} of ${block.rows.length} stay.`);
      if (node.status === "accept" && !recorded) made.title = "Accepted, repaired below";
    }
    made.laws = lawsAt(step, node.parent, []);
    return made;
  }
  if (rule === "typical" && step.rule) {
    if (recorded && node.status !== "accept") made.title = "Passed, not taken";
    made.form = "typical";
    made.laws = lawsAt(step, node.parent, []);
    const { epsilon, delta } = method.acceptance || {};
    made.numbers = [["target", "p(x)", node.p]];
    if (made.laws && epsilon !== undefined) made.numbers.push(["entropy", "H(p), nats", made.laws.entropy]);
    made.numbers.push(["bound", epsilon !== undefined ? `min(${epsilon}, ${delta}·e⁻ᴴ)` : "b", node.threshold]);
    made.test = ["p(x) > bound", node.p, again ? ">" : "≤", node.threshold];
    made.box = { ink: node.p, box: 1, mark: node.threshold };
    if (made.title === "Passed, not taken") made.lines.push("It passed, but another path of passed tokens is longer, or as long and likelier.");
    made.lines.push("Kept is what the target finds likely enough; nothing is drawn. This rule changes the text.");
    return made;
  }
  if ((rule === "leniency" || rule === "spectr") && step.rule) {
    const eased = rule === "leniency", plan = eased ? {} : planOf(step, node);
    const ink = eased ? step.rule.f?.[trial] ?? null : node.p, box = eased ? node.q : (plan.rho ?? 1) * node.q, name = eased ? "f" : "p";
    const spread = eased ? "q" : "(rho·q)";
    made.form = "drawn";
    made.numbers = [["target", "p(x)", node.p], eased ? ["raised", "f(r)", ink] : ["spread", "rho", plan.rho ?? null], ["draft", "q(x)", node.q]];
    made.numbers.push(["threshold", `${name} / ${spread}`, box ? ink / box : null], ["draw", "u", node.u]);
    made.test = [`u < ${name} / ${spread}`, node.u, node.u * box < ink ? "<" : "≥", box ? ink / box : Infinity];
    made.box = { ink, box, u: node.u, name };
    made.lines.push(eased ? "Leniency raises what the target still owes before the test, so more guesses stay. This rule changes the text."
      : `${plan.alive} guesses share one threshold: any of them stays in ${(100 * plan.A).toFixed(1)} of 100 cases; no rule does it in more than ${(100 * plan.optimum).toFixed(1)}.`);
    if (recorded && node.status !== "accept") {
      made.title = "Accepted, another copy taken";
      made.lines.push("The path goes on in another chain that holds the same token.");
    }
    made.laws = lawsAt(step, node.parent, []);
    return made;
  }
  if (exact(step)) {
    made.form = "greedy";
    made.laws = lawsAt(step, node.parent, []);
    const choice = nodes.find((n) => n.parent === node.parent && (OWN.has(n.status) || n.status === "accept"));
    made.numbers = [["draft", "proposes", node], ["target", "chooses", choice || null]];
    made.test = ["the same token", null, node.p === 1 ? "same" : "another", null];
    made.box = { ink: node.p, box: 1 };
    made.lines.push(`A greedy target has one choice. This is ${node.p === 1 ? "it, so the guess stays" : "not it, so the guess goes"}; nothing is drawn.`);
    return made;
  }
  const before = refused(node.id).filter((n) => n.id !== node.id), name = before.length ? "r" : "p";
  made.form = "drawn";
  made.numbers = [["target", "p(x)", node.p]];
  if (before.length) made.numbers.push(["still owed", "r(x)", node.r]);
  made.numbers.push(["draft", "q(x)", node.q], ["threshold", `${name} / q`, node.q ? node.r / node.q : null]);
  if (node.u !== null) {
    made.numbers.push(["draw", "u", node.u]);
    made.test = [`u < ${name} / q`, node.u, node.u * node.q < node.r ? "<" : "≥", node.q ? node.r / node.q : Infinity];
    const owes = before.length ? "still owes it" : "gives it", share = Math.round((100 * node.r) / node.q);
    made.lines.push(node.r >= node.q ? `The target ${owes} at least what the draft gave it, so it stays whatever is drawn.`
      : `The draft gave it ${prob(node.q)}, the target ${owes} ${prob(node.r)}: it stays in ${share || "less than one"} of 100 draws, and this draw was ${again ? "" : "not "}among them.`);
  } else made.test = [`${name} > 0`, node.r, node.r > 0 ? ">" : "=", 0];
  made.box = { ink: node.r, box: node.q, u: node.u, name };
  if (before.length) made.lines.push(`${before.length === 1 ? "One guess" : before.length + " guesses"} refused here before it: r is what the target's law still owes.`);
  if (step.rule?.j) made.lines.push(`Where this test fails the judge is asked: j = ${step.rule.j[trial].toFixed(2)}; above ${step.rule.t} it stays.`);
  made.laws = lawsAt(step, node.parent, node.status === "reject" ? refused(node.id) : []);
  return made;
}

/** The same for the token that the target added by itself. */
function extraOf(step, rule, node, made, refused) {
  const [u, low, high] = step.verdict.extra || [null, 0, 1];
  made.form = "extra";
  made.title = { bonus: "Bonus token", resample: u === null ? "The target's token" : "Drawn again", target: "The target's token" }[node.status];
  const residual = node.status === "resample" && rule === "lossless" && refused.length;
  made.laws = lawsAt(step, node.parent, residual && u !== null ? refused : []);
  if (u === null) {
    made.lines.push("The sampler is greedy: the target's most likely token is taken, nothing is drawn.");
    return made;
  }
  made.line = { u, low, high };
  made.agrees = low - 1e-12 <= u && u < high + 1e-12;
  made.again = made.agrees;
  made.recorded = true;
  made.numbers = [["draw", "u", u], ["interval", "from", low], ["", "to", high], ["probability", "to − from", high - low]];
  made.test = ["from ≤ u < to", low, "≤", u, "<", high];
  made.lines.push(
    residual ? `${refused.length === 1 ? "One guess was" : refused.length + " guesses were"} refused at this place. The token comes from what is left of the target's law, scaled to one.`
    : node.status === "bonus" ? "Every guess on the way was accepted. The same pass gave the target's law after the last one: one more token, free."
    : node.status === "resample" && (rule === "leniency" || rule === "spectr") ? "No guess stayed at this place. The token comes from what the rule left of the target's law."
    : node.status === "resample" ? (rule === "block" ? "The block ends here. The token comes from what the accepted part left of the target's law." : "No guess at this place passed. The token is drawn from the target's law.")
    : "The target draws one token from its own law.");
  return made;
}
