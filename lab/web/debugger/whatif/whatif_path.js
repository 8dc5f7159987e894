/* whatif_path: the path that a what-if accepts, drawn over the tree of the step next to the recorded path: broken
 * squares around its nodes, a broken line along its edges, a key in words below, and a column of the table. */
import { glyph, h, s, tokenOf, statusWord, WORDS } from "../../scope.js";

// px: of a square; from the line of the record to this one; from the end of a line to its node
const SIDE = 20, BESIDE = 4, NEAR = 10;
const PARTS = { childList: true, subtree: true, attributes: true, attributeFilter: ["transform", "d", "data-node"] };

export function whatifPath(root) {
  const box = root.querySelector(".tree-box"), tree = box.querySelector(".tree"),
    layer = s("g", { class: "then", "aria-hidden": "true" });
  const sample = s("svg", { width: 30, height: 16, viewBox: "0 0 30 16", class: "then", "aria-hidden": "true" },
    s("path", { d: "M0,8H13" }), s("rect", { x: 14.5, y: 1.5, width: 13, height: 13, rx: 3 }));
  const words = h("span"), key = h("p", { class: "then-key", hidden: "" }, sample, words);
  let answer = null, recorded = [];
  tree.append(layer);
  box.after(key);

  /** The recorded line that leads to a place of the tree. */
  function lineTo(x, y) {
    return [...tree.querySelectorAll(".edge:not(.core)")].find((line) => {
      const end = line.getPointAtLength(line.getTotalLength());
      return Math.hypot(end.x - x, end.y - y) < NEAR;
    });
  }
  function overlay() {
    const shapes = [];
    for (const id of answer?.path || []) {
      const node = tree.querySelector(`.node[data-node="${id}"]`),
        at = /translate\(([-\d.]+),([-\d.]+)\)/.exec(node?.getAttribute("transform") || "");
      if (!at) continue; // folded away on a narrow page
      const [x, y] = at.slice(1).map(Number), line = id > 0 && lineTo(x, y);
      if (line) shapes.push(s("path", { d: line.getAttribute("d"), transform: `translate(0,${BESIDE})` }));
      shapes.push(s("rect", { x: x - SIDE / 2, y: y - SIDE / 2, width: SIDE, height: SIDE, rx: 4, "data-of": id }));
    }
    layer.replaceChildren(...shapes);
  }
  /** Add the column to the table of the tree, too. */
  function column() {
    const table = box.querySelector(".twin table");
    table?.querySelectorAll(".then").forEach((cell) => cell.remove());
    if (!table || !answer) return;
    table.tHead?.rows[0].append(h("th", { scope: "col", class: "then" }, "what if"));
    for (const row of table.tBodies[0].rows) {
      const id = Number(row.cells[0].textContent), own = id === answer.node?.index;
      row.append(
        h("td", { class: "then" },
          id > 0 && answer.path.includes(id) ? WORDS.accept
            : own ? statusWord(answer.node.status, answer.drawn) || "" : id ? "–" : "")
      );
    }
  }
  function tell() {
    key.hidden = !answer;
    if (!answer) return;
    const path = answer.path.slice(1), same = path.join() === recorded.join(), last = answer.emitted.at(-1),
      own = last && answer.emitted.length > path.length && last;
    const parts = answer.emitted.slice(0, path.length).flatMap(([, text]) => [tokenOf(text, 12), " "]);
    words.replaceChildren(same ? "What if: the path of the record" : "What if: this path", ": ",
      ...(parts.length ? parts : ["no draft token "]),
      ...(own ? ["then ", glyph(own[2]), tokenOf(own[1], 12), ` ${statusWord(own[2], answer.drawn) || ""}`]
        : answer.missing ? ["…"] : []));
  }
  const watch = new MutationObserver(draw);
  function draw() {
    watch.disconnect(); // these drawings must not trigger another update
    if (tree.getClientRects().length) overlay();
    column();
    watch.takeRecords();
    watch.observe(box, PARTS);
  }
  return {
    /** Show the answer of a what-if about `step`; null: none. */
    show(next, step) {
      if (!next && !answer) return;
      answer = next;
      recorded = (step?.nodes || []).flatMap((node, id) => (node?.[6] === "accept" ? [id] : []));
      tell();
      draw();
      if (!answer) watch.disconnect();
    },
  };
}
