/* Beamtree: all hypotheses of a beam search as one tree: which went on, which were left and why, and which one won. */
import { plainly, winner } from "./beams.js";
import { treeLines } from "./branches.js";
import { spelled } from "./characters.js";
import { h, pool, s, say, see, set, toggle } from "./elements.js";
import { plural } from "./numbers.js";

const BRANCH_PX = 26, MOST_BRANCHES = 96, DOTTED = 8; // px of a row, rows at most, px of a step that has room for a dot

const natsOf = (x) => `${x.toFixed(2)} nats`.replace("-", "−");

/** Every hypothesis of the steps that are there: {nodes: [{step, rank, parent: node or null, token, score, group, kids,
 *  over: how it ended, why}], steps}; what ended is a node of its own. more: those that were left too. */
function allHypotheses(store, more) {
  const nodes = [];
  let before = [], steps = 0;
  const add = (node) => (nodes.push(node), node.parent?.kids.push(node), node);
  for (; store.steps[steps]?.beams; steps++) {
    const { tokens, parents, scores, groups, left = [], ended } = store.steps[steps].beams, was = before;
    const born = (token, parent, score, rest) => add({ step: steps, rank: null, token, parent: was[parent] ?? null,
      score, group: was[parent]?.group ?? null, kids: [], over: "", brief: "", why: "", ...rest });
    before = tokens.map((token, rank) =>
      born(token, parents[rank], scores[rank], { rank, group: groups?.[rank] ?? null }));
    for (const one of ended) {
      const parent = was.findIndex((node) => endOf(node, one.tail.length - 1)
        .every(([id], k) => id === one.tail[k][0]));
      born(one.tail.at(-1), parent, one.score, { over: `ended, ${natsOf(one.score)}`, ended: true });
    }
    was.filter((node) => !node.kids.length).forEach((node) => {
      const own = left.filter(([parent]) => parent === node.rank).map(([, score]) => score);
      const kept = scores.filter((_, k) => (groups?.[k] ?? null) === node.group);
      const [best, bar] = [own, kept].map((list, k) => list.length && (k ? Math.min : Math.max)(...list));
      node.over = `left in step ${steps}`;
      node.brief = own.length && kept.length
        ? `: ${best.toFixed(2)}, kept ${bar.toFixed(2)}`.replaceAll("-", "−") : "";
      node.why = !own.length ? "no extension of it was among the next best" : `its best extension had ${natsOf(best)}`
        + (kept.length ? `, the last that was kept ${natsOf(bar)}${groups ? ", fines apart" : ""}` : "");
    });
    for (const [parent, score, token] of more ? left : [])
      born(token, parent, score, { over: `left, ${natsOf(score)}`, left: true });
  }
  return { nodes, before, steps };
}

const wordsOf = (nodes) => spelled(nodes.map(({ token }) => token[1])).map(plainly).join("");
/** The last `many` tokens of a node's text. */
function endOf(node, many) {
  const line = [];
  for (let at = node; at && line.length < many; at = at.parent) line.unshift(at.token);
  return line;
}

/** The tree as branches, each going on with the kid that leads to the winner, else with the one that lived longest:
 *  [{nodes, from: [depth, row] or null, kind, over, group}], each behind the one that it leaves, the latest first. */
function branchesOf({ nodes, before, steps }, won, over) {
  const best = new Set(), deep = new Map();
  for (let at = won; at; at = at.parent) best.add(at);
  for (const node of [...nodes].reverse())
    deep.set(node, Math.max(node.step, ...node.kids.map((kid) => deep.get(kid))));
  const first = (a, b) => best.has(b) - best.has(a) || deep.get(b) - deep.get(a) || !!a.left - !!b.left
    || b.score - a.score;
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
      kind: best.has(end) ? "won" : kept || end.ended ? "kept" : "left",
      over: best.has(end) ? `★ the text, ${natsOf(end.score)}` : !kept ? end.over
        : over ? `kept to the end, ${natsOf(end.score)}` : `goes on, ${natsOf(end.score)}` });
    due.push(...forks);
  }
  return { rows, steps };
}

/** The rows that are drawn: those that lived longest, each with the one that it leaves. */
function longestRows(rows) {
  if (rows.length <= MOST_BRANCHES) return rows;
  const order = [...rows].sort((a, b) => (b.kind === "won") - (a.kind === "won") || b.end - a.end
    || a.nodes[0].step - b.nodes[0].step);
  const kept = new Set(order.slice(0, MOST_BRANCHES));
  return rows.filter((row) => kept.has(row));
}

/** All hypotheses of the run, a row for each branch, its lines at the left; what comes behind the step is faint. */
export function beamTree(context) {
  let more = false, known = "", tree = null, drawn = [];
  const svg = s("svg", { class: "twigs", "aria-hidden": "true" }), list = h("ol", { class: "branches grown" });
  const rows = pool(list, () => h("li", null, h("button", { type: "button" }, h("span", { class: "quiet rate" }),
    h("span", { class: "text" }), h("span", { class: "quiet why" }))));
  const now = h("p", { class: "took", role: "status" });
  const note = h("p", { class: "quiet" }), left = toggle("with what was left", (on) => ((more = on), context.redraw()));
  const element = h("div", { class: "beam-tree" }, h("header", null, h("h3", null, "All hypotheses"), left),
    h("div", { class: "lineage" }, svg, list), now, note);
  list.addEventListener("click", ({ target }) => {
    const row = target.closest("li"), one = row && drawn[[...list.children].indexOf(row)];
    const node = one && [...one.nodes].reverse().find((x) => x.rank !== null);
    if (node) context.ring({ step: node.step, node: node.rank + 1 });
  });
  /** Whether the chosen hypothesis of step i lies on a row. */
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
      const { steps: all, count, end, head } = store, shown = !head.parts?.strategy?.uses?.includes("sampler");
      see(element, shown);
      if (!shown) return;
      const as = [head.run, count, store.come, !!end, more].join();
      if (as !== known || tree.of !== all) {
        const grown = allHypotheses(store, more), last = grown.steps - 1;
        const best = end && last >= 0 && last === count - 1 ? winner(store, last) : null;
        const won = best && (best.ended ? grown.nodes.find((x) => x.ended && x.step === best.ended.step && x.score
          === best.ended.score) : grown.before[best.rank]);
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
