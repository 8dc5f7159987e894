/* scope: draws a decoding run. One plain module for the page, for notebooks and for exported files; no dependency.
 *
 *   const view = mount(element, {views: ["strip", "tree", "text", "cache", "time"], onGap, onSeek});
 *   view.push(message)        a head, a step or an end, as lab/wire.py makes them
 *   view.seek(i)  view.follow(true)  view.select({step, node})  view.theme("auto")  view.destroy()
 *
 * In this order: text of tokens, the store, layout (pure functions), elements, views, mount. Everything that a model or
 * a file says enters the page as text nodes; nothing is read as markup. */

// ---- tokens as text ------------------------------------------------------------------------------------------------

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/u;
const SPACE = /\p{Zs}/u;
const code = (char) => "‹U+" + char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "›";

/** One character as it is shown: white space, controls and bidi marks become visible. */
export function visible(char) {
  const at = char.codePointAt(0);
  if (char === " ") return "␣";
  if (char === "\n") return "⏎";
  if (char === "\t") return "⇥";
  if (at < 0x20) return String.fromCodePoint(0x2400 + at);
  if (at === 0x7f) return "␡";
  return HIDDEN.test(char) || SPACE.test(char) ? code(char) : char;
}

/** A token's text -> [[shown, quiet]]: quiet parts are symbols for what has no glyph. Bytes come as a list of hex codes.
 *  Runs of three or more equal spaces are counted, and at most `most` characters are shown. */
export function pieces(text, most = 40) {
  if (Array.isArray(text)) return [["⟨" + text.join(" ").toUpperCase() + "⟩", true]];
  const parts = [];
  const add = (shown, quiet) => {
    const last = parts[parts.length - 1];
    if (last && last[1] === quiet) last[0] += shown;
    else parts.push([shown, quiet]);
  };
  const chars = [...text];
  let left = most;
  for (let i = 0; i < chars.length; ) {
    let run = 1;
    while (chars[i] === " " && chars[i + run] === " ") run++;
    if (left-- <= 1 && i + run < chars.length) {
      add("…", true);
      break;
    }
    if (run > 2) {
      add("␣×" + run, true);
      i += run;
    } else {
      const shown = visible(chars[i]);
      add(/\p{M}/u.test(chars[i]) && i === 0 ? "◌" + shown : shown, shown !== chars[i]);
      i++;
    }
  }
  return parts;
}

/** The same as one string, for labels that are read aloud. */
export const spoken = (text) => pieces(text).map(([shown]) => shown).join("");

/** A token in running text -> [[kind, shown]]: line breaks stay line breaks and spaces spaces; "nl" and "sign" are symbols. */
export function running(text) {
  if (Array.isArray(text)) return [["sign", "⟨" + text.join(" ").toUpperCase() + "⟩"]];
  const parts = [];
  for (const char of text) {
    const kind = char === "\n" ? "nl" : char === " " || char === "\t" ? "space" : visible(char) === char ? "text" : "sign";
    const last = parts[parts.length - 1];
    const shown = kind === "nl" ? "⏎\n" : kind === "sign" ? visible(char) : char;
    if (last && last[0] === kind) last[1] += shown;
    else parts.push([kind, shown]);
  }
  return parts;
}

// ---- numbers -------------------------------------------------------------------------------------------------------

const two = (x) => (x >= 100 ? x.toFixed(0) : x.toFixed(2));
const grouped = (x) => Math.round(x).toLocaleString("en");
const percent = (x) => (100 * x).toFixed(0) + " %";
const milli = (s) => s >= 1 ? s.toFixed(1) + " s" : (s * 1000 >= 100 ? (s * 1000).toFixed(0) : (s * 1000).toFixed(1)) + " ms";
const plural = (n, word) => `${grouped(n)} ${word}${n === 1 ? "" : "s"}`;
function short(number) {
  for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (number >= limit) return (number / limit).toFixed(1) + " " + unit;
  return String(number);
}
function size(count) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (count < 1024 || unit === "GiB") return (unit === "B" || count >= 100 ? count.toFixed(0) : count.toFixed(1)) + " " + unit;
    count /= 1024;
  }
}

// ---- store ---------------------------------------------------------------------------------------------------------

const ROW = ["parent", "text", "token", "q", "p", "u", "status", "r", "threshold"];

/** The messages of one run, by number, and what follows from them. */
export class Store {
  constructor() {
    this.head = null;
    this.end = null;
    this.steps = []; // sparse: a hole is a step that has not come
    this.trees = new Map(); // step -> its nodes, made when looked at
    this.count = 0;
  }

  /** Take a message; whether anything changed. A step in full replaces its brief, never the other way round. */
  push(message) {
    if (message.kind === "head") this.head = message;
    else if (message.kind === "end") this.end = message;
    else if (message.kind === "step") {
      const old = this.steps[message.i];
      if (old && !old.brief && (message.brief || (message.cut && !old.cut))) return false;
      this.steps[message.i] = message;
      this.trees.delete(message.i);
      this.count = Math.max(this.count, message.i + 1);
    } else return false;
    return true;
  }

  /** Whether step i can be drawn as it was recorded. */
  whole(i) {
    const step = this.steps[i];
    return !!step && !step.brief && !step.cut;
  }

  /** The nodes of step i: [{id, parent, text, q, p, u, status, r, threshold}], what was left out of the wire missing. */
  nodes(i) {
    const step = this.steps[i];
    if (!step || !step.nodes) return null;
    if (!this.trees.has(i)) {
      if (this.trees.size > 64) this.trees.delete(this.trees.keys().next().value);
      this.trees.set(i, nodesOf(step));
    }
    return this.trees.get(i);
  }
}

/** Rows of the wire -> nodes. */
export function nodesOf(step) {
  const nodes = [];
  step.nodes.forEach((row, id) => {
    if (!row) return;
    const node = { id };
    ROW.forEach((name, k) => (node[name] = row[k] ?? null));
    node.status = node.status || "unreached";
    nodes.push(node);
  });
  return nodes;
}

/** A block of a fixed-point method as a chain: final tokens kept, the others still guesses. */
export function chainOf(step) {
  const { after, fixed } = step.iteration;
  const root = { ...nodesOf(step)[0] };
  return [root, ...after.map(([id, text], k) => ({ id: k + 1, parent: k, text, token: id, q: null, p: null, u: null, status: k < fixed ? "accept" : "unreached" }))];
}

/** Do the recorded verdicts follow from the recorded numbers? null where the rule says more than these numbers. */
export function rederives(step, rule) {
  const tried = nodesOf(step).filter((n) => n.r !== null);
  if (!tried.length) return null;
  const path = new Set(step.verdict.path);
  let judge = null;
  if (rule === "lossless" || tried.every((n) => n.u === null && !step.rule)) judge = (n) => (n.u === null ? n.r > 0 : n.u * n.q < n.r);
  else if (rule === "typical") judge = (n) => n.p > n.threshold;
  if (!judge) return null;
  return tried.every((n) => (judge(n) ? n.status !== "reject" : n.status === "reject" && !path.has(n.id)));
}

// ---- layout: nodes -> places, no elements ----------------------------------------------------------------------------

const GAP_TEXT = 15; // from the middle of a mark to its label
const children = (nodes) => {
  const map = new Map(nodes.map((n) => [n.id, []]));
  for (const n of nodes) if (map.has(n.parent)) map.get(n.parent).push(n);
  return map;
};

/** Depth and track of every node: a first child keeps its parent's track, every other one opens the next free track.
 *  So a path is straight until a guess is refused. Without recursion: a chain may be long. */
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

/** Leave out what was not reached; a node says in `more` how many of its descendants went. */
export function fold(nodes) {
  const kids = children(nodes), gone = (n) => n.status === "unreached";
  const inside = (n) => kids.get(n.id).reduce((sum, kid) => sum + inside(kid), 1);
  return nodes.filter((n) => !gone(n)).map((n) => ({ ...n, more: kids.get(n.id).filter(gone).reduce((sum, kid) => sum + inside(kid), 0) }));
}

/** Lying tree: depth to the right. A column is as wide as its widest label and a label starts after its mark, so nothing
 *  can overlap. Short of width, first the gaps shrink, then labels that were not reached, then the others; null if even
 *  that is too wide.  measure(text) -> px of a label, sub(node) -> the line under it, small(text) -> px of that line. */
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

/** Standing tree for narrow places: one node a row. An only child stays in its parent's column; where several were tried
 *  all of them stand one column to the right, on a trunk that nothing else touches. */
export function layStanding(nodes, { width, measure, pitch = 26, indent = 18 }) {
  const kids = children(nodes), items = [], by = new Map(), edges = [], stack = [[nodes[0], 0, 0, 0]];
  while (stack.length) {
    const [node, column, depth] = stack.pop();
    const parts = pieces(node.text, 14), w = measure(parts.map(([s]) => s).join("") + (node.more ? ` +${node.more}` : ""));
    const item = { node, parts, depth, column, y: (items.length + 0.5) * pitch, w };
    items.push(item);
    by.set(node.id, item);
    if (depth) edges.push({ from: by.get(node.parent), to: item, turn: 0 });
    const below = kids.get(node.id);
    for (let k = below.length - 1; k >= 0; k--) stack.push([below[k], column + (below.length > 1 ? 1 : 0), depth + 1]);
  }
  const widest = Math.max(...items.map((item) => item.column)), each = Math.min(indent, (0.45 * width) / Math.max(1, widest));
  for (const item of items) {
    item.x = 9 + item.column * each;
    item.end = item.x + GAP_TEXT + item.w + 6;
  }
  return { kind: "standing", items, edges, width: Math.max(...items.map((item) => item.end)), height: items.length * pitch };
}

// ---- elements ------------------------------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";
function put(node, props, kids) {
  for (const [name, value] of Object.entries(props || {})) if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  node.append(...kids.flat(5).filter((kid) => kid !== null && kid !== undefined && kid !== false));
  return node;
}
/** An element; strings among `kids` become text nodes. */
export const h = (tag, props, ...kids) => put(document.createElement(tag), props, kids);
/** The same in the vector namespace. */
export const s = (tag, props, ...kids) => put(document.createElementNS(SVG, tag), props, kids);
const set = (node, props) => {
  for (const [name, value] of Object.entries(props)) {
    if (value === null) node.removeAttribute(name);
    else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
};
const say = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};

/** Elements that are made once and then reused: at(i) gives the i-th, trim(n) hides those from n on. */
function pool(parent, make) {
  const made = [];
  let shown = 0;
  return {
    at(i) {
      while (made.length <= i) parent.append(made[made.push(make()) - 1]);
      if (i >= shown) {
        for (; shown <= i; shown++) made[shown].style.display = "";
      }
      return made[i];
    },
    trim(n) {
      for (let i = n; i < shown; i++) made[i].style.display = "none";
      shown = Math.min(shown, n);
    },
  };
}

const STAR = [...Array(10)].map((_, i) => [i % 2 ? 0.45 : 1.25, (Math.PI * (i - 2.5)) / 5]).map(([r, a]) => [r * Math.cos(a), r * Math.sin(a)]);
const points = (shape, r) => shape.map(([x, y]) => `${(x * r).toFixed(2)},${(y * r).toFixed(2)}`).join(" ");
const TRIANGLE = [[0, -1.15], [1.1, 0.85], [-1.1, 0.85]];
const DIAMOND = [[0, -1.15], [1.15, 0], [0, 1.15], [-1.15, 0]];
const SHAPES = {
  root: (r) => s("rect", { x: -r, y: -r, width: 2 * r, height: 2 * r }),
  accept: (r) => s("circle", { r }),
  reject: (r) => [s("circle", { r }), s("path", { d: `M${-r * 0.45},${-r * 0.45}L${r * 0.45},${r * 0.45}M${r * 0.45},${-r * 0.45}L${-r * 0.45},${r * 0.45}` })],
  unreached: (r) => s("circle", { r }),
  bonus: (r) => s("polygon", { points: points(STAR, r) }),
  resample: (r) => s("polygon", { points: points(TRIANGLE, r) }),
  target: (r) => s("polygon", { points: points(DIAMOND, r) }),
};
export const WORDS = { root: "root", accept: "accepted", reject: "rejected", unreached: "not reached", bonus: "bonus", resample: "resampled", target: "target's own" };
const radius = (n) => (n.status === "unreached" ? 2.5 : n.status === "root" ? 4 : n.status === "bonus" || n.status === "resample" || n.status === "target" ? 6 : 3.5 + 3 * (n.q ?? 0.5));
const glyph = (status, r = 4.5) => s("svg", { width: 14, height: 14, viewBox: "-7 -7 14 14", class: "glyph", "aria-hidden": "true" }, s("g", { class: "mark " + status }, SHAPES[status](status === "unreached" ? 2.5 : r)));

const pen = document.createElement("canvas").getContext("2d");
/** A measure of text in one font, remembering what it measured. */
function ruler(font) {
  const known = new Map();
  return (text) => {
    if (!known.has(text)) {
      if (known.size > 4000) known.clear();
      pen.font = font;
      known.set(text, pen.measureText(text).width);
    }
    return known.get(text);
  };
}

// ---- views: each makes its elements once, then draws (store, i, width) into them ----------------------------------------

/** What a view of one tried node says under its label. */
function under(node, rule) {
  if (node.r === null || node.u === null || !node.q) return "";
  if (rule !== "lossless") return "";
  const bound = node.r / node.q, ok = node.u * node.q < node.r;
  return `${two(node.u)} ${ok ? "<" : "≥"} ${two(bound)}`;
}

function treeView(context) {
  const svg = s("svg", { class: "tree", role: "group" });
  const edgeLayer = s("g"), nodeLayer = s("g"), ring = s("circle", { class: "ring", r: 11 });
  svg.append(edgeLayer, ring, nodeLayer);
  const lines = pool(edgeLayer, () => s("path", { class: "edge" }));
  const marks = pool(nodeLayer, () => {
    const group = s("g", { class: "node" }, s("g", { class: "mark" }), s("text", { class: "label" }), s("text", { class: "sub" }));
    group.addEventListener("click", () => context.select(Number(group.dataset.node)));
    return group;
  });
  const list = h("ol", { class: "beams" });
  const beamRows = pool(list, () => h("li"));
  const note = h("p", { class: "quiet" });
  const element = h("div", { class: "tree-box" }, svg, list, note);
  let measure = null, small = null;

  function fonts() {
    const style = getComputedStyle(element);
    const mono = style.getPropertyValue("--mono"), sans = style.getPropertyValue("--sans");
    measure = ruler(`600 ${style.getPropertyValue("--t-md")} ${mono}`);
    small = ruler(`${style.getPropertyValue("--t-xs")} ${sans}`);
  }

  function label(text, parts, more) {
    const spans = [...text.childNodes];
    const wanted = more ? [...parts, [` +${more}`, "more"]] : parts;
    wanted.forEach(([shown, quiet], k) => {
      const span = spans[k] || text.appendChild(s("tspan"));
      set(span, { class: quiet === "more" ? "more" : quiet && parts.length > 1 ? "ws" : null });
      say(span, shown);
    });
    for (const extra of spans.slice(wanted.length)) extra.remove();
  }

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
    return `M${from.end},${from.y}H${turn - bend}Q${turn},${from.y} ${turn},${from.y + bend}V${to.y - bend}Q${turn},${to.y} ${turn + bend},${to.y}H${stop}`;
  }

  function draw(store, i, width) {
    if (!measure) fonts();
    const step = store.steps[i];
    const rule = store.head?.method?.acceptance?.name ?? "";
    const beams = step?.beams, nodes = step?.iteration ? chainOf(step) : store.nodes(i);
    list.style.display = beams ? "" : "none";
    svg.style.display = nodes && !beams ? "" : "none";
    say(note, !step ? "" : !nodes ? "fetching this step…" : step.cut ? `${step.nodes.filter((n) => !n).length} nodes that were not reached are left out` : "");
    if (beams) {
      beams.tokens.forEach(([, text], k) => say(beamRows.at(k), `${beams.scores[k].toFixed(2)} nats   ${spoken(text)}   from ${beams.parents[k] + 1}`));
      beamRows.trim(beams.tokens.length);
      return;
    }
    if (!nodes) return;
    const sub = (n) => under(n, rule), narrow = width < 560;
    const folded = narrow || nodes.length > 128 ? fold(nodes) : nodes;
    let laid = narrow ? null : layLying(folded, { width, measure, small, sub });
    if (!laid) laid = layStanding(folded === nodes ? fold(nodes) : folded, { width, measure });
    set(svg, { width: Math.max(1, Math.ceil(Math.max(laid.width, laid.kind === "lying" ? 0 : width - 2))), height: Math.ceil(laid.height), "aria-label": `draft tree of step ${i}` });
    // what was decided lies over what was not
    const order = { unreached: 0, reject: 1, accept: 2, root: 2, bonus: 3, resample: 3, target: 3 };
    let used = 0;
    for (const edge of [...laid.edges].sort((a, b) => order[a.to.node.status] - order[b.to.node.status])) {
      const status = edge.to.node.status, d = route(edge, laid.kind), twin = status === "bonus" || status === "resample" || status === "target";
      set(lines.at(used++), { class: "edge " + status, d });
      if (twin) set(lines.at(used++), { class: "edge core", d });
    }
    lines.trim(used);
    const chosen = context.selection?.step === i ? context.selection.node : null;
    ring.style.display = "none";
    laid.items.forEach((item, k) => {
      const { node } = item, group = marks.at(k), [mark, text, numbers] = group.childNodes;
      const told = laid.kind === "standing" ? "" : sub(node);
      set(group, { class: "node " + node.status, transform: `translate(${item.x},${item.y})`, "data-node": node.id, "aria-label": describe(node, item.depth), role: "img" });
      const shape = node.status + radius(node).toFixed(1);
      if (mark.dataset.shape !== shape) {
        mark.dataset.shape = shape;
        mark.setAttribute("class", "mark " + node.status);
        mark.replaceChildren(...[SHAPES[node.status](radius(node))].flat());
      }
      set(text, { x: GAP_TEXT, y: 4.5 });
      label(text, item.parts, node.more);
      const beside = laid.kind === "standing" && sub(node);
      set(numbers, beside ? { x: width - 2 - item.x, y: 4, "text-anchor": "end" } : { x: GAP_TEXT, y: 17, "text-anchor": "start" });
      say(numbers, beside ? (item.end + small(sub(node)) + 12 < width ? sub(node) : "") : told);
      if (node.id === chosen) {
        ring.style.display = "";
        set(ring, { cx: item.x, cy: item.y });
      }
    });
    marks.trim(laid.items.length);
  }
  return { element, draw, restyle: () => (measure = null) };
}

function describe(n, depth) {
  const said = [spoken(n.text)];
  if (n.status !== "root") said.push(`depth ${depth}`);
  if (n.q !== null) said.push(`draft ${n.q.toFixed(2)}`);
  if (n.p !== null) said.push(`target ${n.p.toFixed(2)}`);
  return [...said, WORDS[n.status]].join(", ");
}

const STATIONS = [
  ["drafter", "Draft", "draft"],
  ["acceptance", "Rule", "verify"],
  ["policy", "Cache", "cache"],
  ["depth", "Depth", null],
  ["sampler", "Sampler", null],
];
const named = (word) => String(word).replaceAll("_", " ");
function knobs(part) {
  return Object.entries(part || {}).filter(([k]) => k !== "name" && k !== "stages").map(([k, v]) => `${named(k)} ${typeof v === "number" ? +v.toFixed(3) : v}`).join(", ");
}

/** The method as a row of stations, with the time that each took in the step. */
function stripView() {
  const element = h("div", { class: "stations" });
  const stations = pool(element, () => h("div", { class: "station" }, h("span", { class: "dot" }), h("span", { class: "what" }), h("b"), h("span", { class: "knobs" })));
  return {
    element,
    draw(store, i) {
      const head = store.head, step = store.steps[i];
      element.style.display = head ? "" : "none";
      if (!head) return;
      const m = head.method, strategy = m.strategy.name, shown = [];
      if (strategy !== "draft_verify") shown.push(["Strategy", named(strategy), knobs(m.strategy), null]);
      for (const [kind, title, clock] of STATIONS) {
        if (!m[kind] || (strategy === "beam" && kind !== "policy") || (strategy === "jacobi" && !["policy", "sampler"].includes(kind))) continue;
        const stages = m[kind].stages || [m[kind]];
        const lane = kind === "drafter" && m[kind].name === "draft_model" ? head.lanes.draft?.name : null;
        shown.push([title, lane || stages.map((x) => named(x.name)).join(" → "), stages.map(knobs).filter(Boolean).join("; ") || (kind === "acceptance" && head.lossless ? "the target's own law" : ""), clock ? step?.dt[clock] : null]);
        if (kind === "drafter") shown.push(["Verify", head.model.name, head.model.params ? `${short(head.model.params)} parameters` : "", step?.dt.verify]);
      }
      shown.forEach(([title, name, under, time], k) => {
        const [, what, bold, line] = stations.at(k).childNodes;
        say(what, title + (time > 5e-5 && title !== "Rule" ? "  " + milli(time) : ""));
        say(bold, name);
        say(line, under);
      });
      stations.trim(shown.length);
      element.style.setProperty("--n", shown.length);
    },
  };
}

/** "Step 14: 7 tokens from one pass", and the figures of the run so far at the right end. */
function headline(context) {
  const title = h("h1"), lead = h("span", { class: "lead" }), bold = h("b"), rest = h("span");
  lead.append(bold, rest);
  const figures = h("div", { class: "figures" });
  const cells = pool(figures, () => h("span", null, h("b"), h("span")));
  const agrees = h("span", { class: "agrees", role: "status" });
  const element = h("header", { class: "headline" }, title, lead, agrees, figures);
  return {
    element,
    draw(store, i) {
      const step = store.steps[i];
      element.style.display = step ? "" : "none";
      if (!step) return;
      say(title, `Step ${i}`);
      const own = step.made.filter(([, , origin]) => origin !== "accept").length, kept = step.made.length - own;
      say(bold, plural(step.made.length, "token"));
      let told = " from one pass";
      if (step.drafted) told += `: ${kept} of ${step.drafted} drafted accepted${own ? `, ${own} from the target` : ""}`;
      else if (step.iteration) told = `: ${step.iteration.fixed} of ${step.iteration.after.length} final after this pass`;
      say(rest, told);
      const { tokens, passes, tried, ok, decode } = step.sum;
      const list = [[decode ? two(tokens / decode) : "–", " tokens/s"], [passes ? two(tokens / passes) : "–", " tokens / pass"]];
      if (tried) list.push([percent(ok / tried), " of trials accepted"]);
      list.forEach(([value, unit], k) => {
        const [b, span] = cells.at(k).childNodes;
        say(b, value);
        say(span, unit);
      });
      cells.trim(list.length);
      const same = step.brief || step.cut || !step.nodes ? null : rederives(step, context.rule(store));
      element.classList.toggle("lies", same === false);
      say(agrees, same === false ? "does not re-derive" : same ? "✓ re-derived" : "");
    },
  };
}

const LEGEND = ["accept", "reject", "bonus", "resample", "target", "unreached"];
function legend() {
  const entries = new Map(LEGEND.map((status) => [status, h("span", null, glyph(status), WORDS[status])]));
  const element = h("div", { class: "legend" }, ...entries.values());
  return {
    element,
    draw(store) {
      const plain = store.head && !["draft_verify"].includes(store.head.method.strategy.name);
      const none = store.head?.method?.drafter?.name === "none";
      element.style.display = store.count && !plain ? "" : "none";
      for (const [status, entry] of entries) entry.style.display = (none ? status === "target" : status !== "target") ? "" : "none";
    },
  };
}

const WINDOW = 2000; // tokens shown at once
/** The text so far, underlined by origin; a click on a token goes to the step that made it. */
function textView(context) {
  const box = h("div", { class: "text", tabindex: 0, "aria-label": "text" });
  const counts = h("div", { class: "figures" }, h("span", null, h("b"), " new"), h("span", null, h("b"), " prompt"));
  const element = h("section", { class: "text-pane" },
    h("header", null, h("h2", null, "Text"), h("span", { class: "key accept" }, "accepted draft"), h("span", { class: "key target" }, "target's own"), counts), box);
  const caret = h("span", { class: "caret" });
  let head = null, spans = [], shownTo = -1, made = 0, marked = [];
  const token = (text, cls) => {
    const span = h("span", { class: "tok " + cls });
    for (const [kind, shown] of running(text)) span.append(kind === "text" ? h("i", null, shown) : kind === "space" ? h("i", { class: "lead" }, shown) : h("span", { class: kind }, shown));
    return span;
  };
  box.addEventListener("click", (event) => {
    const span = event.target.closest("[data-step]");
    if (span) context.seek(Number(span.dataset.step));
  });
  function reset(store) {
    head = store.head;
    spans = [];
    shownTo = -1;
    made = 0;
    const prompt = head.prompt.map(([, text]) => token(text, "prompt"));
    if (head.prompt_tokens > head.prompt.length) prompt.unshift(h("span", { class: "quiet" }, `… ${grouped(head.prompt_tokens - head.prompt.length)} tokens before `));
    box.replaceChildren(...prompt, caret);
  }
  return {
    element,
    draw(store, i) {
      element.style.display = store.head ? "" : "none";
      if (!store.head) return;
      const stick = box.scrollTop + box.clientHeight >= box.scrollHeight - 24;
      if (store.head !== head) reset(store);
      // elements are made in order, as far as the steps are there
      while (made < store.count && store.steps[made]) {
        const step = store.steps[made];
        const group = step.made.map(([, text, origin]) => {
          const span = token(text, origin === "accept" ? "accepted" : "target");
          span.dataset.step = made;
          span.title = `step ${made}, ${WORDS[origin]}`;
          if (made > i) span.hidden = true;
          return span;
        });
        spans[made] = group;
        caret.before(...group);
        made++;
        shownTo = Math.max(shownTo, Math.min(i, made - 1));
      }
      for (let k = Math.min(shownTo, i) + 1; k <= Math.max(shownTo, i) && k < made; k++) for (const span of spans[k]) span.hidden = k > i;
      shownTo = Math.min(i, made - 1);
      for (const span of marked) span.classList.remove("now");
      marked = spans[i] || [];
      for (const span of marked) span.classList.add("now");
      if (marked.length) marked[marked.length - 1].after(caret);
      let first = box.firstElementChild;
      for (let extra = box.childElementCount - WINDOW; extra > 0 && first; extra--) {
        const next = first.nextElementSibling;
        if (first !== caret) first.remove();
        first = next;
      }
      const [fresh, prompt] = counts.querySelectorAll("b");
      say(fresh, grouped(store.steps[i]?.sum.tokens ?? 0));
      say(prompt, grouped(store.head.prompt_tokens));
      if (stick) box.scrollTop = box.scrollHeight;
    },
  };
}

/** Bytes held of bytes that keeping everything would need, one bar per model. */
function cacheView() {
  const rows = h("div", { class: "held" });
  const bars = pool(rows, () => h("div", { class: "bar" }, h("span", { class: "who" }), h("span", { class: "track" }, h("span", { class: "fill" })), h("span", { class: "much" })));
  const figures = h("div", { class: "figures" });
  const cells = pool(figures, () => h("span", null, h("b"), h("span")));
  const element = h("section", { class: "cache-pane" }, h("header", null, h("h2", null, "KV cache"), figures), rows);
  return {
    element,
    draw(store, i) {
      const step = store.steps[i];
      element.style.display = step ? "" : "none";
      if (!step) return;
      const target = step.kv.find((x) => x.lane === "target"), length = step.n + step.made.length - 1;
      const list = target ? [[`${grouped(target.held)} of ${grouped(Math.max(target.held, length))}`, " kept per head"], [target.bytes < target.full ? `${size(target.bytes)} of ${size(target.full)}` : size(target.bytes), " held"]] : [];
      if (target?.evicted) list.push([grouped(target.evicted), " evicted now"]);
      list.forEach(([value, unit], k) => {
        const [b, span] = cells.at(k).childNodes;
        say(b, value);
        say(span, unit);
      });
      cells.trim(list.length);
      const most = Math.max(1, ...step.kv.map((x) => Math.max(x.full, x.bytes)));
      step.kv.forEach((x, k) => {
        const bar = bars.at(k), [who, track, much] = bar.childNodes;
        say(who, x.lane);
        track.style.width = `calc((100% - 190px) * ${Math.max(x.full, 1) / most})`;
        track.firstChild.style.width = percent(Math.min(1, x.bytes / Math.max(1, x.full)));
        say(much, size(x.bytes));
      });
      bars.trim(step.kv.length);
    },
  };
}

const ICONS = { first: "M12 4L7 8l5 4M4.5 4v8", prev: "M10 4L6 8l4 4", next: "M6 4l4 4-4 4", last: "M4 4l5 4-5 4M11.5 4v8", play: "M5 3.5v9l7-4.5z", pause: "M5.5 4v8M10.5 4v8", stop: "M4.5 4.5h7v7h-7z", moon: "M12.5 10A5.5 5.5 0 0 1 6 3.5a5 5 0 1 0 6.5 6.5z", step: "M4 3.5v9l5.5-4.5zM12 4v8" };
/** One of our icons, drawn in the current colour. */
export const icon = (name) => s("svg", { class: "icon " + name, width: 16, height: 16, viewBox: "0 0 16 16", "aria-hidden": "true" }, s("path", { d: ICONS[name] }));

/** One block per step, as wide as it took; counts above, refusals below. It is also the scrubber. */
function timeView(context) {
  const canvas = h("canvas", { class: "lane" });
  const slider = h("input", { type: "range", min: 0, max: 0, value: 0, class: "scrub", "aria-label": "step" });
  slider.addEventListener("input", () => context.seek(Number(slider.value)));
  const act = (name, title, run) => {
    const button = h("button", { type: "button", class: "bare", title, "aria-label": title }, icon(name));
    button.addEventListener("click", run);
    return button;
  };
  const live = h("button", { type: "button", class: "live" }, "● live");
  live.addEventListener("click", () => context.follow(true));
  const rate = h("span", { class: "quiet" });
  const element = h("footer", { class: "time-pane" },
    h("div", { class: "transport" }, h("h2", null, "Time"), rate,
      h("span", { class: "buttons" }, act("first", "first step", () => context.seek(0)), act("prev", "previous step", () => context.seek(context.at - 1)),
        act("next", "next step", () => context.seek(context.at + 1)), act("last", "last step", () => context.follow(true))), live),
    h("div", { class: "lane-box" }, canvas, slider));
  let colours = null;
  return {
    element,
    restyle: () => (colours = null),
    draw(store, i) {
      element.style.display = store.count ? "" : "none";
      if (!store.count) return;
      if (Number(slider.max) !== store.count - 1) slider.max = store.count - 1;
      if (Number(slider.value) !== i) slider.value = i;
      slider.setAttribute("aria-valuetext", `step ${i} of ${store.count}`);
      live.style.display = context.following || store.end ? "none" : "";
      const now = store.steps[i];
      say(rate, now?.sum.decode ? `${milli(now.sum.decode)}, step ${i} of ${store.count - 1}` : "");
      const style = getComputedStyle(element);
      colours = colours || Object.fromEntries(["time-1", "time-2", "time-3", "reject", "muted", "ink", "ring", "bg"].map((c) => [c, style.getPropertyValue("--" + c).trim()]));
      const ratio = window.devicePixelRatio || 1, width = canvas.parentElement.clientWidth, height = 54;
      if (canvas.width !== Math.round(width * ratio) || canvas.height !== height * ratio) {
        canvas.width = Math.round(width * ratio);
        canvas.height = height * ratio;
        canvas.style.height = height + "px";
      }
      const c = canvas.getContext("2d");
      c.setTransform(ratio, 0, 0, ratio, 0, 0);
      c.clearRect(0, 0, width, height);
      c.font = `11px ${style.getPropertyValue("--sans")}`;
      c.textAlign = "center";
      const each = width / store.count, top = 18, tall = 20; // equal widths, so that the slider's thumb is on its step
      const longest = store.steps.reduce((most, x) => Math.max(most, x ? x.dt.all : 0), 1e-9);
      for (let k = 0; k < store.count; k++) {
        const step = store.steps[k];
        if (!step) continue;
        const x = k * each, w = Math.max(0.5, each - (each > 4 ? 1.5 : 0)), { draft, verify, all } = step.dt;
        const high = Math.max(3, tall * Math.sqrt(all / longest)), y = top + tall - high;
        const part = all > 0 ? [draft / all, verify / all] : [0, 1];
        c.fillStyle = colours["time-2"];
        c.fillRect(x, y, w, high);
        c.fillStyle = colours["time-1"];
        c.fillRect(x, y, w, high * part[0]);
        c.fillStyle = colours["time-3"];
        c.fillRect(x, top + tall - high * Math.max(0, 1 - part[0] - part[1]), w, high * Math.max(0, 1 - part[0] - part[1]));
        if (each >= 12) {
          c.fillStyle = k === i ? colours.ink : colours.muted;
          c.fillText(String(step.made.length), x + w / 2, 11);
        }
        if (step.refused) {
          c.strokeStyle = colours.reject;
          c.lineWidth = 1.25;
          const many = each >= 8 ? Math.min(step.refused, Math.max(1, Math.floor(each / 6))) : 1, r = each >= 8 ? 2 : 1;
          for (let m = 0; m < many; m++) {
            const mx = x + w / 2 + (m - (many - 1) / 2) * 6, my = top + tall + 7;
            c.beginPath();
            c.moveTo(mx - r, my - r), c.lineTo(mx + r, my + r), c.moveTo(mx + r, my - r), c.lineTo(mx - r, my + r);
            c.stroke();
          }
        }
        if (k === i) {
          c.strokeStyle = colours.ring;
          c.lineWidth = 2;
          c.strokeRect(Math.max(1, x - 1.5), top - 3, Math.max(4, w + 2), tall + 6);
        }
      }
    },
  };
}

// ---- mount -----------------------------------------------------------------------------------------------------------

const VIEWS = ["strip", "tree", "text", "cache", "time"];

/** Draw a run into `element`. options: views, label, empty (a sentence while there is no run), onGap(from, to) is asked
 *  for steps that are missing or not whole, onSeek(i) is told where the view stands. */
export function mount(element, options = {}) {
  const store = new Store();
  const chosen = options.views || VIEWS;
  const context = {
    at: -1,
    following: true,
    selection: null,
    rule: (x) => x.head?.method?.acceptance?.name ?? "",
    seek: (i) => view.seek(i),
    follow: (on) => view.follow(on),
    select: (node) => view.select({ step: context.at, node }),
  };
  const empty = h("p", { class: "empty" }, options.empty || "No run yet.");
  const veil = h("p", { class: "veil", role: "status" });
  const outcome = h("p", { class: "outcome", role: "status" });
  const reader = h("p", { class: "aloud", "aria-live": "polite" });
  const root = h("div", { class: "ds", role: "region", "aria-label": options.label || "decoding run", tabindex: -1 });
  const parts = [];
  const add = (part, parent = root) => (parts.push(part), parent.append(part.element), part);
  root.append(empty);
  if (chosen.includes("strip")) add(stripView());
  if (chosen.includes("tree")) {
    const section = h("section", { class: "tree-pane" });
    root.append(section);
    add(headline(context), section);
    section.append(outcome);
    add(treeView(context), section);
    add(legend(), section);
  }
  if (chosen.includes("text")) add(textView(context));
  if (chosen.includes("cache")) add(cacheView());
  if (chosen.includes("time")) add(timeView(context));
  root.append(veil, reader);
  element.append(root);

  let frame = 0, told = 0, asked = new Set();
  const request = () => (frame = frame || requestAnimationFrame(draw));
  function draw() {
    frame = 0;
    if (context.following) context.at = store.count - 1;
    const i = context.at;
    empty.style.display = store.head || store.count ? "none" : "";
    const width = root.clientWidth;
    root.classList.toggle("narrow", width < 700);
    for (const part of parts) part.draw(store, i, width);
    const end = store.end;
    say(outcome, end && i === store.count - 1 ? ending(end) : "");
    outcome.style.display = outcome.textContent ? "" : "none";
    outcome.classList.toggle("bad", !!end && !["stop_token", "max_new_tokens", "stopped_by_user"].includes(end.reason));
    if (i >= 0 && !store.whole(i) && (!context.following || end)) ask(i, i + 1);
    const time = performance.now();
    if (store.steps[i] && time - told > 1000) {
      told = time;
      const step = store.steps[i];
      say(reader, `step ${i}, ${step.drafted ? `${step.made.filter((m) => m[2] === "accept").length} of ${step.drafted} accepted` : plural(step.made.length, "token")}`);
    }
  }
  function ask(from, to) {
    const key = `${from}-${to}`;
    if (!options.onGap || asked.has(key)) return;
    asked.add(key);
    options.onGap(from, to);
  }

  const resize = new ResizeObserver(request);
  resize.observe(element);
  const restyle = () => {
    for (const part of parts) part.restyle?.();
    request();
  };
  let scheme = "auto";
  const media = matchMedia("(prefers-color-scheme: dark)");
  const host = new MutationObserver(() => paint());
  function paint() {
    const jupyter = document.body.dataset.jpThemeLight;
    const dark = scheme !== "auto" ? scheme === "dark" : document.body.classList.contains("dark") || (jupyter ? jupyter === "false" : !document.querySelector("gradio-app") && media.matches);
    if (root.dataset.theme !== (dark ? "dark" : "light")) {
      root.dataset.theme = dark ? "dark" : "light";
      restyle();
    }
  }
  host.observe(document.body, { attributes: true, attributeFilter: ["class", "data-jp-theme-light"] });
  media.addEventListener("change", paint);
  document.fonts?.ready.then(restyle);
  root.addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select, [contenteditable]") || event.ctrlKey || event.metaKey || event.altKey) return;
    const go = { ArrowLeft: -1, ",": -1, ArrowRight: 1, ".": 1 }[event.key];
    if (go) view.seek(context.at + go * (event.shiftKey ? 10 : 1));
    else if (event.key === "Home") view.seek(0);
    else if (event.key === "End" || event.key === "f") view.follow(true);
    else return;
    event.preventDefault();
  });

  const view = {
    /** Append one message; a hole before it is asked for. */
    push(message) {
      if (!store.push(message)) return;
      if (message.kind === "step" && message.i > 0 && !store.steps[message.i - 1]) {
        let from = message.i - 1;
        while (from > 0 && !store.steps[from - 1]) from--;
        ask(from, message.i);
      }
      request();
    },
    /** Show step i and stay there. */
    seek(i) {
      if (!store.count) return;
      context.at = Math.max(0, Math.min(store.count - 1, i));
      context.following = false;
      options.onSeek?.(context.at);
      request();
    },
    /** Show the newest step from now on. */
    follow(on) {
      context.following = on;
      if (on) options.onSeek?.(store.count - 1);
      request();
    },
    /** Ring one node of one step. */
    select({ step, node }) {
      context.selection = { step, node };
      if (step !== context.at) view.seek(step);
      options.onSelect?.(context.selection);
      request();
    },
    /** "auto", "light" or "dark". */
    theme(name) {
      scheme = name;
      paint();
    },
    /** A sentence over the picture ("reconnecting…"); empty to take it away. */
    note(sentence) {
      say(veil, sentence);
      root.classList.toggle("veiled", !!sentence);
    },
    /** Forget everything: another run begins. */
    clear() {
      store.head = store.end = null;
      store.steps = [];
      store.trees.clear();
      store.count = 0;
      asked = new Set();
      Object.assign(context, { at: -1, following: true, selection: null });
      request();
    },
    /** Forget what was asked for, so that it is asked for again. */
    retry: () => (asked.clear(), request()),
    destroy() {
      cancelAnimationFrame(frame);
      resize.disconnect();
      host.disconnect();
      media.removeEventListener("change", paint);
      root.remove();
    },
    get at() {
      return context.at;
    },
    get following() {
      return context.following;
    },
    store,
    root,
  };
  view.theme(options.theme || "auto");
  paint();
  request();
  return view;
}

const ENDS = {
  stop_token: "The model ended the text.",
  max_new_tokens: "The run has as many tokens as were asked for.",
  stopped_by_user: "Stopped.",
  context_full: "The context of the model is full.",
  interrupted: "The run was interrupted; these are the steps that were kept.",
};
/** Why a run ended, as a sentence. */
export const ending = (end) => end.message || ENDS[end.reason] || `The run ended: ${named(end.reason)}.`;

/** The adapter of a notebook widget: messages come as custom messages, the finished trace as a trait. */
export default {
  render({ model, el }) {
    const view = mount(el, { views: model.get("views") || undefined, onGap: (from, to) => model.send({ kind: "gap", from, to }) });
    const take = () => (model.get("messages") || []).forEach((message) => view.push(message));
    const listen = (message) => view.push(message);
    take();
    model.on("msg:custom", listen);
    model.on("change:messages", take);
    return () => {
      model.off("msg:custom", listen);
      model.off("change:messages", take);
      view.destroy();
    };
  },
};
