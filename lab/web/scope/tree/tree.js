/* The draft tree, and its legend. */
import { alternativeViews } from "./alternatives.js";
import { placesOf } from "../text/copies.js";
import { OWN } from "../card/decision.js";
import { grid, h, pool, ruler, s, say, see, set } from "../shared/elements.js";
import { tellingOf } from "../card/judge.js";
import { children, fold, GAP_TEXT, layLying, layStanding } from "./layout.js";
import { WORDS, draws, glyph, outline, radius, routes, statusWord, tokenOf } from "../shared/marks.js";
import { isCertain, noteLabel } from "../notes/note_text.js";
import { formatFixed } from "../shared/numbers.js";
import { chainOf } from "../store.js";
import { addTerm } from "../shared/terms.js";
import { visibleText } from "../shared/tokens.js";
import { brush } from "./tree_painter.js";

// nodes above which a tree is a picture at first
const LARGE = 40;
// decided nodes are drawn over undecided ones
const ORDER = { unreached: 0, reject: 1, accept: 2, root: 2, bonus: 3, resample: 3, target: 3 };
// ms for which a step must rest until its nodes become elements
const STILL = 200;

/** The text under the label of one tried node. */
function textUnder(node, telling) {
  if (node.r === null || node.u === null || !node.q || !telling?.rest) return "";
  const bound = node.r / node.q, ok = node.u * node.q < node.r;
  return `${formatFixed(node.u)} ${ok ? "<" : "≥"} ${formatFixed(bound)}`;
}

/** The label of a node: [[text, class or null], ...]. */
function labelOf({ node, parts }) {
  const pieces = parts.map(([shown, quiet]) => [shown, quiet && parts.length > 1 ? "ws" : null]);
  return node.more ? [...pieces, [` +${node.more}`, "more"]] : pieces;
}
/** Put that label into an element. */
function setLabel(text, wanted) {
  const spans = [...text.childNodes];
  wanted.forEach(([shown, kind], k) => {
    const span = spans[k] || text.appendChild(s("tspan"));
    set(span, { class: kind });
    say(span, shown);
  });
  for (const extra of spans.slice(wanted.length)) extra.remove();
}

/** The path of an edge. */
function route(edge, kind) {
  const { from, to, turn } = edge;
  if (kind === "standing") {
    if (from.x === to.x) return `M${from.x},${from.y + 8}V${to.y - 8}`;
    const bend = Math.min(7, to.x - from.x - 4);
    return `M${from.x},${from.y + 8}V${to.y - bend}Q${from.x},${to.y} ${from.x + bend},${to.y}H${to.x - 7}`;
  }
  const stop = to.x - 8;
  if (from.y === to.y) return `M${from.end},${from.y}H${stop}`;
  const bend = Math.min(9, Math.abs(to.y - from.y) / 2);
  return `M${from.end},${from.y}H${turn - bend}Q${turn},${from.y} `
    + `${turn},${from.y + bend}V${to.y - bend}Q${turn},${to.y} ${turn + bend},${to.y}H${stop}`;
}

/** The edges of a tree as [[kind, path], ...], the last on top; two lines lead to a token of the target's own. */
const strokes = ({ edges, kind }) =>
  [...edges].sort((a, b) => ORDER[a.to.node.status] - ORDER[b.to.node.status]).flatMap((edge) => {
    const { status } = edge.to.node, d = route(edge, kind);
    return OWN.has(status) ? [[status, d], ["core", d]] : [[status, d]];
  });

/** The same as a table. */
function tableOf(nodes, step) {
  const parents = new Map(nodes.map((n) => [n.id, n]));
  return grid(`Draft tree of step ${step.i}`, ["node", "token", "after", "q", "p", "r", "u", "threshold", "verdict"],
      nodes.map((n) =>
        [n.id, tokenOf(n.text), parents.has(n.parent) ? tokenOf(parents.get(n.parent).text) : "–",
        ...[isCertain(step) && n.u === null ? null : n.q, n.p, n.r, n.u, n.threshold].map((x) => x ?? "–"),
        step.passengers?.includes(n.id) ? "passenger" : statusWord(n.status, n.u !== null)]
      ));
}

/** The node that a key leads to from the chosen one, or null. */
function neighbour(nodes, key, at) {
  const by = new Map(nodes.map((n) => [n.id, n])), node = by.get(at);
  if (!node) return nodes[0]?.id ?? null;
  const kids = children(nodes), family = nodes.filter((n) => n.parent === node.parent), k = family.indexOf(node);
  const next = key === "h" ? by.get(node.parent)
    : key === "l" ? kids.get(node.id)[0] : family[k + (key === "j" ? 1 : -1)];
  return next ? next.id : null;
}

export function treeView(context) {
  const svg = s("svg", { class: "tree", role: "tree" });
  const edgeLayer = s("g"), nodeLayer = s("g"), ring = s("circle", { class: "ring", r: 11 });
  svg.append(edgeLayer, ring, nodeLayer);
  const lines = pool(edgeLayer, () => s("path", { class: "edge" }));
  const marks = pool(nodeLayer, () => {
    const group = s("g", { class: "node", role: "treeitem", tabindex: -1 },
      s("rect", { class: "reach", x: -12, y: -12, height: 24 }), s("path"), s("text", { class: "label" }),
      s("text", { class: "sub" }));
    group.addEventListener("click", () => context.select(Number(group.dataset.node)));
    group.addEventListener("pointerenter", () => link(placesOf(of, last)[group.dataset.node] ?? null));
    group.addEventListener("pointerleave", () => link(null));
    return group;
  });
  const instead = alternativeViews(context);
  const note = h("p", { class: "quiet" }), twin = h("div", { class: "twin" });
  const painted = brush(), element = h("div", { class: "tree-box", tabindex: -1 }, svg, painted.element,
    instead.elements, twin, note);
  painted.element.addEventListener("click", ({ offsetX, offsetY }) => {
    const node = painted.at(offsetX, offsetY);
    if (node !== null) context.select(node);
  });
  let measure = null, small = null, tabled = false, shown = [], width = 0, seen = true, last = null, since = 0,
    of = null, settled = 0;
  // a node had the focus when the tree was hidden; its box has it until there are nodes again
  let parted = false, filling = null;
  new IntersectionObserver((all) => (seen = all.at(-1).isIntersecting) && context.redraw(), { rootMargin: "200px" })
    .observe(element);

  /** Mark the token at this place, and its copies. */
  function link(place) {
    if (context.linked === place) return;
    context.linked = place;
    context.redraw();
  }

  function fonts() {
    const style = getComputedStyle(element);
    const mono = style.getPropertyValue("--mono"), sans = style.getPropertyValue("--sans");
    measure = ruler(`600 ${style.getPropertyValue("--t-md")} ${mono}`);
    small = ruler(`${style.getPropertyValue("--t-xs")} ${sans}`);
  }

  /** Whether a step is only passing; what was left for later is drawn once it rests. */
  function passing(step) {
    const now = performance.now();
    if (step !== last) (last = step), (since = now);
    clearTimeout(settled);
    if (now - since >= STILL) return false;
    settled = setTimeout(context.redraw, since + STILL - now + 1);
    return true;
  }

  function draw(store, i) {
    const step = store.steps[i], brisk = passing(step);
    of = store.head;
    // scrolled away: drawn when it is back, or the step rests
    if (!seen && (brisk || (context.following && !store.end))) return;
    if (!measure) fonts();
    const side = step?.branches || step?.threads, fill = step?.canvas;
    const own = side || fill || step?.survey || step?.tally || step?.tree;
    filling = fill && instead.canvas;
    const nodes = step?.chain ? chainOf(step) : store.nodes(i);
    const here = document.activeElement;
    const held = nodeLayer.contains(here) || (parted && here === element);
    parted = held && !nodes; // a step that is still being loaded
    if (parted) element.focus({ preventScroll: true });
    instead.show(step, tabled);
    const brief = brisk && nodes?.length > LARGE && !own && !tabled && !element.contains(document.activeElement);
    see(svg, nodes && !own && !tabled);
    svg.classList.toggle("away", brief);
    see(painted.element, brief);
    see(twin, nodes && (!own || own === fill) && tabled);
    shown = nodes || [];
    say(note, !step ? ""
      : !nodes && !own ? context.absent(store, "The tree of this step")
      : instead.away(step) ? "fetching what draws this step…"
      : step.cut ? `${step.nodes.filter((n) => !n).length} nodes that were not reached are left out` : "");
    if (fill && tabled) return void (filling && twin.replaceChildren(filling.table(step)));
    if (own) return void (shown = instead.draw(store, i, context.chosen(store, i), width) ?? shown);
    if (!nodes) return;
    if (tabled) return twin.replaceChildren(tableOf(nodes, step));
    const telling = tellingOf(step, store.head), narrow = width < 560;
    const sub = (n) => textUnder(n, telling) || noteLabel(store.head, step, n.id);
    const chosen = context.chosen(store, i), folded = narrow || nodes.length > 128 ? fold(nodes, chosen) : nodes;
    let laid = narrow ? null : layLying(folded, { width, measure, small, sub });
    if (!laid) laid = layStanding(folded === nodes ? fold(nodes, chosen) : folded, { width, measure });
    const wide = Math.max(1, Math.ceil(Math.max(laid.width, laid.kind === "lying" ? 0 : width - 2))),
      high = Math.ceil(laid.height);
    /** The line of numbers of a node, under its label or at the right end of its row. */
    const numbers = ({ node, x, y, end }) => {
      const text = sub(node), beside = laid.kind === "standing";
      if (!text || (beside && end + small(text) + 12 >= width)) return null;
      return beside ? { text, x: width - 2, y: y + 4, end: true } : { text, x: x + GAP_TEXT, y: y + 17, end: false };
    };
    const drawn = strokes(laid);
    shown = laid.items.map((item) => item.node);
    if (brief) return painted.paint(laid, { wide, high, lines: drawn, words: labelOf, numbers, chosen });
    set(svg, { width: wide, height: high, "aria-label": `draft tree of step ${i}` });
    drawn.forEach(([kind, d], k) => set(lines.at(k), { class: "edge " + kind, d }));
    lines.trim(drawn.length);
    const places = placesOf(store.head, step);
    const ringed = shown.some((n) => n.id === chosen), stop = ringed ? chosen : shown[0].id;
    see(ring, ringed);
    laid.items.forEach((item, k) => {
      const { node } = item, group = marks.at(k), [reach, mark, text, numbered] = group.childNodes;
      const line = numbers(item);
      const linked = context.linked !== null && places[node.id] === context.linked ? " linked" : "";
      set(group, { class: "node " + node.status + linked, transform: `translate(${item.x},${item.y})`,
        "data-node": node.id,
        "aria-label": describe(node, item.depth, isCertain(step) ? noteLabel(store.head, step, node.id) : null),
        "aria-level": item.depth + 1, "aria-selected": node.id === chosen,
        tabindex: node.id === stop ? 0 : -1 });
      set(reach, { width: Math.max(24, item.end - item.x + 14) });
      if (held && node.id === stop && document.activeElement !== group) group.focus({ preventScroll: true });
      set(mark, { class: "mark " + node.status, d: outline(node.status, radius(node)) });
      set(text, { x: GAP_TEXT, y: 4.5 });
      setLabel(text, labelOf(item));
      if (line) set(numbered, { x: line.x - item.x, y: line.y - item.y, "text-anchor": line.end ? "end" : "start" });
      say(numbered, line ? line.text : "");
      if (node.id === chosen) set(ring, { cx: item.x, cy: item.y });
    });
    marks.trim(laid.items.length);
  }
  return { element, draw, step: (key, at) => (filling ? filling.step(key, at) : neighbour(shown, key, at)),
    look: () => (width = element.clientWidth),
    restyle: () => ((measure = null), painted.restyle(), instead.restyle()),
    focus: () => (instead.canvas?.focus() ?? nodeLayer.querySelector('[tabindex="0"]')?.focus()),
    table: (on) => ((tabled = on), context.redraw()) };
}

/** The spoken text of a node. shaped: the note of a node that was chosen without a draw; else null. */
function describe(n, depth, shaped) {
  const said = [visibleText(n.text)];
  if (n.status !== "root") said.push(`depth ${depth}`);
  if (shaped) said.push(shaped);
  if (n.q !== null && shaped === null) said.push(`draft ${n.q.toFixed(2)}`);
  if (n.p !== null) said.push(`target ${n.p.toFixed(2)}`);
  return [...said, n.settled ?? statusWord(n.status, n.u !== null)].join(", ");
}

const LEGEND = ["accept", "reject", "bonus", "resample", "target", "draft", "unreached"];
export function legend(...tools) {
  const entries = new Map(LEGEND.map((status) => [status, addTerm(h("span", null, glyph(status), WORDS[status]))]));
  const keys = h("div", { class: "legend" }, ...entries.values()),
    element = h("div", { class: "under" }, tools, keys);
  return {
    element,
    draw(store, i) {
      const { strategy, drafter } = store.head?.parts || {}, plain = strategy && !strategy.verdicts,
        none = drafter?.drafts === false;
      const { nodes, branches, threads, tally, tree } = store.steps[i] ?? {};
      see(element, nodes && !branches && !threads && !tally && !tree);
      see(keys, !plain || store.steps[i]?.drafted);
      entries.get("resample").lastChild.data = statusWord("resample", draws(store.head));
      addTerm(entries.get("resample"));
      for (const [status, entry] of entries)
        see(entry, status === "draft" ? !!store.head && routes(store.head)
          : none ? status === "target" : status !== "target");
    },
  };
}
