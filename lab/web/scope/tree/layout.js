/* Layout of a tree: nodes -> places, no elements. */
import { pieces } from "../shared/tokens.js";

export const GAP_TEXT = 15; // from the middle of a mark to its label
export const children = (nodes) => {
  const map = new Map(nodes.map((n) => [n.id, []]));
  for (const n of nodes) if (map.has(n.parent)) map.get(n.parent).push(n);
  return map;
};

/** Depth and track of every node: a first child keeps its parent's track, every other one opens the next free
 *  track. So a path is straight until a guess is rejected. Without recursion: a chain may be long. */
export function tracks(nodes) {
  const kids = children(nodes), place = new Map(), stack = [[nodes[0], 0, 0]];
  let count = 0, deepest = 0;
  while (stack.length) {
    const [node, depth, wanted] = stack.pop();
    const track = wanted < 0 ? count : wanted;
    place.set(node.id, { depth, track });
    count = Math.max(count, track + 1);
    deepest = Math.max(deepest, depth);
    const below = kids.get(node.id);
    for (let k = below.length - 1; k >= 0; k--) stack.push([below[k], depth + 1, k ? -1 : track]);
  }
  return { place, count, deepest };
}

/** Leave out unreached nodes, except on the way to node `kept`; a node has in `more` how many of its descendants
 *  were left out. */
export function fold(nodes, kept) {
  const kids = children(nodes), by = new Map(nodes.map((n) => [n.id, n])), way = new Set();
  for (let n = by.get(kept); n; n = by.get(n.parent)) way.add(n);
  const gone = (n) => n.status === "unreached" && !way.has(n);
  const inside = (n) => kids.get(n.id).reduce((sum, kid) => sum + inside(kid), 1);
  return nodes.filter((n) => !gone(n)).map((n) => ({ ...n,
    more: kids.get(n.id).filter(gone).reduce((sum, kid) => sum + inside(kid), 0) })
  );
}

/** Horizontal tree: depth to the right. A column is as wide as its widest label and a label starts after its mark,
 *  so nothing can overlap. Short of width, first the gaps shrink, then labels that were not reached, then the
 *  others; null if even that is too wide.  measure(text) -> px of a label, sub(node) -> the line under it,
 *  small(text) -> px of that line. */
export function layLying(nodes, { width, measure, small, sub, pitch = 22, tall = 12 }) {
  const { place, count, deepest } = tracks(nodes);
  const numbered = new Set(nodes.filter((n) => sub(n)).map((n) => place.get(n.id).track));
  const y = [pitch / 2];
  for (let t = 0; t < count; t++) y.push(y[t] + pitch + (numbered.has(t) ? tall : 0));
  const tries = [40, 34, 28, 24, 20].map((gap) => [gap, 14, 14]);
  for (const low of [11, 9, 7, 6]) tries.push([20, low, 14]);
  for (const high of [12, 10, 8, 6]) tries.push([20, 6, high]);
  for (const [gap, low, high] of tries) {
    const wide = new Array(deepest + 1).fill(0);
    const items = nodes.map((node) => {
      const { depth, track } = place.get(node.id);
      const parts = pieces(node.text, node.status === "unreached" ? low : high);
      const w = measure(parts.map(([s]) => s).join("") + (node.more ? ` +${node.more}` : ""));
      wide[depth] = Math.max(wide[depth], GAP_TEXT + w, sub(node) ? GAP_TEXT + small(sub(node)) : 0);
      return { node, parts, depth, y: y[track], end: GAP_TEXT + w + 6 };
    });
    const need = wide.reduce((a, b) => a + b, 16) + gap * deepest;
    if (need > width && high > 6) continue;
    if (need > width) return null;
    const air = gap + (deepest ? Math.max(0, Math.min(28, (width - need) / deepest)) : 0);
    const x = [9];
    for (let d = 1; d <= deepest; d++) x.push(Math.round(x[d - 1] + wide[d - 1] + air));
    const by = new Map();
    for (const item of items) {
      item.x = x[item.depth];
      item.end += item.x;
      by.set(item.node.id, item);
    }
    const turn = Math.min(air * 0.55, 26);
    const edges = items.slice(1).map((to) => ({ from: by.get(to.node.parent), to, turn: Math.round(to.x - turn) }));
    return { kind: "lying", items, edges, width: x[deepest] + wide[deepest] + 8, height: y[count] - pitch / 2 };
  }
  return null;
}

/** Vertical tree for narrow places: one node a row. An only child stays in its parent's column; if several were
 *  tried, all of them are one column to the right, on a trunk that nothing else touches. */
export function layStanding(nodes, { width, measure, pitch = 26, indent = 18 }) {
  const kids = children(nodes), items = [], by = new Map(), edges = [], stack = [[nodes[0], 0, 0, 0]];
  while (stack.length) {
    const [node, column, depth] = stack.pop();
    const parts = pieces(node.text, 14), w = measure(parts.map(([s]) =>
      s
    ).join("") + (node.more ? ` +${node.more}` : ""));
    const item = { node, parts, depth, column, y: (items.length + 0.5) * pitch, w };
    items.push(item);
    by.set(node.id, item);
    if (depth) edges.push({ from: by.get(node.parent), to: item, turn: 0 });
    const below = kids.get(node.id);
    for (let k = below.length - 1; k >= 0; k--) stack.push([below[k], column + (below.length > 1 ? 1 : 0), depth + 1]);
  }
  const widest = Math.max(...items.map((item) => item.column)),
    each = Math.min(indent, (0.45 * width) / Math.max(1, widest));
  for (const item of items) {
    // the ring of a selected root stays inside
    item.x = 13 + item.column * each;
    item.end = item.x + GAP_TEXT + item.w + 6;
  }
  return { kind: "standing", items, edges, width: Math.max(...items.map((item) => item.end)),
    height: items.length * pitch };
}
