/* Tree steps: a tree that grows over steps. It shows the nodes of one step with their texts and the nodes that
 * they continue; and all nodes as one tree: which continued, which were left and why, and which won. */
import { numbersTable } from "../card/arrow.js";
import { treeLines } from "./branches.js";
import { shell } from "../card/card.js";
import { oneLine, joinTokens, tailOf } from "../text/characters.js";
import { capitalize, scopeOf, minusSigns } from "../details/declarations.js";
import { h, pool, s, say, see, set, toggle } from "../shared/elements.js";
import { tokenOf } from "../shared/marks.js";
import { plural } from "../shared/numbers.js";

const LEVEL = 26, STRIDE = 16; // px between two nodes, and between two steps
const ENDED = 4; // ended nodes that are shown at most: the last ones
const LETTER = 8, BESIDE = 205, GROUP = 70; // px of a letter, of the words next to a text, and of its group
const BRANCH_PX = 26, MOST_BRANCHES = 96; // px of a row of the whole tree, and rows at most
const DOTTED = 8; // px of a step that has room for a dot

/** The header's declaration of the tree of step i. */
const formAt = (store, i) => store.head.trees[store.steps[i].branches.name];
/** The tree of the step before; undefined if that step has not come, null if it has none of this name. */
function treeBefore(store, i) {
  const before = store.steps[i - 1];
  if (i > 0 && !before) return undefined;
  return before?.branches?.name === store.steps[i].branches.name ? before.branches : null;
}
/** Node k of step i among those of a fate ("open", "ended", "left"), for sentences and formulas. */
function nodeAt(store, i, k, fate = "open") {
  const { branches } = store.steps[i], part = branches[fate], before = treeBefore(store, i), parent = part.parents[k];
  const own = (name) => part.columns[name]?.[k] ?? branches.values?.[name] ?? branches.knobs?.[name]
    ?? (name === "k" ? k + 1 : null);
  const above = (name) =>
    (before === undefined ? null : before === null || parent < 0 ? 0 : before.open.columns[name]?.[parent] ?? null);
  return scopeOf(own, above);
}
/** The number of such a node; null if it has none. */
const numberAt = (store, i, k, fate) => nodeAt(store, i, k, fate).value(formAt(store, i).number);
/** The same, written. */
const worthAt = (store, i, k, fate) => minusSigns(nodeAt(store, i, k, fate).first(formAt(store, i).worth));
/** The group of node k of step i; null if there are none. */
const groupAt = (store, i, k) => store.steps[i].branches.open.columns[formAt(store, i).group]?.[k] ?? null;

/** Node k of step i and the nodes before it, oldest first, as far as the steps have come: [{step, rank, token:
 *  [id, text]}]. */
function lineage(store, i, k) {
  const line = [];
  for (let at = i, rank = k; store.steps[at]?.branches; at--) {
    const { tokens, parents } = store.steps[at].branches.open;
    if (!tokens[rank]) break;
    line.push({ step: at, rank, token: tokens[rank] });
    if (!treeBefore(store, at)) break;
    rank = parents[rank];
  }
  return line.reverse();
}
/** The tokens of a node that is not open: its own after those of its parent. */
function tokensOf(store, i, k, fate) {
  const { parents, tokens } = store.steps[i].branches[fate];
  const line = treeBefore(store, i) ? lineage(store, i - 1, parents[k]) : [];
  return [...line, { step: i, token: tokens[k] }];
}
/** Whether a line goes back to the beginning of all texts. */
const isWhole = (store, line) => !line.length || treeBefore(store, line[0].step) === null;

/** Which node is the text of step i, the last: {rank} of that step, {ended: {step, k}}, one of those that ended,
 *  or null. */
function winner(store, i) {
  const { made: text, branches } = store.steps[i];
  const same = (line) => line.length === text.length && line.every(({ token }, k) => token?.[0] === text[k][0]);
  if (!text.length) return null;
  const rank = branches.open.tokens.findIndex((_, k) => same(lineage(store, i, k)));
  if (rank >= 0) return { rank };
  const last = text.at(-1)[0], worth = ({ step, k }) => numberAt(store, step, k, "ended") ?? 0;
  const matching = endedBy(store, i).filter(({ step, k }) => store.steps[step].branches.ended.tokens[k]?.[0] === last
    && same(tokensOf(store, step, k, "ended")));
  return matching.length ? { ended: matching.reduce((best, one) => (worth(one) > worth(best) ? one : best)) } : null;
}
/** Nodes that ended up to step i: [{step, k}]. */
const endedBy = (store, i) => store.steps.slice(0, i + 1).flatMap((step, at) =>
  (step?.branches?.ended?.tokens ?? []).map((_, k) => ({ step: at, k })));
/** The outcome of a node that is not open, in words. */
const fateAt = (store, i, k, fate) => nodeAt(store, i, k, fate)
  .all(formAt(store, i).outcomes[store.steps[i].branches[fate].outcomes[k]]?.words ?? []).join(", ") || fate;

/** Rows of nodes, best first, with the lines of the last steps at their left; choose(k) when one is chosen. */
function stepView(choose) {
  const svg = s("svg", { class: "lines", "aria-hidden": "true" }), list = h("ol", { class: "beams" });
  const rows = pool(list, () => h("li", null, h("button", { type: "button" }, h("span", { class: "quiet" }),
    h("span", { class: "both" }), h("span"), h("b"))));
  list.addEventListener("click", ({ target }) =>
    target.closest("li") && choose([...list.children].indexOf(target.closest("li"))));
  const over = h("ul", { class: "over" }), left = h("ul", { class: "pruned" });
  const won = h("p", { class: "won", role: "status" });
  const element = h("div", { class: "hypotheses" }, h("div", { class: "lineage" }, svg, list), left, over, won);

  function line(store, i, k, own, both, room, { best, chosen }) {
    const cut = tailOf(own.map(({ token }) => token[1]), isWhole(store, own), room), group = groupAt(store, i, k);
    const [figures, alike, apart, last] = rows.at(k).firstChild.childNodes, split = Math.max(0, both - cut.from);
    const { pieces, before } = cut;
    const from = [group === null ? "" : `group ${group + 1}`, fromOf(store, i, k, "open")].filter(Boolean);
    say(figures, `${k + 1}  ${worthAt(store, i, k)}  ${from.join(", ")}  `);
    say(alike, before + pieces.slice(0, Math.min(split, pieces.length - 1)).join(""));
    say(apart, pieces.slice(split, -1).join(""));
    say(last, pieces.at(-1) ?? "");
    set(rows.at(k).firstChild, { "aria-pressed": chosen,
      title: joinTokens(own.map(({ token }) => token[1])).map(oneLine).join(""), class: best ? "best" : null });
  }
  /** The lines between nodes: ranks of the last steps below each other, those that lead to a kept row darker,
   *  those of the chosen one in ink. */
  function draw(store, i, lines, chosen, back) {
    const begin = Math.max(0, i - back + 1), kept = new Set(lines.flat().map(({ step, rank }) => `${step} ${rank}`)),
      own = new Set((lines[chosen] ?? []).map(({ step, rank }) => `${step} ${rank}`)), strokes = [], dots = [];
    const at = (step, rank) => [(step - begin + 0.5) * STRIDE, (rank + 0.5) * LEVEL];
    let most = 0;
    for (let step = begin; step <= i; step++)
      store.steps[step]?.branches?.open.tokens.forEach((_, rank) => {
        const key = `${step} ${rank}`, kind = own.has(key) ? "own" : kept.has(key) ? "kept" : "left";
        const [x, y] = at(step, rank);
        most = Math.max(most, rank + 1);
        dots.push(s("circle", { class: kind, cx: x, cy: y, r: kind === "left" ? 2 : 3 }));
        if (step === begin || !treeBefore(store, step)) return;
        const [px, py] = at(step - 1, store.steps[step].branches.open.parents[rank]), middle = (px + x) / 2;
        strokes.push(s("path", { class: kind, d: `M${px},${py}C${middle},${py} ${middle},${y} ${x},${y}` }));
      });
    const order = (one) => ["left", "kept", "own"].indexOf(one.getAttribute("class"));
    svg.replaceChildren(...strokes.sort((a, b) => order(a) - order(b)), ...dots);
    set(svg, { width: (i - begin + 1) * STRIDE, height: most * LEVEL });
  }
  /** Which node of the step before a node continues; "" in the tree's first step. */
  const fromOf = (store, i, k, fate) =>
    (treeBefore(store, i) === null ? "" : `from ${store.steps[i].branches[fate].parents[k] + 1}`);
  /** A row of a node that is not open: figures, and the end of its text. */
  function other(store, i, k, fate, room, figures) {
    const line = tokensOf(store, i, k, fate);
    const { pieces, before } = tailOf(line.map(({ token }) => token?.[1] ?? ""), isWhole(store, line), room);
    return h("li", null, h("span", { class: "quiet" }, figures(line)), before, pieces.join(""));
  }
  return {
    element,
    /** width: px; chosen: a node, from 0. */
    draw(store, i, chosen, width) {
      const { branches, made: text } = store.steps[i], form = formAt(store, i), { tokens } = branches.open;
      const lines = tokens.map((_, k) => lineage(store, i, k));
      const longest = Math.max(0, ...lines.map((line) => line.length));
      const back = width < 560 ? 4 : 8, columns = Math.min(i + 1, back) * STRIDE;
      const room = Math.max(8, Math.floor((width - columns - BESIDE - (form.group ? GROUP : 0)) / LETTER));
      let both = 0; // tokens that all begin with
      while (both < longest && lines.every((line) => line[both]?.token[0] === lines[0][both].token[0])) both++;
      const best = text.length ? winner(store, i) : null;
      lines.forEach((own, k) => line(store, i, k, own, both, room, { best: best?.rank === k, chosen: k === chosen }));
      rows.trim(lines.length);
      draw(store, i, lines, chosen, back);
      see(left, branches.left);
      left.replaceChildren(...(branches.left?.tokens ?? []).map((_, k) => other(store, i, k, "left", room, () =>
        `${fateAt(store, i, k, "left")}  ${worthAt(store, i, k, "left")}  ${fromOf(store, i, k, "left")}  `)));
      const ended = endedBy(store, i).slice(-ENDED);
      see(over, ended.length);
      over.replaceChildren(...ended.map(({ step, k }) => other(store, step, k, "ended", room, (line) =>
        `${fateAt(store, step, k, "ended")} in step ${step}  ${worthAt(store, step, k, "ended")}  `
          + `${plural(line.length, "token")}  `)));
      say(won, best ? winnerText(store, i, best, text.length) : "");
      see(won, best);
    },
  };
}
/** Which node is the text, and its number.
 *  @param store
 *  @param {number} i
 *  @param {{rank?: number, ended?: any}} node
 *  @param {number} count */
function winnerText(store, i, { rank, ended }, count) {
  const { noun, won } = formAt(store, i);
  const which = ended ? `the ${noun} that ended in step ${ended.step}` : `${noun} ${rank + 1}`;
  const worth = ended ? worthAt(store, ended.step, ended.k, "ended") : worthAt(store, i, rank);
  return `${won}: ${which}, ${worth} over ${plural(count, "token")}.`;
}

/** A node of a tree that grows over steps. */
export function branchCard(store, i, step, at) {
  const { parents, tokens } = step.branches.open, form = formAt(store, i), before = treeBefore(store, i);
  const k = Math.min(tokens.length - 1, Math.max(0, at - 1));
  if (!tokens.length)
    return [shell("", `No ${form.noun} goes on`, "", "all texts have ended", { agrees: null })];
  const node = nodeAt(store, i, k);
  return [
    shell("", `${capitalize(form.noun)} ${k + 1} of ${tokens.length}`, tokens[k] ? tokenOf(tokens[k][1]) : "",
      before ? `goes on from ${form.noun} ${parents[k] + 1}` : "", { agrees: null }),
    numbersTable(form.figures.map(([word, name, says]) => [node.first(word), name, node.first(says) || null])),
    node.all(form.card).map((line) => h("p", { class: "line" }, line)),
  ];
}

/** Every node of the loaded steps: {nodes: [{step, rank, parent: node or null, token, score, group, kids, over:
 *  how it ended, why}], steps}; an ended node is a node of its own. more: include those that were left. */
function allNodes(store, more) {
  const nodes = [];
  let before = [], steps = 0;
  const add = (node) => (nodes.push(node), node.parent?.kids.push(node), node);
  for (; store.steps[steps]?.branches; steps++) {
    const { branches } = store.steps[steps], { open, ended, left } = branches, was = before;
    const form = formAt(store, steps), worth = (k) => numberAt(store, steps, k, "left");
    const born = (fate, k, rest) => {
      const part = branches[fate], parent = was[part.parents[k]] ?? null;
      return add({ step: steps, rank: null, token: part.tokens[k], parent, worth: worthAt(store, steps, k, fate),
        score: numberAt(store, steps, k, fate), group: parent?.group ?? null, kids: [], over: "", brief: "", why: "",
        ...rest });
    };
    before = open.tokens.map((_, k) => born("open", k, { rank: k, group: groupAt(store, steps, k) }));
    const over = (fate, k) => `${fateAt(store, steps, k, fate)}, ${worthAt(store, steps, k, fate)}`;
    ended?.tokens.forEach((_, k) => born("ended", k, { over: over("ended", k), ended: k }));
    was.filter((node) => !node.kids.length).forEach((node) => {
      const own = (left?.parents ?? []).map((parent, k) => (parent === node.rank ? worth(k) : null));
      const kept = before.filter(({ group }) => group === node.group).map(({ score }) => score);
      const best = own.filter((x) => x !== null), at = { own: best.length ? Math.max(...best) : null,
        bar: kept.length ? Math.min(...kept) : null };
      const reasons = scopeOf((name) => at[name] ?? null), brief = reasons.first(form.briefly);
      node.over = `left in step ${steps}`;
      node.brief = brief && `: ${minusSigns(brief)}`;
      node.why = minusSigns(reasons.first(form.why));
    });
    if (more) left?.tokens.forEach((_, k) => born("left", k, { over: over("left", k), left: true }));
  }
  return { nodes, before, steps };
}

const wordsOf = (nodes) => joinTokens(nodes.map(({ token }) => token?.[1] ?? "")).map(oneLine).join("");

/** The tree as branches, each continuing with the kid that leads to the winner, else with the one that lived
 *  longest: [{nodes, from: [depth, row] or null, kind, over, group}], each after the one that it leaves, the
 *  latest first. */
function branchesOf({ nodes, before, steps }, won, over) {
  const best = new Set(), deep = new Map();
  for (let at = won; at; at = at.parent) best.add(at);
  for (const node of [...nodes].reverse())
    deep.set(node, Math.max(node.step, ...node.kids.map((kid) => deep.get(kid))));
  const first = (a, b) => Number(best.has(b)) - Number(best.has(a)) || deep.get(b) - deep.get(a)
    || Number(!!a.left) - Number(!!b.left) || b.score - a.score;
  const alive = new Set(before), due = [], rows = [];
  const roots = nodes.filter((node) => !node.parent).sort((a, b) => (b.group ?? 0) - (a.group ?? 0) || first(b, a));
  roots.forEach((node) => due.push({ node, from: null }));
  while (due.length) {
    const { node, from } = due.pop(), line = [node], forks = [];
    for (let at = node; at.kids.length;) {
      const [next, ...rest] = [...at.kids].sort(first);
      forks.push(...rest.sort(first).reverse().map((kid) => ({ node: kid, from: at })));
      line.push((at = next));
    }
    const end = line.at(-1), kept = alive.has(end);
    rows.push({ nodes: line, from, group: node.group, end: end.step, brief: end.brief, why: end.why,
      kind: best.has(end) ? "won" : kept || end.ended !== undefined ? "kept" : "left",
      over: best.has(end) ? `★ the text, ${end.worth}` : !kept ? end.over
        : over ? `kept to the end, ${end.worth}` : `goes on, ${end.worth}` });
    due.push(...forks);
  }
  return { rows, steps };
}

/** The rows that are drawn: those that lived longest, each with the one that it leaves. */
function longestRows(rows) {
  if (rows.length <= MOST_BRANCHES) return rows;
  const order = [...rows].sort((a, b) => Number(b.kind === "won") - Number(a.kind === "won") || b.end - a.end
    || a.nodes[0].step - b.nodes[0].step);
  const kept = new Set(order.slice(0, MOST_BRANCHES));
  return rows.filter((row) => kept.has(row));
}

/** All nodes of the run, a row for each branch, its lines at the left; parts after the step are faint. */
function allView(context) {
  let more = false, known = "", tree = null, drawn = [];
  const svg = s("svg", { class: "twigs", "aria-hidden": "true" }), list = h("ol", { class: "branches grown" });
  const rows = pool(list, () => h("li", null, h("button", { type: "button" }, h("span", { class: "quiet rate" }),
    h("span", { class: "text" }), h("span", { class: "quiet why" }))));
  const now = h("p", { class: "took", role: "status" }), title = h("h3");
  const note = h("p", { class: "quiet" }), left = toggle("with what was left", (on) => ((more = on), context.redraw()));
  const element = h("div", { class: "all-nodes" }, h("header", null, title, left),
    h("div", { class: "lineage" }, svg, list), now, note);
  list.addEventListener("click", ({ target }) => {
    const row = target.closest("li"), one = row && drawn[[...list.children].indexOf(row)];
    const node = one && [...one.nodes].reverse().find((x) => x.rank !== null);
    if (node) context.ring({ step: node.step, node: node.rank + 1 });
  });
  /** Whether the chosen node of step i is on a row. */
  const lies = (row, i, rank) => row.nodes.some((node) => node.step === i && node.rank === rank);
  function write(row, { nodes, over, brief, kind, group }, own, before, wide) {
    const [from, text, said] = row.firstChild.childNodes;
    const words = wordsOf(nodes);
    const begins = group !== null && group !== before;
    say(from, begins ? `group ${group + 1}` : `step ${nodes[0].step}`);
    set(from, { class: begins ? "rate begins" : "quiet rate" });
    say(text, words), say(said, wide ? over + brief : over);
    set(row, { class: kind === "won" ? "best" : kind === "left" ? "shut" : null });
    set(row.firstChild, { "aria-pressed": own, title: words,
      "aria-label": `${group === null ? "" : `group ${group + 1}, `}from step ${nodes[0].step}: ${words}; ${over}` });
  }
  return {
    element,
    draw(store, i, chosen, width) {
      const { steps: all, count, end, head } = store, { overview, nouns } = formAt(store, i);
      see(element, overview);
      if (!overview) return;
      say(title, `All ${nouns}`);
      const as = [head.run, count, store.come, !!end, more].join();
      if (as !== known || tree.of !== all) {
        const grown = allNodes(store, more), last = grown.steps - 1;
        const best = end && last >= 0 && last === count - 1 ? winner(store, last) : null;
        const over = (x) => x.step === best.ended.step && x.ended === best.ended.k;
        const won = best && (best.ended ? grown.nodes.find(over) : grown.before[best.rank]);
        tree = { of: all, ...branchesOf(grown, won, !!end) };
        known = as;
      }
      drawn = longestRows(tree.rows);
      const place = new Map(), stride = Math.max(1, Math.min(14, ((width < 560 ? 0.3 : 0.45) * width) / tree.steps));
      drawn.forEach((row, k) => row.nodes.forEach((node) => place.set(node, [node.step + 1, k])));
      const lines = drawn.map((row) => ({ from: row.from ? place.get(row.from) : [0, 0],
        at: place.get(row.nodes.at(-1)), kind: row.kind, own: lies(row, i, chosen),
        dots: stride < DOTTED ? [] : row.nodes.slice(0, -1).map((x) => x.step + 1) }));
      drawn.forEach((row, k) => write(rows.at(k), row, lines[k].own, drawn[k - 1]?.group ?? null, width >= 700));
      rows.trim(drawn.length);
      treeLines(svg, lines, { stride, high: BRANCH_PX, deepest: tree.steps, rows: drawn.length, now: i + 1 });
      const mine = drawn.find((_, k) => lines[k].own);
      say(now, mine ? `“${wordsOf(mine.nodes)}”, from step ${mine.nodes[0].step}: ${mine.over}`
        + `${mine.why && ": "}${mine.why}.` : "");
      see(now, mine);
      const away = tree.rows.length - drawn.length;
      say(note, `A row is a branch, from the step in which it left another one; behind step ${i} all is faint.`
        + (away ? ` Of shorter ones ${plural(away, "row")} more.` : ""));
    },
  };
}

/** The nodes of a step, and below them all nodes. */
export function branchesView(context) {
  const views = [stepView((k) => context.select(k + 1)), allView(context)];
  return { element: h("div", null, views.map(({ element }) => element)),
    draw: (...given) => views.forEach((view) => view.draw(...given)) };
}
