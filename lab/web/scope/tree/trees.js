/* Trees: for a tree of text beginnings that grew within a step, its nodes and the terms by which each was chosen.
 * With tree_steps.js it is the part that draws the texts that a step followed. */
import { numbersTable } from "../card/arrow.js";
import { treeLines } from "./branches.js";
import { shell } from "../card/card.js";
import { oneLine } from "../text/characters.js";
import { capitalize, scopeOf, minusSigns } from "../details/declarations.js";
import { button, h, pool, s, say, see, set } from "../shared/elements.js";
import { bring } from "../shared/extras.js";
import { evaluate } from "../details/formulas.js";
import { tokenOf } from "../shared/marks.js";
import { plural, prob, share } from "../shared/numbers.js";
import { branchCard, branchesView } from "./tree_steps.js";

const ROW_PX = 26, REWARD_PX = 46; // px of a row, and of the numbers
const MOST_NODES = 96, MOST_CHOICES = 4; // rows, and choices of a card, at most
const TEXT_MS = 700; // of a node that is played
const ABSENT = "The tree of this search";

/** The header's declaration of a step's tree. */
const formOf = (store, step) => store.head.trees[step.tree.name];
/** The offset from a node to its displayed number: a first node without a token has no number. */
const shift = ({ parents, tokens }) => (parents[0] < 0 && !tokens[0] ? 0 : 1);
const isEmpty = ({ parents, tokens }, node) => parents[node] < 0 && !tokens[node];

/** A node for sentences and formulas. words: its outcome, if it differs from the final one. */
function nodeOf(tree, node) {
  const { columns, values = {}, knobs = {}, parents } = tree, parent = parents[node];
  const own = (name) => columns[name]?.[node] ?? values[name] ?? knobs[name]
    ?? (name === "k" ? node + shift(tree) : name === "depth" ? pathOf(tree, node).length : null);
  const above = (name) => (parent < 0 || isEmpty(tree, parent) ? 0 : columns[name]?.[parent] ?? null);
  return scopeOf(own, above);
}
/** The number of a node; 0 if it has none. */
const numberOf = (tree, form, node) => nodeOf(tree, node).value(form.number) ?? 0;

/** The candidates of a node by their scores: [{id, text, p, node, names, sum, closed}]. */
function childScores(tree, { growth }, { visits, values, closed, kids }, at) {
  return tree.offers[at].map(([id, text, p]) => {
    const node = kids[at].get(id), shut = node !== undefined && closed[node];
    const own = { ...tree.knobs, p, N: visits[at], n: node ? visits[node] : 0, q: node ? values[node] : 0 };
    const names = (name) => own[name] ?? null, sum = evaluate(growth.score, names);
    return { id, text, p, node, names, sum: shut || sum === null ? -Infinity : sum, closed: shut };
  });
}

const grownOnce = new WeakMap(); // a tree -> its state after each node that was looked at
/** The tree after its first `upto` nodes, grown again from candidates and numbers: {visits, values, closed, words,
 *  kids} by node, `best`: the node with the largest number so far, `walk`: the choices on the way to the last
 *  node, [{at, rows, taken}], `agrees`: whether each node is the one that was due. */
function growTree(tree, form, upto) {
  const all = grownOnce.get(tree) ?? new Map();
  grownOnce.set(tree, all);
  if (all.has(upto)) return all.get(upto);
  const { parents, tokens, offers, outcomes } = tree, open = firstWord(form, "open");
  const now = { visits: [1], values: [0], closed: [!offers[0].length], kids: [new Map()], best: 0, agrees: true,
    walk: [] };
  for (let born = 1; born <= upto; born++) {
    const number = numberOf(tree, form, born);
    now.walk = [];
    for (let at = 0; at !== undefined && offers[at].length;) {
      const rows = childScores(tree, form, now, at), sums = rows.map((row) => row.sum);
      const k = sums.indexOf(Math.max(...sums));
      now.walk.push({ at, rows, taken: k });
      at = rows[k].node;
    }
    const last = now.walk.at(-1);
    now.agrees &&= last?.at === parents[born] && last.rows[last.taken].id === tokens[born]?.[0];
    now.kids[parents[born]].set(tokens[born]?.[0], born);
    now.kids.push(new Map());
    now.visits.push(0), now.values.push(0), now.closed.push(!offers[born].length);
    for (let at = born; at >= 0; at = parents[at]) {
      now.visits[at]++;
      now.values[at] = Math.max(now.values[at], number);
      const mine = now.kids[at];
      now.closed[at] ||= offers[at].every(([x]) => mine.has(x) && now.closed[mine.get(x)]);
    }
    if (!now.best || number > numberOf(tree, form, now.best)) now.best = born;
  }
  now.words = now.closed.map((shut, node) =>
    (!offers[node].length ? outcomes[node] : shut ? form.growth.closed : open));
  if (all.size > 64) all.clear();
  all.set(upto, now);
  return now;
}
/** The first outcome of a fate. */
const firstWord = (form, fate) => Object.keys(form.outcomes).find((word) => form.outcomes[word].fate === fate) ?? "";
/** A tree that cannot be grown again, as it is at the end. */
function finishedState(tree, form, text) {
  const { parents, outcomes } = tree, kids = parents.map(() => new Map());
  parents.forEach((parent, node) => parent >= 0 && kids[parent].set(node, node));
  const lies = (node) => pathOf(tree, node).every((at, k) => tree.tokens[at][0] === text[k]?.[0]);
  const through = parents.map((_, node) => node).filter((node) => tree.tokens[node] && lies(node));
  return { kids, best: through.at(-1) ?? -1, agrees: null, walk: [], words: outcomes,
    closed: outcomes.map((word) => (form.outcomes[word]?.fate ?? "open") !== "open") };
}
const stateOf = (tree, form, upto, text) =>
  (form.growth ? growTree(tree, form, upto) : finishedState(tree, form, text));

/** From the first node to this one. */
function nodePath({ parents }, node) {
  const line = [];
  for (let at = node; at >= 0; at = parents[at]) line.unshift(at);
  return line;
}
/** The same, those that have a token. */
const pathOf = (tree, node) => nodePath(tree, node).filter((at) => tree.tokens[at]);
/** The text of a node, up to it. */
const textBefore = (tree, node) => pathOf(tree, node).map((at) => oneLine(tree.tokens[at][1])).join("");
/** A whole text: up to its node, and what followed. */
const textOf = (tree, node) => textBefore(tree, node) + oneLine(tree.rest[node]);

/** The nodes that are drawn, each after its parent, siblings with the likeliest first: [{node, depth}]; for a
 *  large tree the first ones, and those that lead to `must`. */
function layRows(tree, { kids }, upto, must) {
  const kept = new Set(must.filter((node) => node >= 0).flatMap((node) => nodePath(tree, node)));
  for (let node = 0; node <= upto && kept.size < MOST_NODES; node++) kept.add(node);
  const roots = tree.parents.flatMap((parent, node) => (parent < 0 && kept.has(node) ? [[node, 0]] : []));
  const rows = [], due = roots.reverse();
  while (due.length) {
    const [node, depth] = due.pop(), order = tree.offers?.[node].map(([id]) => kids[node].get(id));
    rows.push({ node, depth });
    const mine = (order ?? [...kids[node].keys()]).filter((kid) => kept.has(kid));
    due.push(...mine.reverse().map((kid) => [kid, depth + 1]));
  }
  return rows;
}

/** The numbers of all nodes as dots, and the best so far as a line. */
function drawRewards(svg, tree, form, upto, width) {
  const { count } = tree, x = (k) => 60 + ((k - 0.5) / count) * (width - 60), best = [];
  const y = (reward) => REWARD_PX - 8 - reward * (REWARD_PX - 16);
  let most = 0;
  const dots = Array.from({ length: upto }, (_, k) => {
    const reward = numberOf(tree, form, k + 1), better = k === 0 || reward > most;
    most = Math.max(most, reward);
    best.push(`${k ? "H" : "M"}${k ? x(k + 1) : `${x(1)},${y(most)}`}${k ? `V${y(most)}` : ""}`);
    return s("circle", { class: better ? "best" : null, cx: x(k + 1), cy: y(reward), r: better ? 4 : 2.5 });
  });
  const [none, all] = form.growth.scale;
  set(svg, { width, height: REWARD_PX });
  svg.replaceChildren(s("path", { class: "scale", d: `M52,${y(0)}H${width}M52,${y(1)}H${width}` }),
    s("path", { class: "best", d: best.join("") }), ...dots,
    ...[[1, all], [0, none]].map(([at, word]) => s("text", { class: "sub", x: 0, y: y(at) + 4 }, word)));
}

/** Writes one row of the tree: of a node with a token, or of the beginning of all texts. */
function writeRow(row, { node }, tree, form, state, { upto, chosen }) {
  const [n, meter, figure, words, why] = row.firstChild.childNodes, [before, token, rest] = words.childNodes;
  const has = !isEmpty(tree, node), number = has && form.number ? numberOf(tree, form, node) : null;
  const outcome = form.outcomes[state.words[node]], said = nodeOf(tree, node), shut = state.closed[node];
  const best = has && node === state.best, fresh = form.growth && has && node === upto && upto < tree.count;
  const label = node + shift(tree), wide = Math.max(0, Math.min(1, number ?? 0));
  say(n, has ? String(label) : "");
  set(meter, { style: `visibility:${number === null ? "hidden" : "visible"}` });
  set(meter.firstChild, { style: `width:${(100 * wide).toFixed(0)}%` });
  say(figure, number === null ? "" : minusSigns(said.first(form.short)));
  say(before, has ? textBefore(tree, tree.parents[node]) : form.root);
  say(token, has ? oneLine(tree.tokens[node][1]) : "");
  say(rest, oneLine(tree.rest[node]));
  say(why, [best ? (form.growth ? "★ best so far" : "★ the text") : "", fresh ? "new" : "",
    ...(outcome ? said.all(outcome.words) : [])].filter(Boolean).join(", "));
  set(row, { class: best ? "best" : shut ? "shut" : null });
  const worth = number === null ? "" : `, ${minusSigns(said.first(form.worth))}`;
  set(row.firstChild, { "aria-pressed": has && node === chosen, "aria-disabled": has ? null : true,
    title: has ? textOf(tree, node) : "",
    "aria-label": has ? `${form.noun} ${label}, depth ${pathOf(tree, node).length}${worth}: ${textOf(tree, node)}`
      : null });
}
/** Draws the lines of the tree next to its rows. */
function drawBranches(svg, drawn, tree, state, chosen, width) {
  const deepest = Math.max(1, ...drawn.map(({ depth }) => depth)), own = new Set(nodePath(tree, state.best));
  const stride = Math.max(5, Math.min(16, ((width < 560 ? 0.2 : 0.3) * width) / deepest));
  const place = new Map(drawn.map(({ node, depth }, k) => [node, [depth, k]]));
  const lines = drawn.map(({ node }) => ({ from: place.get(tree.parents[node]), at: place.get(node),
    own: node === chosen, kind: own.has(node) ? "won" : state.closed[node] ? "left" : "kept" }));
  treeLines(svg, lines, { stride, high: ROW_PX, deepest, rows: drawn.length });
}

/** The tree as rows, one per node, with its lines at the left; if it can be grown again, a slider goes through the
 *  nodes as they came. */
function searchTreeView(context) {
  const rewards = s("svg", { class: "rewards", "aria-hidden": "true" }),
    along = h("input", { type: "range", min: 1, class: "along" }), count = h("b");
  const now = h("p", { class: "won", role: "status" });
  const play = button("play", () => played(!timer), { class: "small", "aria-pressed": "false" });
  const svg = s("svg", { class: "lines", "aria-hidden": "true" }), list = h("ol", { class: "beams grown" });
  const rows = pool(list, () => h("li", null, h("button", { type: "button" }, h("span", { class: "quiet n" }),
    h("span", { class: "meter" }, h("i")), h("span", { class: "quiet rate" }), h("span", { class: "text" },
    h("span", { class: "both" }), h("b"), h("span", { class: "rest" })), h("span", { class: "quiet why" }))));
  const note = h("p", { class: "quiet" }), passing = h("div", { class: "passing" }, play, along, count);
  const element = h("div", { class: "grown-tree" }, passing, rewards, now, h("div", { class: "lineage" }, svg, list),
    note);
  let of = null, upto = 0, timer = 0, drawn = [];
  const show = (n) => ((upto = n), context.select(n));
  along.addEventListener("input", () => (played(false), show(Number(along.value))));
  list.addEventListener("click", ({ target }) => {
    const row = target.closest("li"), node = row ? drawn[[...list.children].indexOf(row)].node : 0;
    if (row && !isEmpty(of, node)) context.select(node + shift(of));
  });
  function played(on) {
    clearInterval(timer);
    const next = () => (element.isConnected && upto < of.count ? show(upto + 1) : played(false));
    timer = on ? setInterval(next, TEXT_MS) : 0;
    if (on) show(upto < of.count ? upto + 1 : 1);
    set(play, { "aria-pressed": on });
    say(play, on ? "pause" : "play");
  }
  /** The slider and its texts, after `upto` nodes. */
  function slide(tree, form, width) {
    set(along, { max: tree.count, "aria-label": `${form.nouns} that were judged` });
    if (Number(along.value) !== upto) along.value = upto;
    say(count, `${form.noun} ${upto} of ${tree.count}`);
    drawRewards(rewards, tree, form, upto, Math.max(120, width - 4));
  }
  return {
    element,
    /** Draws the tree of step i, and returns its nodes: [{id, parent}]. */
    draw(store, i, chosen, width) {
      const step = store.steps[i], { tree } = step, form = formOf(store, step), { parents } = tree, all = tree.count;
      for (const part of element.children) see(part, parents || part === note);
      if (!parents) return void say(note, context.absent(store, ABSENT));
      if (of !== tree) (upto = all), (of = tree);
      const last = form.growth ? upto : parents.length - 1, state = stateOf(tree, form, last, step.made);
      const ring = Math.min((chosen ?? 1) - shift(tree), last);
      see(passing, form.growth), see(rewards, form.growth);
      if (form.growth) slide(tree, form, width);
      drawn = layRows(tree, state, last, [state.best, ring, last]);
      drawn.forEach((row, k) => writeRow(rows.at(k), row, tree, form, state, { upto: last, chosen: ring }));
      rows.trim(drawn.length);
      drawBranches(svg, drawn, tree, state, ring, width);
      say(now, state.best < 0 ? "" : bestText(tree, form, state, last));
      see(now, state.best >= 0);
      say(note, drawn.length <= last ? `${plural(last + 1 - drawn.length, "node")} more are not drawn.` : "");
      return drawn.map(({ node }) => ({ id: node + shift(tree),
        parent: parents[node] < 0 ? -1 : parents[node] + shift(tree) }));
    },
  };
}
/** Which node is the best, or the text. */
function bestText(tree, form, { best }, upto) {
  const worth = form.number ? `${minusSigns(nodeOf(tree, best).first(form.worth))}, ` : "";
  return `${form.growth && upto < tree.count ? "Best so far" : form.won}: ${form.noun} ${best + shift(tree)}, ${worth}`
    + textOf(tree, best);
}

/** One choice on the way: the candidates, each with its score and the bar of its terms. */
function choiceTable(tree, { growth }, { at, rows, taken }) {
  const bars = growth.terms.filter(([, , , , bar]) => bar);
  const value = (row, [, formula]) => evaluate(formula, row.names) ?? 0;
  const most = Math.max(...rows.map((row) => bars.reduce((sum, term) => sum + value(row, term), 0)), 1e-9);
  const wide = (x) => `width:${((100 * x) / most).toFixed(1)}%`;
  const cell = (row, [, formula, form, tried]) => {
    const x = evaluate(formula, row.names);
    return x === null || (tried && !row.node) ? "–" : form === "share" ? share(x) : form === "g" ? String(x) : prob(x);
  };
  const heads = ["", ...growth.terms.map(([word]) => word), "sum"], behind = textBefore(tree, at);
  return [h("h3", null, behind ? "Behind " : "At the beginning", behind ? tokenOf(behind.slice(-24), 24) : null),
    h("table", { class: "laws terms-of" },
      h("thead", null, h("tr", null, heads.map((x) => h("th", { scope: "col" }, x)))),
      h("tbody", null, rows.map((row, k) => [
        h("tr", { class: k === taken ? "tried" : row.closed ? "rest" : null },
          h("th", { scope: "row" }, tokenOf(row.text, 10)),
          [...growth.terms.map((term) => cell(row, term)), row.closed ? "closed" : prob(row.sum)]
            .map((x) => h("td", null, x))),
        h("tr", { class: "stack" }, h("td", { colspan: heads.length }, bars.map((term, b) => h("span", {
          class: b + 1 < bars.length ? "q" : row.closed ? "shut" : "more", style: wide(value(row, term)) }))))])))];
}

/** Why a node was begun as it was: the choices that led to it, with their terms; and the step's tally. tallyCard:
 *  makes the card of a tally that does not describe the tree. */
function searchTreeCard(context, store, step, at, tallyCard) {
  const { tally } = step, { judged } = formOf(store, step), parts = nodeCard(context, store, step, at);
  const lines = judged ? tally?.lines.map((line) => h("p", { class: "line" }, line)) : null;
  return [tally && !judged ? tallyCard(context, store, step, at) : null, parts, lines];
}
function nodeCard(context, store, step, at) {
  const { tree } = step, form = formOf(store, step), { growth } = form;
  if (!tree.parents) return [h("p", { class: "quiet" }, context.absent(store, ABSENT))];
  const k = Math.max(1, Math.min(tree.count, at ?? 1)), node = k - shift(tree);
  const { walk, agrees } = growth ? growTree(tree, form, node) : { walk: [], agrees: null };
  const said = nodeOf(tree, node), about = said.all(form.about), left = walk.length - MOST_CHOICES;
  const figure = ([word, name, says]) => [said.first(word), name, said.first(says) || null];
  return [
    shell("", `${capitalize(form.noun)} ${k} of ${tree.count}`, tree.tokens[node] ? tokenOf(tree.tokens[node][1]) : "",
      `depth ${pathOf(tree, node).length}`, { agrees }),
    h("p", { class: "line" }, tokenOf(textOf(tree, node), 80)),
    form.figures.length ? numbersTable(form.figures.map(figure)) : null,
    about.length ? h("p", { class: "line" }, `${about.join("; ")}.`) : null,
    left > 0 ? h("p", { class: "quiet" }, `${plural(left, "choice")} before these went the same way.`) : null,
    walk.slice(-MOST_CHOICES).map((choice) => choiceTable(tree, form, choice)),
    [...form.card, ...(growth?.says ?? [])].map((one) => said.first([one])).filter(Boolean)
      .map((line) => h("p", { class: "line" }, line)),
  ];
}

bring("trees", { branchCard, branchesView, searchTreeCard, searchTreeView });
