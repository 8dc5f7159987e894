/* prefixes: the entries that several texts of a run share, as a tree: positions from left to right, texts from top
 * to bottom, each node as high as the texts that read it. */
import { formatCount, h, plural, s, size } from "../scope.js";
import { section } from "./parts.js";
import { question } from "./question.js";

const ROW = 22, LEAST = 26; // px of a text; of a node that has room for its figure

export function prefixesView(shared) {
  const said = h("span", { class: "lead" }), tree = h("div", { class: "tree" });
  const element = section("prefixes", [h("h2", null, "What texts share"), said], tree);
  element.hidden = true;
  const kv = () => shared.store().steps[shared.now()]?.kv || [];
  const shares = () => kv().some((x) => x.lane === "target" && x.shared !== undefined);
  const asked = question(
    () => (shared.looked() && shares() ? shared.query("/shared", { step: shared.now() }) : null),
    (latest) => ((answer = latest), draw())
  );
  let answer = null;
  function draw() {
    element.hidden = !answer?.nodes.length;
    if (element.hidden) return;
    const { nodes, bytes, of } = answer, texts = nodes[0][3], last = Math.max(...nodes.map((x) => x[2]));
    const own = nodes.reduce((sum, [, first, stop]) => sum + stop - first, 0);
    said.replaceChildren(h("b", null, size(bytes)), ` less memory than ${plural(texts, "cache")} of their own: `
      + `${formatCount(own)} entries replace the ${formatCount(texts * of)} that ${plural(texts, "text")} read`);
    const wide = Math.max(240, Math.min(900, (tree.clientWidth || 600) - 16)), from = firstPosition(nodes, last);
    const x = (position) => (Math.max(0, position - from) / Math.max(1, last - from)) * wide;
    const words = `${plural(nodes.length, "node")}; all ${texts} texts read the first `
      + `${formatCount(nodes[0][2])} entries`;
    tree.replaceChildren(s("svg", { width: wide, height: texts * ROW + 18, role: "img", "aria-label": words },
      rowTops(nodes).map((top, i) => box(nodes[i], x, top)),
      s("text", { x: 0, y: texts * ROW + 14 }, from ? `… ${formatCount(from)}` : "0"),
      s("text", { x: wide, y: texts * ROW + 14, "text-anchor": "end" }, `position ${formatCount(last)}`)));
  }
  return { element, question: asked, draw, reset: () => ((answer = null), draw()) };
}

/** The first position of the picture: of the part that all share it shows no more than the width of the rest. */
function firstPosition(nodes, last) {
  const apart = nodes[0][2];
  return Math.max(0, apart - Math.max(24, last - apart));
}

/** The row at which each node begins: below its parent's top and the earlier nodes under that parent. */
function rowTops(nodes) {
  const tops = [], free = [];
  nodes.forEach(([parent, , , refs], i) => {
    tops[i] = parent < 0 ? 0 : free[parent];
    free[i] = tops[i];
    if (parent >= 0) free[parent] += refs;
  });
  return tops;
}

function box([, first, stop, refs], x, top) {
  const left = x(first), wide = Math.max(1, x(stop) - left - 1), high = refs * ROW - 2;
  const words = `positions ${first} to ${stop - 1}, ${stop - first} entries, read by ${plural(refs, "text")}`;
  return s("g", { class: refs > 1 ? "node shared" : "node" }, s("title", null, words),
    s("rect", { x: left, y: top * ROW, width: wide, height: high }),
    wide < LEAST ? [] : s("text", { x: left + 5, y: top * ROW + high / 2 + 4 }, formatCount(stop - first)));
}
