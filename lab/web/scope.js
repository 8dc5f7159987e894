/* scope: draws a decoding run. One plain module for the page, for notebooks and for exported files; no dependency.
 *
 *   const view = mount(element, {views: ["strip", "tree", "card", "text", "cache", "time"], onGap, onSeek});
 *   view.push(message)        a head, a step or an end, as lab/wire.py makes them
 *   view.seek(i)  view.follow(true)  view.select({step, node})  view.theme("auto")  view.destroy()
 *
 * In this order: text of tokens, the store, decisions and layout (pure functions), elements, views, mount. Everything that a model or
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

const KEPT = 0x7fffffff;
/** When each entry of the target's cache was evicted: a row is a layer and KV head, a column a position. What is evicted
 *  never comes back, so one number per entry answers for every step: kept at step i if it is above i. */
export class CacheMap {
  constructor(layers, heads) {
    Object.assign(this, { layers, heads, rows: layers * heads, room: 256, upto: -1, untold: false, wants: null, lengths: [], first: Infinity });
    this.at = new Int32Array(this.rows * this.room).fill(KEPT);
  }

  /** Take in the steps that have come, as far as there is no hole; `wants` is then the step that is missing. */
  follow(steps) {
    for (this.wants = null; this.upto + 1 < steps.length; this.upto++) {
      const i = this.upto + 1, change = steps[i]?.kv.find((x) => x.lane === "target");
      if (!steps[i] || change?.lost) return void (this.wants = i);
      if (!change) {
        this.lengths[i] = this.lengths[i - 1] || 0;
        continue;
      }
      this.lengths[i] = change.read;
      while (this.room < change.read) this.grow();
      if (change.prompt) this.enter(change.prompt, -1);
      this.enter(change, i);
      if (change.untold || change.prompt?.untold) this.untold = true;
    }
  }

  enter({ gone, out }, i) {
    const note = (row, runs) => {
      for (const run of runs) {
        const [from, to] = Array.isArray(run) ? run : [run, run];
        for (let p = from; p <= to && p < this.room; p++) this.at[row * this.room + p] = i;
      }
    };
    if (gone || out) this.first = Math.min(this.first, i);
    for (let row = 0; row < this.rows; row++) {
      if (gone) note(row, gone);
      if (out?.[row]) note(row, out[row]);
    }
  }

  grow() {
    const wider = new Int32Array(this.rows * this.room * 2).fill(KEPT);
    for (let row = 0; row < this.rows; row++) wider.set(this.at.subarray(row * this.room, (row + 1) * this.room), row * this.room * 2);
    this.at = wider;
    this.room *= 2;
  }

  /** Positions that the cache has read up to step i. */
  length = (i) => this.lengths[i] || 0;
  kept = (row, position, i) => position < this.length(i) && this.at[row * this.room + position] > i;
  /** Whether anything was evicted up to step i. */
  any = (i) => this.first <= i;

  /** How many entries the rows hold, in words. */
  summary(i) {
    let least = Infinity, most = 0;
    for (let row = 0; row < this.rows; row++) {
      let held = 0;
      for (let p = row * this.room, end = p + this.length(i); p < end; p++) held += this.at[p] > i;
      least = Math.min(least, held);
      most = Math.max(most, held);
    }
    return least === most ? `${least} kept in each row` : `${least} to ${most} kept in a row`;
  }
}

/** The messages of one run, by number, and what follows from them. */
export class Store {
  constructor() {
    this.head = null;
    this.end = null;
    this.steps = []; // sparse: a hole is a step that has not come
    this.count = 0;
    this.map = null;
    this.words = { head: null, upto: 0, list: [] };
    this.masses = new Map(); // step -> its map of attention, unpacked when looked at
  }

  /** Take a message; whether anything changed. A step in full replaces its brief, never the other way round. */
  push(message) {
    if (message.kind === "head") this.head = message;
    else if (message.kind === "end") this.end = message;
    else if (message.kind === "step") {
      const old = this.steps[message.i];
      if (old && fullness(message) < fullness(old)) return false;
      this.steps[message.i] = message;
      this.count = Math.max(this.count, message.i + 1);
    } else return false;
    return true;
  }

  /** Whether step i can be drawn as it was recorded. */
  whole(i) {
    const step = this.steps[i];
    return !!step && fullness(step) === 2;
  }

  /** The map of the target's cache, as far as the steps reach. */
  mapped() {
    if (!this.head) return null;
    const { n_layers: layers, n_kv_heads: heads } = this.head.model;
    if (!this.map && layers && heads) this.map = new CacheMap(layers, heads);
    this.map?.follow(this.steps);
    return this.map;
  }

  /** Attention mass at step i where it was recorded: bytes [row, position] of `width` positions. */
  massAt(i) {
    const packed = this.steps[i]?.kv.find((x) => x.lane === "target")?.mass;
    if (!packed || !this.map) return null;
    if (!this.masses.has(i)) {
      if (this.masses.size > 16) this.masses.clear();
      const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
      this.masses.set(i, Object.assign(bytes, { width: bytes.length / this.map.rows }));
    }
    return this.masses.get(i);
  }

  /** Position in the text -> the token's text; "" where it is not known. */
  texts() {
    const { words } = this, { prompt, prompt_tokens: all } = this.head;
    if (words.head !== this.head) Object.assign(words, { head: this.head, upto: 0, list: [...Array(all - prompt.length).fill(""), ...prompt.map(([, text]) => text)] });
    for (; words.upto < this.count && this.steps[words.upto]; words.upto++) words.list.push(...this.steps[words.upto].made.map(([, text]) => text));
    return (position) => words.list[position] ?? "";
  }

  /** The nodes of step i: [{id, parent, text, q, p, u, status, r, threshold}], what was left out of the wire missing. */
  nodes(i) {
    const step = this.steps[i];
    return step && step.nodes ? nodesOf(step) : null;
  }
}

/** 0: no tree; 1: something is left out; 2: all that was recorded. */
const fullness = (step) => (step.brief ? 0 : step.cut || step.few || step.kv?.some((x) => x.lost) ? 1 : 2);

const known = new WeakMap(); // step -> its nodes, made when looked at
/** Rows of the wire -> nodes. */
export function nodesOf(step) {
  if (known.has(step)) return known.get(step);
  const nodes = [];
  step.nodes.forEach((row, id) => {
    if (!row) return;
    const node = { id };
    ROW.forEach((name, k) => (node[name] = row[k] ?? null));
    node.status = node.status || "unreached";
    nodes.push(node);
  });
  known.set(step, nodes);
  return nodes;
}

/** A block of a fixed-point method as a chain: final tokens kept, the others still guesses. */
export function chainOf(step) {
  const { after, fixed } = step.iteration;
  const root = { ...nodesOf(step)[0] };
  return [root, ...after.map(([id, text], k) => ({ id: k + 1, parent: k, text, token: id, q: null, p: null, u: null, status: k < fixed ? "accept" : "unreached" }))];
}

// ---- decisions: what the card says of one node, from the record alone -------------------------------------------------

/** Path of a block by its own test: the last i with u_i < h_i, and whether the weights follow from p and q. */
function blockOf(step) {
  const { w, h: bounds, u } = step.rule || {};
  if (![w, bounds, u].every(Array.isArray) || bounds.length !== u.length || w.length !== u.length + 1) return null;
  const tried = nodesOf(step).filter((n) => n.r !== null);
  let last = 0;
  u.forEach((x, k) => x < bounds[k] && (last = k + 1));
  const due = tried.length === u.length ? tried.map((n, k) => Math.min(1, (w[k] * n.p) / n.q)) : [];
  const rows = u.map((x, k) => ({ k: k + 1, node: tried[k], w: w[k + 1], h: bounds[k], u: x, ok: x < bounds[k] }));
  return { last, rows, sound: due.every((x, k) => Math.abs(x - w[k + 1]) <= 1e-9 * Math.max(1, x)) };
}

/** Is it exact matching: a greedy law, under which nothing is drawn? */
export const exact = (step) => step.verdict.tried.length > 0 && !step.rule && nodesOf(step).every((n) => n.r === null || (n.u === null && (n.p === 0 || n.p === 1)));

/** One trial judged again from its numbers: true, false, or null where the record holds too little. */
export function judged(step, rule, node) {
  if (node.r === null) return null;
  if (rule === "block" && step.rule) return step.rule.u && step.rule.h ? ((k) => step.rule.u[k] < step.rule.h[k])(step.verdict.tried.indexOf(node.id)) : null;
  if (rule === "typical" && step.rule) return node.p > node.threshold;
  if (rule === "lossless" || exact(step)) return node.u === null ? node.r > 0 : node.u * node.q < node.r;
  return null;
}

/** Do the recorded verdicts follow from the recorded numbers? null where the rule says more than these numbers. */
export function rederives(step, rule) {
  if (step.iteration) return fixedOf(step) === step.iteration.fixed;
  const nodes = nodesOf(step), tried = nodes.filter((n) => n.r !== null), { path, extra, ok } = step.verdict;
  const drawn = !extra || extra[0] === null ? null : extra[1] - 1e-12 <= extra[0] && extra[0] < extra[2] + 1e-12;
  if (!tried.length || drawn === false) return drawn;
  const verdicts = tried.map((n) => judged(step, rule, n));
  if (verdicts.includes(null)) return null;
  const by = new Map(nodes.map((n) => [n.id, n]));
  const told = ok || tried.map((n) => (n.status === "reject" ? 0 : 1));
  const order = ok ? step.verdict.tried.map((id) => by.get(id)) : tried;
  if (order.some((n, k) => !n || judged(step, rule, n) !== !!told[k])) return false;
  if (rule === "block" && step.rule) {
    const block = blockOf(step);
    return !!block && block.sound && (path.length - 1 === block.last || (!extra && path.length - 1 < block.last));
  }
  return path.slice(1).every((id) => judged(step, rule, by.get(id)) === true);
}

/** Final tokens after a pass of a fixed-point method: the guesses that the pass confirmed, and one more. */
export function fixedOf(step) {
  const { before, after } = step.iteration;
  let fixed = 1;
  while (fixed < before.length && before[fixed - 1][0] === after[fixed - 1][0]) fixed++;
  return Math.min(fixed, after.length);
}

const SURE = 1e-4; // laws are recorded in single precision: a smaller sum is rounding
/** The laws at a place, after the trials in `refused` took their share: rows with the rest as the last one, so that p and
 *  left each add up to one; total is what was left before it was scaled. Null where none are recorded; left is null where
 *  it cannot be told. */
export function lawsAt(step, place, refused = [], most = 5) {
  const found = (step.tops || []).find(([at]) => at === place);
  if (!found) return null;
  const [, entropy, rest, shown] = found, by = new Map(nodesOf(step).map((n) => [n.id, n]));
  const ids = shown.map(([token]) => token), p = shown.map((x) => x[2]), q = shown.map((x) => x[3]);
  const sum = (list) => list.reduce((a, b) => a + b, 0);
  let left = null, total = null;
  if (refused.length && step.proposal === "onehot") {
    const gone = new Set(refused.map((n) => n.token)), over = p.map((x, k) => (gone.has(ids[k]) ? 0 : x)), all = sum(over) + rest[0];
    total = 1 - sum(refused.map((n) => n.p));
    if (total >= SURE) left = over.map((x) => x / all);
  } else if (refused.length && step.proposal !== "mixed" && sum(q) + rest[1] > SURE) {
    let r = p, law = q;
    for (let k = 0; k < refused.length && r; k++) {
      const over = r.map((x, j) => Math.max(0, x - law[j]));
      if (k === 0) total = sum(over) + rest[2];
      else {
        // what the rest keeps is no longer in the record, but the next number that was recorded gives the scale
        const next = refused[k + 1] || [...by.values()].find((n) => n.r !== null && n.parent === place && n.id > refused[k].id);
        const extra = step.verdict.extra, own = extra && step.verdict.path.at(-1) === place ? [...by.values()].pop() : null;
        const known = next ? [next.token, next.r] : own ? [own.token, extra[2] - extra[1]] : null, at = known ? ids.indexOf(known[0]) : -1;
        total = at >= 0 && known[1] > SURE ? over[at] / known[1] : null;
      }
      r = total !== null && total >= SURE ? over.map((x) => x / total) : null;
      const taken = step.proposal === "without_replacement" ? ids.indexOf(refused[k].token) : -1;
      if (taken >= 0) law = law[taken] < 1 ? law.map((x, j) => (j === taken ? 0 : x / (1 - law[taken]))) : law;
    }
    if (r && sum(r) <= 1 + SURE) left = r;
  }
  const tried = [...by.values()].filter((n) => n.r !== null && n.parent === place).map((n) => n.token);
  const worth = (k) => (left ? left[k] : 0) + p[k] + q[k] / 1000;
  const ranked = ids.map((_, k) => k).sort((a, b) => worth(b) - worth(a)).slice(0, most);
  const order = [...new Set([...tried.map((token) => ids.indexOf(token)).filter((k) => k >= 0), ...ranked])];
  const other = ids.map((_, k) => k).filter((k) => !order.includes(k));
  const rows = order.map((k) => ({ token: ids[k], text: shown[k][1], p: p[k], q: q[k], left: left && left[k], tried: tried.includes(ids[k]) }));
  rows.push({ token: null, text: "", p: sum(other.map((k) => p[k])) + rest[0], q: sum(other.map((k) => q[k])) + rest[1], left: left && Math.max(0, 1 - sum(order.map((k) => left[k]))) });
  return { entropy, rows, total, drawn: sum(q) + rest[1] > SURE, left: !!left };
}

/** Where a reader looks first: the first node refused, else the target's own token, else the last kept. */
export function firstOf(step) {
  if (!step || !step.nodes) return null;
  if (step.iteration || step.beams) return 1;
  const nodes = nodesOf(step);
  return (nodes.find((n) => n.status === "reject" && n.r !== null) || nodes.find((n) => OWN.has(n.status)) || nodes[step.verdict.path.at(-1)] || nodes[0])?.id ?? null;
}
const OWN = new Set(["bonus", "resample", "target"]);

/** What the card says of one node of a step, as plain data. */
export function decision(step, rule, id, method = {}) {
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
  if (exact(step)) {
    made.form = "greedy";
    made.laws = lawsAt(step, node.parent, []);
    const choice = nodes.find((n) => n.parent === node.parent && (OWN.has(n.status) || n.status === "accept"));
    made.numbers = [["draft", "proposes", node], ["target", "chooses", choice || null]];
    made.test = ["the same token", null, node.p === 1 ? "same" : "another", null];
    made.box = { ink: node.p, box: 1 };
    made.lines.push(node.p === 1 ? "A greedy target has one choice. This is it, so the guess stays; nothing is drawn." : "A greedy target has one choice. This is not it, so the guess goes; nothing is drawn.");
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
  } else made.test = [`${name} > 0`, node.r, node.r > 0 ? ">" : "=", 0];
  made.box = { ink: node.r, box: node.q, u: node.u, name };
  if (before.length) made.lines.push(`${before.length === 1 ? "One guess" : before.length + " guesses"} refused here before it: r is what the target's law still owes.`);
  made.laws = lawsAt(step, node.parent, node.status === "reject" ? refused(node.id) : []);
  return made;
}

/** The same for the token that the target added by itself. */
function extraOf(step, rule, node, made, refused) {
  const [u, low, high] = step.verdict.extra || [null, 0, 1];
  made.form = "extra";
  made.title = { bonus: "Bonus token", resample: "Drawn again", target: "The target's token" }[node.status];
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
    : node.status === "resample" ? (rule === "block" ? "The block ends here. The token comes from what the accepted part left of the target's law." : "No guess at this place passed. The token is drawn from the target's law.")
    : "The target draws one token from its own law.");
  return made;
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

/** A small button that is on or off. */
function toggle(word, act) {
  const button = h("button", { type: "button", class: "small", "aria-pressed": "false" }, word);
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", on);
    act(on);
  });
  return button;
}

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
  const svg = s("svg", { class: "tree", role: "tree" });
  const edgeLayer = s("g"), nodeLayer = s("g"), ring = s("circle", { class: "ring", r: 11 });
  svg.append(edgeLayer, ring, nodeLayer);
  const lines = pool(edgeLayer, () => s("path", { class: "edge" }));
  const marks = pool(nodeLayer, () => {
    const group = s("g", { class: "node", role: "treeitem", tabindex: -1 }, s("rect", { class: "reach", x: -12, y: -12, height: 24 }), s("g", { class: "mark" }), s("text", { class: "label" }), s("text", { class: "sub" }));
    group.addEventListener("click", () => context.select(Number(group.dataset.node)));
    return group;
  });
  const list = h("ol", { class: "beams" });
  const beamRows = pool(list, () => h("li", null, h("button", { type: "button" })));
  list.addEventListener("click", (event) => event.target.closest("li") && context.select([...list.children].indexOf(event.target.closest("li")) + 1));
  const note = h("p", { class: "quiet" }), twin = h("div", { class: "twin" });
  const element = h("div", { class: "tree-box" }, svg, list, twin, note);
  let measure = null, small = null, tabled = false, shown = [], width = 0;

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

  function table(nodes, step) {
    const parents = new Map(nodes.map((n) => [n.id, n])), cell = (x) => h("td", null, x === null ? "–" : String(x));
    twin.replaceChildren(h("table", { class: "plain" }, h("caption", null, `Draft tree of step ${step.i}`), h("thead", null, h("tr", null, ["node", "token", "after", "q", "p", "r", "u", "threshold", "verdict"].map((x) => h("th", { scope: "col" }, x)))),
      h("tbody", null, nodes.map((n) => h("tr", null, cell(n.id), h("td", null, tokenOf(n.text)), h("td", null, parents.has(n.parent) ? tokenOf(parents.get(n.parent).text) : "–"), [n.q, n.p, n.r, n.u, n.threshold].map(cell), h("td", null, WORDS[n.status]))))));
  }

  /** The node that a key leads to from the chosen one, or null. */
  function step(key, at) {
    const nodes = shown, by = new Map(nodes.map((n) => [n.id, n])), node = by.get(at);
    if (!node) return nodes[0]?.id ?? null;
    const kids = children(nodes), family = nodes.filter((n) => n.parent === node.parent), k = family.indexOf(node);
    const found = key === "h" ? by.get(node.parent) : key === "l" ? kids.get(node.id)[0] : family[k + (key === "j" ? 1 : -1)];
    return found ? found.id : null;
  }

  function draw(store, i) {
    if (!measure) fonts();
    const step = store.steps[i];
    const rule = store.head?.method?.acceptance?.name ?? "";
    const beams = step?.beams, nodes = step?.iteration ? chainOf(step) : store.nodes(i);
    list.style.display = beams ? "" : "none";
    svg.style.display = nodes && !beams && !tabled ? "" : "none";
    twin.style.display = nodes && !beams && tabled ? "" : "none";
    shown = nodes || [];
    say(note, !step ? "" : !nodes ? "fetching this step…" : step.cut ? `${step.nodes.filter((n) => !n).length} nodes that were not reached are left out` : "");
    if (beams) {
      const best = context.chosen(store, i);
      beams.tokens.forEach(([, text], k) => {
        const button = beamRows.at(k).firstChild;
        say(button, `${beams.scores[k].toFixed(2)} nats   ${spoken(text)}   from ${beams.parents[k] + 1}`);
        set(button, { "aria-pressed": k + 1 === best });
      });
      beamRows.trim(beams.tokens.length);
      shown = beams.tokens.map((_, k) => ({ id: k + 1, parent: -1 }));
      return;
    }
    if (!nodes) return;
    if (tabled) return table(nodes, step);
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
    const chosen = context.chosen(store, i), held = nodeLayer.contains(document.activeElement);
    const stop = laid.items.some((item) => item.node.id === chosen) ? chosen : laid.items[0].node.id;
    shown = laid.items.map((item) => item.node);
    ring.style.display = "none";
    laid.items.forEach((item, k) => {
      const { node } = item, group = marks.at(k), [reach, mark, text, numbers] = group.childNodes;
      const told = laid.kind === "standing" ? "" : sub(node);
      set(group, { class: "node " + node.status, transform: `translate(${item.x},${item.y})`, "data-node": node.id, "aria-label": describe(node, item.depth), "aria-level": item.depth + 1, "aria-selected": node.id === chosen, tabindex: node.id === stop ? 0 : -1 });
      set(reach, { width: Math.max(24, item.end - item.x + 14) });
      if (held && node.id === stop && document.activeElement !== group) group.focus({ preventScroll: true });
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
  return { element, draw, step, look: () => (width = element.clientWidth), restyle: () => (measure = null), focus: () => nodeLayer.querySelector('[tabindex="0"]')?.focus(), table: (on) => ((tabled = on), context.redraw()) };
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
      else if (step.beams) told = `: ${plural(step.beams.tokens.length, "hypothesis").replace("hypothesiss", "hypotheses")} kept, the text comes at the end`;
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
function legend(asTable) {
  const entries = new Map(LEGEND.map((status) => [status, h("span", null, glyph(status), WORDS[status])]));
  const keys = h("div", { class: "legend" }, ...entries.values()), element = h("div", { class: "under" }, asTable, keys);
  return {
    element,
    draw(store, i) {
      const plain = store.head && !["draft_verify"].includes(store.head.method.strategy.name);
      const none = store.head?.method?.drafter?.name === "none";
      element.style.display = store.steps[i]?.nodes && !store.steps[i].beams ? "" : "none";
      keys.style.display = plain ? "none" : "";
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
  let head = null, spans = [], shownTo = -1, made = 0, marked = [], stick = true;
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
    look: () => (stick = box.scrollTop + box.clientHeight >= box.scrollHeight - 24),
    settle: () => stick && (box.scrollTop = box.scrollHeight),
    draw(store, i) {
      element.style.display = store.head ? "" : "none";
      if (!store.head) return;
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
    },
  };
}

/** A probability with three places, more where it is small. */
const prob = (x) => (x === null || x === undefined ? "–" : x === 0 ? "0" : Math.abs(x) >= 0.0995 || x >= 0.001 ? x.toFixed(3) : Math.abs(x) >= 1e-6 ? x.toFixed(6) : x.toExponential(1));
/** Two numbers with as many places as it takes to tell them apart. */
function apart(a, b) {
  if (prob(a) !== prob(b) || a === b) return [prob(a), prob(b)];
  for (let digits = 4; digits < 17; digits++) if (a.toFixed(digits) !== b.toFixed(digits)) return [a.toFixed(digits), b.toFixed(digits)];
  return [String(a), String(b)];
}
/** The same in a table of many: what is below a thousandth is said to be. */
const share = (x) => (x > 0 && x < 0.0005 ? "<0.001" : x < 0.0005 ? "0" : x.toFixed(3));
/** A token as inline elements, its symbols in a quieter ink. */
const tokenOf = (text, most = 20) => h("code", { class: "token" }, pieces(text, most).map(([shown, quiet]) => (quiet ? h("span", { class: "ws" }, shown) : shown)));

const inked = (x, y, kind, said, anchor) => s("text", { x, y, class: kind, "text-anchor": anchor }, said);
/** The box is what the draft claims, the ink what the target backs, u is thrown at the box. */
function dart(box, width, status) {
  const ratio = box.box > 0 ? box.ink / box.box : 0, over = Math.min(1.45, Math.max(1, ratio)), W = width - 2, wide = W / over, ink = Math.min(1, ratio) * wide;
  const svg = s("svg", { class: "dart", width, height: box.u === undefined ? 66 : 88, viewBox: `-1 ${box.u === undefined ? -2 : -24} ${width} ${box.u === undefined ? 66 : 88}`, "aria-hidden": "true" });
  if (ratio > 1) svg.append(s("rect", { class: "owed", x: wide, y: 7, width: W - wide, height: 24 }));
  svg.append(s("rect", { class: "paper", x: 0, y: 0, width: wide, height: 38, rx: 2 }), s("rect", { class: "ink", x: 0, y: 0, width: ink, height: 38 }), s("rect", { class: "box", x: 0, y: 0, width: wide, height: 38, rx: 2 }));
  const name = box.name || "p";
  if (ink > 26) svg.append(inked(9, 23, "on-ink", name, "start"));
  if (wide - ink > 26) svg.append(inked(wide - 9, 23, "on-paper", box.mark === undefined ? "q" : "", "end"));
  const share = Math.min(1, ratio), mark = box.mark !== undefined ? box.mark : share;
  const at = mark * wide, label = box.mark !== undefined ? `bound ${prob(box.mark)}` : ratio >= 1 ? "" : `${name}/q ${prob(ratio)}`;
  const half = label.length * 3.4, x = Math.max(half, Math.min(W - half, at));
  if (label) svg.append(s("path", { class: "tick", d: `M${at},38v6` }), inked(x, 52, "scale strong", label, "middle"));
  if (!label || x - half > 14) svg.append(inked(0, 52, "scale", "0", "start"));
  if (!label || x + half < wide - 10) svg.append(inked(wide, 52, "scale", "1", ratio > 1 ? "middle" : "end"));
  if (box.u !== undefined && box.u !== null) {
    const u = box.u * wide, told = `u ${prob(box.u)}`, h2 = told.length * 3.3;
    svg.append(s("path", { class: "aim " + status, d: `M${u},-9V14` }), s("polygon", { class: "throw " + status, points: points(DIAMOND, 6), transform: `translate(${u},19)` }), inked(Math.max(h2, Math.min(W - h2, u)), -13, "scale strong", told, "middle"));
  }
  return svg;
}

/** All tokens side by side, each as wide as it is likely, and where u fell. */
function stretch({ u, low, high }, width) {
  const W = width - 2, a = low * W, b = Math.max(low * W + 1.5, high * W), told = `u ${prob(u)}`, half = told.length * 3.3;
  const ends = `${prob(low)} to ${prob(high)}`, h2 = ends.length * 3.1, mid = Math.max(h2, Math.min(W - h2, (a + b) / 2));
  return s("svg", { class: "dart", width, height: 88, viewBox: `-1 -24 ${width} 88`, "aria-hidden": "true" },
    s("rect", { class: "paper", width: W, height: 38, rx: 2 }), s("rect", { class: "owed", x: a, width: b - a, height: 38 }), s("rect", { class: "box", width: W, height: 38, rx: 2 }),
    s("path", { class: "aim own", d: `M${u * W},-9V14` }), s("polygon", { class: "throw own", points: points(DIAMOND, 6), transform: `translate(${u * W},19)` }), inked(Math.max(half, Math.min(W - half, u * W)), -13, "scale strong", told, "middle"),
    mid - h2 > 14 ? inked(0, 52, "scale", "0", "start") : null, mid + h2 < W - 10 ? inked(W, 52, "scale", "1", "end") : null, inked(mid, 52, "scale strong", ends, "middle"));
}

function lawTable(laws, title, note, most) {
  const scale = Math.max(...laws.rows.map((row) => Math.max(row.p, laws.drawn ? row.q : 0)), 1e-9), pct = (x) => `${((100 * x) / scale).toFixed(2)}%`;
  const rows = laws.rows.map((row) => {
    const rest = row.token === null;
    return h("tr", { class: (row.tried ? "tried " : "") + (rest ? "rest" : "") || null },
      h("th", { scope: "row" }, rest ? "all others" : tokenOf(row.text, most)),
      h("td", { class: "picture" }, h("span", { class: "pair" }, row.p > row.q && laws.drawn && laws.left ? h("span", { class: "owed", style: `width:${pct(row.p)}` }) : null, h("span", { class: "ink", style: `width:${pct(laws.drawn && laws.left ? Math.min(row.p, row.q) : row.p)}` }), laws.drawn ? h("span", { class: "box", style: `width:${pct(row.q)}` }) : null)),
      laws.drawn ? h("td", null, share(row.q)) : null, h("td", null, share(row.p)), laws.left ? h("td", { class: "left" }, row.left > 0 ? share(row.left) : "–") : null);
  });
  return [h("h3", null, title, h("span", { class: "quiet" }, note)),
    h("table", { class: "laws" }, h("thead", null, h("tr", null, h("th", { scope: "col" }, "token"), h("td", null), laws.drawn ? h("th", { scope: "col" }, "q") : null, h("th", { scope: "col" }, "p"), laws.left ? h("th", { scope: "col" }, "residual") : null)), h("tbody", null, rows))];
}

const numbersTable = (rows, test) => h("table", { class: "sums" }, h("tbody", null,
  rows.map(([word, symbol, value]) => h("tr", null, h("th", { scope: "row" }, word), h("td", null, h("code", null, symbol)), h("td", { class: "value" }, value && typeof value === "object" ? tokenOf(value.text) : typeof value === "number" ? prob(value) : value ?? "–"))), test));

/** The decision behind one node. It shows the first refusal of a step until a node is chosen. */
function cardView(context) {
  const body = h("div", { class: "decision-body" });
  const element = h("aside", { class: "decision", tabindex: -1, role: "region", "aria-label": "decision" }, body);
  let drawn = null, drawnAs = "", wide = 0;
  function status(made) {
    if (made.agrees === false) return h("span", { class: "lie", role: "alert" }, "does not re-derive");
    return made.agrees ? h("span", { class: "agree" }, s("svg", { width: 14, height: 14, viewBox: "0 0 14 14", "aria-hidden": "true" }, s("path", { d: "M2.5 7.5l3 3 6-7" })), "re-derived") : null;
  }
  function shell(mark, title, token, where, made) {
    return [h("header", null, mark ? glyph(mark, 5.5) : null, h("h2", { class: mark }, title), status(made)), h("p", { class: "who" }, token, h("span", { class: "quiet" }, where))];
  }
  const verdictWord = (ok) => (ok ? "accepted" : "rejected");
  function lie(made) {
    if (made.agrees !== false || made.again === undefined) return null;
    return h("table", { class: "sums lying" }, h("tbody", null, h("tr", null, h("th", null, "record says"), h("td", { class: "value" }, verdictWord(made.recorded))), h("tr", null, h("th", null, "numbers say"), h("td", { class: "value" }, verdictWord(made.again)))));
  }
  function blockTable(made) {
    return h("table", { class: "laws block" }, h("thead", null, h("tr", null, ["token", "w", "h", "u", ""].map((x) => h("th", { scope: "col" }, x)))),
      h("tbody", null, made.block.rows.map((row) => h("tr", { class: row.k === made.k ? "tried" : null }, h("th", { scope: "row" }, row.node ? tokenOf(row.node.text, 12) : String(row.k)), h("td", null, prob(row.w)), h("td", null, prob(row.h)), h("td", null, prob(row.u)), h("td", { class: row.ok ? "yes" : "no" }, row.ok ? (row.k === made.block.last ? "u < h, last" : "u < h") : "u ≥ h")))));
  }
  function told(store, i, step, made, width, two) {
    const half = two ? Math.floor((width - 32) / 2) : width, sign = made.test ? made.test[2] : "", bad = made.status === "reject" ? "bad" : made.status === "accept" ? "good" : "";
    let test = null;
    if (made.test) {
      const [symbol, a, , b] = made.test, [x, y] = typeof a === "number" ? apart(a, b) : [a || "", ""];
      const shown = made.test.length > 4 ? [made.test[1], made.test[3], made.test[5]].map(prob).map((v, k) => v + (k < 2 ? ` ${made.test[2 + 2 * k]} ` : "")).join("") : a === null ? `${sign} token` : `${x} ${sign} ${y}`;
      test = h("tr", { class: "test" }, h("th", { scope: "row" }, "test"), h("td", null, h("code", null, symbol)), h("td", { class: "value " + bad }, shown));
    }
    const odds = made.box && made.box.u !== undefined && made.box.box > 0 ? Math.min(1, made.box.ink / made.box.box) : null;
    const where = [made.id !== undefined && !OWN.has(made.status) ? `node ${made.id}` : "", made.depth ? `depth ${made.depth}` : "", made.tried].filter(Boolean).join(", ");
    const after = made.after ? [where ? " after " : "after ", tokenOf(made.after.text, 12)] : made.where ? [made.where] : [];
    const left = [shell(made.status, made.title, tokenOf(made.text, 16), [where, ...after], made), lie(made),
      made.box ? dart(made.box, half, made.status) : made.line ? stretch(made.line, half) : null,
      odds !== null ? h("p", { class: "odds" }, odds >= 1 ? h("span", null, "accepts any u") : [h("span", null, `accept ${(100 * odds).toFixed(1)} %`), h("span", null, `reject ${(100 * (1 - odds)).toFixed(1)} %`)]) : null,
      made.numbers?.length ? numbersTable(made.numbers, test) : null, made.form === "block" && made.block ? blockTable(made) : null, made.lines.map((line) => h("p", { class: "line" }, line))];
    const right = [];
    if (made.laws) {
      const residual = made.laws.left, chance = step.proposal === "onehot" || made.form === "greedy";
      const title = residual ? (OWN.has(made.status) ? "What was left" : "What the target wants instead") : made.laws.drawn ? "Both laws at this place" : made.form === "greedy" ? "The target's law before the sampler" : "The target's law here";
      const note = !residual ? "" : chance ? "p without what was refused" : made.laws.total !== null ? `∝ max(0, ${made.numbers.some((n) => n[1] === "r(x)") ? "r" : "p"} − q), ${prob(made.laws.total)} in all` : "";
      right.push(...lawTable(made.laws, title, note, half < 300 ? 8 : 12));
      if (made.status === "reject" && !residual && made.form === "drawn") right.push(h("p", { class: "line" }, "What was left after that many refusals is not in the record."));
    } else if (made.form !== "root" && made.status !== "unreached" && (step.few || step.cut)) right.push(h("p", { class: "quiet" }, "The laws at this place come with the whole step."));
    if (made.then) {
      const next = made.then, drawn = next.r !== null && next.u !== null && next.q && made.form === "drawn", [a, b] = drawn ? apart(next.u, next.r / next.q) : [];
      const numbers = drawn ? `${next.parent === made.after?.id && made.status === "reject" ? " against what is left" : ""}: ${a} ${next.u * next.q < next.r ? "<" : "≥"} ${b}` : "";
      right.push(h("p", { class: "then" }, glyph(next.status), " Then ", tokenOf(next.text, 12), `${numbers}, ${WORDS[next.status]}`));
    }
    return two && right.length ? [h("div", null, left), h("div", null, right)] : [left, right];
  }
  function iteration(step, at) {
    const { before, after, fixed } = step.iteration, agrees = rederives(step, ""), made = { agrees, recorded: fixed, again: fixedOf(step) };
    return [shell("", "Fixed point, one pass", `${fixed} of ${after.length} final`, "", made),
      agrees === false ? h("p", { class: "line" }, `The record says ${fixed}, the guesses say ${made.again}.`) : null,
      h("table", { class: "laws block" }, h("thead", null, h("tr", null, ["", "guess", "read", ""].map((x) => h("th", { scope: "col" }, x)))),
        h("tbody", null, after.map(([, text], k) => h("tr", { class: k + 1 === at ? "tried" : null }, h("th", { scope: "row" }, String(k + 1)), h("td", { class: "word" }, before[k] ? tokenOf(before[k][1], 10) : "–"), h("td", { class: "word" }, tokenOf(text, 10)), h("td", { class: k < fixed ? "yes" : "" }, k < fixed ? (before[k]?.[0] === after[k][0] ? "confirmed" : "final") : before[k]?.[0] === after[k][0] ? "same, not yet sure" : "new guess"))))),
      h("p", { class: "line" }, "One pass replaces every guess by the model's choice after the guesses before it. Leading guesses that come out as they went in are final, and so is the token after them.")];
  }
  function beams(store, i, step, at) {
    const { parents, scores, tokens } = step.beams, k = Math.min(tokens.length - 1, Math.max(0, at - 1)), before = store.steps[i - 1]?.beams;
    const from = before ? before.scores[parents[k]] : i === 0 ? 0 : null, own = from === null ? null : scores[k] - from;
    return [shell("", `Hypothesis ${k + 1} of ${tokens.length}`, tokens[k] ? tokenOf(tokens[k][1]) : "", before ? `goes on from hypothesis ${parents[k] + 1}` : "", { agrees: null }),
      numbersTable([["so far", "score before, nats", from === null ? null : from.toFixed(3)], ["this token", "ln p", own === null ? null : own.toFixed(3)], ["", "p", own === null ? null : Math.exp(own)], ["together", "score, nats", scores[k]?.toFixed(3)]]),
      h("p", { class: "line" }, "Every hypothesis is extended by every token; the best sums of log-probabilities stay. Nothing is drawn.")];
  }
  return {
    element,
    focus: () => element.focus(),
    look: () => (wide = element.clientWidth),
    restyle: () => (drawn = null),
    draw(store, i, width) {
      const step = store.steps[i], at = context.chosen(store, i);
      element.style.display = store.count ? "" : "none";
      if (!step) return void ((drawn = null), body.replaceChildren(h("p", { class: "quiet" }, store.count ? "fetching this step…" : "")));
      const inner = Math.max(200, wide - 40), two = inner >= 620, as = `${i} ${at} ${inner} ${context.selection?.step === i}`;
      if (drawn === step && drawnAs === as) return;
      drawn = step;
      drawnAs = as;
      let parts;
      if (!step.nodes) parts = [h("p", { class: "quiet" }, "fetching this step…")];
      else if (step.iteration) parts = iteration(step, at);
      else if (step.beams) parts = beams(store, i, step, at);
      else {
        const made = at === null ? null : decision(step, context.rule(store), at, store.head?.method);
        if (made && store.head?.levels && !store.head.levels.includes("decisions")) parts = [h("p", { class: "quiet" }, "This run was recorded without its decisions.")];
        else parts = made ? told(store, i, step, made, inner, two) : [h("p", { class: "quiet" }, step.cut ? "fetching this node…" : "Nothing was decided here.")];
      }
      body.classList.toggle("two", two && parts.length === 2 && parts[0] instanceof Element);
      body.replaceChildren(...parts.flat(5).filter(Boolean));
    },
  };
}

/** The target's cache: rows = layer x KV head, columns = positions. Ticks above: the share of attention where it was
 *  recorded, else in how many rows an entry is kept. */
function cacheView(context) {
  const bars = h("div", { class: "held" });
  const bar = pool(bars, () => h("div", { class: "bar" }, h("span", { class: "who" }), h("span", { class: "track" }, h("span", { class: "fill" })), h("span", { class: "much" })));
  const figures = h("div", { class: "figures" });
  const cells = pool(figures, () => h("span", null, h("b"), h("span")));
  const shape = h("span", { class: "quiet" }), note = h("p", { class: "quiet rule" });
  const canvas = h("canvas", { class: "map", tabindex: 0, role: "img" }), tip = h("p", { class: "tip", "aria-live": "off" });
  const twin = h("div", { class: "twin" });
  const asTable = toggle("Show as table", (on) => ((tabled = on), (seen = ""), context.redraw()));
  const back = h("button", { type: "button", class: "small" }, "all heads");
  back.addEventListener("click", () => open(null));
  const element = h("section", { class: "cache-pane" }, h("header", null, h("h2", null, "KV cache"), shape, figures), canvas, h("div", { class: "tools" }, note, tip, back, asTable), twin, bars);
  let row = null, tabled = false, seen = "", colours = null, geometry = null, cursor = null, last = null, wide = 0;
  const open = (k) => ((row = k), (seen = ""), context.redraw());
  const at = (event) => {
    const g = geometry, box = canvas.getBoundingClientRect();
    return g && { column: Math.max(0, Math.min(g.columns - 1, Math.floor(((event.clientX - box.left - g.left) / (g.wide - g.left)) * g.columns))), line: g.lines.findIndex((y) => event.clientY - box.top < y + g.tall + 1) };
  };
  canvas.addEventListener("click", (event) => {
    const hit = at(event);
    if (hit && row === null && hit.line >= 0) open(hit.line);
    else if (row !== null) open(null);
  });
  canvas.addEventListener("pointermove", (event) => ((cursor = at(event)?.column ?? null), tell()));
  canvas.addEventListener("pointerleave", () => ((cursor = null), tell()));
  canvas.addEventListener("keydown", (event) => {
    const g = geometry, move = { "[": -1, "]": 1 }[event.key];
    if (!g || event.ctrlKey || event.metaKey || event.altKey) return;
    if (move) cursor = Math.max(0, Math.min(g.columns - 1, (cursor ?? g.columns - 1) + move));
    else if (event.key === "Enter") return void (event.preventDefault(), event.stopPropagation(), open(row === null ? 0 : null));
    else if (row !== null && (event.key === "j" || event.key === "k")) return void (event.stopPropagation(), open(Math.max(0, Math.min(g.rows - 1, row + (event.key === "j" ? 1 : -1)))));
    else return;
    event.stopPropagation();
    event.preventDefault();
    tell();
  });
  function tell() {
    const g = geometry;
    if (!g || !last || cursor === null) return say(tip, "");
    const from = cursor * g.bin, to = Math.min(g.length, from + g.bin) - 1, map = last.store.map, texts = last.store.texts();
    const lines = row === null ? [...Array(map.rows).keys()] : [row];
    let kept = 0, all = 0;
    for (const k of lines) for (let p = from; p <= to; p++) (all++, map.kept(k, p, last.i) && kept++);
    const words = g.bin === 1 ? `position ${from}, ${spoken(texts(from))}` : `positions ${from} to ${to}, ${spoken(texts(from))} …`;
    say(tip, `${words}: ${all === 1 ? (kept ? "kept" : "evicted") : kept === all ? `kept in all ${plural(lines.length, "row")}` : kept === 0 ? "evicted everywhere" : `kept in ${kept} of ${all} ${g.bin === 1 ? "rows" : "entries"}`}`);
  }
  function head(store, step, target) {
    const map = store.map, length = target ? target.read : 0;
    say(shape, map && target ? `${map.layers} layers × ${map.heads} ${map.heads === 1 ? "head" : "heads"}, ${grouped(length)} positions` : "");
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
      const [who, track, much] = bar.at(k).childNodes;
      say(who, x.lane);
      track.style.width = `calc((100% - 190px) * ${Math.max(x.full, 1) / most})`;
      track.firstChild.style.width = percent(Math.min(1, x.bytes / Math.max(1, x.full)));
      say(much, size(x.bytes));
    });
    bar.trim(step.kv.length);
  }
  function paints() {
    const style = getComputedStyle(element), of = (name) => style.getPropertyValue("--" + name).trim();
    const rgb = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16)), pixel = ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r;
    const low = rgb(of("mass-low")), high = rgb(of("mass-high"));
    const ramp = Uint32Array.from({ length: 256 }, (_, k) => pixel(low.map((x, c) => Math.round(x + ((high[c] - x) * k) / 255))));
    return { gone: pixel(rgb(of("gone"))) >>> 0, now: pixel(rgb(of("ink"))) >>> 0, bg: pixel(rgb(of("bg"))) >>> 0, ramp, muted: of("muted"), faint: of("branch"), ink: of("ink"), mono: `11px ${of("mono")}`, sans: `11px ${of("sans")}` };
  }
  function paint(store, i) {
    const map = store.map, c = (colours = colours || paints()), length = map.length(i), ratio = window.devicePixelRatio || 1;
    const right = Math.max(160, Math.floor(wide)), left = 34, full = right - left, most = Math.min(450, Math.max(40, Math.floor(full / 2)));
    const bin = Math.max(1, Math.ceil(length / most)), columns = Math.max(1, Math.ceil(length / bin)), rows = row === null ? [...Array(map.rows).keys()] : [Math.min(row, map.rows - 1)];
    const tall = row !== null ? 40 : map.rows > 64 ? 3 : map.rows > 32 ? 4 : 7, top = 30;
    const lines = [];
    let y = top;
    rows.forEach((k, n) => {
      if (n && k % map.heads === 0) y += 2;
      lines.push(y);
      y += tall + 1;
    });
    const room = Math.min(full, columns * 14), zones = row === null ? zonesOf(store, i, length) : [], high = y + (zones.length ? 22 : 2);
    geometry = { left, wide: left + room, columns, bin, lines, tall, length, rows: map.rows };
    canvas.width = Math.round(right * ratio);
    canvas.height = Math.round(high * ratio);
    canvas.style.height = high + "px";
    const pen = canvas.getContext("2d"), image = pen.createImageData(canvas.width, canvas.height), data = new Uint32Array(image.data.buffer);
    data.fill(c.bg);
    const mass = store.massAt(i), edges = Array.from({ length: columns + 1 }, (_, k) => Math.round((left + (k * room) / columns) * ratio)), gap = room / columns >= 4 ? Math.max(1, Math.round(ratio * 0.75)) : 0;
    const score = new Float64Array(columns), recent = new Int32Array(columns);
    rows.forEach((k, n) => {
      const y0 = Math.round(lines[n] * ratio), y1 = Math.round((lines[n] + tall) * ratio);
      for (let q = 0; q < columns; q++) {
        let kept = 0, now = 0, weight = 0, all = 0;
        for (let p = q * bin; p < Math.min(length, (q + 1) * bin); p++) {
          const gone = map.at[k * map.room + p];
          all++;
          if (gone > i) {
            kept++;
            weight += mass ? Math.max(0, mass[k * mass.width + p] - 1) / 254 : 0.55;
          } else if (gone === i) now++;
        }
        score[q] += mass ? weight / Math.max(1, all) : kept / Math.max(1, all);
        recent[q] += now;
        const shade = kept ? c.ramp[Math.round(255 * Math.min(1, mass ? weight / kept : 0.62) * (kept / all))] : c.gone;
        const x0 = edges[q], x1 = Math.max(x0 + 1, edges[q + 1] - gap);
        for (let yy = y0; yy < y1; yy++) data.fill(shade, yy * canvas.width + x0, yy * canvas.width + x1);
        if (now) {
          for (let x = x0; x < x1; x++) data[y0 * canvas.width + x] = data[(y1 - 1) * canvas.width + x] = c.now;
          for (let yy = y0; yy < y1; yy++) data[yy * canvas.width + x0] = data[yy * canvas.width + x1 - 1] = c.now;
        }
      }
    });
    pen.putImageData(image, 0, 0);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    // ticks: how much an entry is worth to all rows together
    const evicts = map.any(i), peak = Math.max(1e-9, ...score);
    if (evicts || mass) {
      pen.fillStyle = c.faint;
      for (let q = 0; q < columns; q++) {
        const tick = score[q] ? Math.max(1, 10 * (score[q] / peak)) : 0;
        if (tick) pen.fillRect(left + (q * room) / columns, top - 2 - tick, Math.max(1, room / columns - 1), tick);
      }
    }
    pen.fillStyle = c.muted;
    pen.font = c.sans;
    pen.textBaseline = "middle";
    const every = Math.max(1, Math.ceil(12 / ((tall + 1) * map.heads + 2)));
    rows.forEach((k, n) => {
      if (row !== null) pen.fillText(`L${Math.floor(k / map.heads)}.${k % map.heads}`, 0, lines[n] + tall / 2);
      else if (k % map.heads === 0 && (k / map.heads) % every === 0) pen.fillText(`L${k / map.heads}`, 0, lines[n] + ((tall + 1) * map.heads) / 2);
    });
    // which part of the text the policy keeps for which reason
    for (const [from, to, word, brief] of zones) {
      const x0 = left + (from / bin / columns) * room + 1, x1 = left + (Math.min(to, length) / bin / columns) * room - 1;
      pen.strokeStyle = c.faint;
      pen.strokeRect(x0, y + 3, Math.max(0, x1 - x0), 0);
      const text = pen.measureText(word).width <= x1 - x0 ? word : brief;
      if (pen.measureText(text).width <= x1 - x0 + 8) pen.fillText(text, (x0 + x1 - pen.measureText(text).width) / 2, y + 14);
    }
    // names over the columns that stand out, from left to right, none touching the last
    pen.fillStyle = c.ink;
    pen.font = c.mono;
    const texts = store.texts(), inWords = [...Array(columns).keys()].filter((q) => /[\p{L}\p{N}]{2}/u.test(String(texts(q * bin))));
    let free = left;
    const bound = [...score].sort((a, b) => b - a)[Math.min(columns - 1, 40)];
    for (const q of inWords) {
      const x = left + (q * room) / columns;
      if (x < free || ((evicts || mass) && score[q] < bound)) continue;
      const text = spoken(texts(q * bin)).slice(0, 12).replace(/^␣/, "");
      if (x + pen.measureText(text).width > right) break;
      pen.fillText(text, x, 8);
      free = x + pen.measureText(text).width + (evicts || mass ? 14 : 60);
    }
    const kinds = mass ? "darker: more attention" : evicts ? "dark: kept" : "";
    say(note, [kinds, evicts ? "pale: evicted" : "", recent.some(Boolean) ? "outlined: evicted in this step" : "", evicts && !mass ? "ticks: in how many rows an entry is kept" : mass ? "ticks: share of attention" : "", bin > 1 ? `one column is ${bin} positions, its darkness the share that is kept` : "", row === null ? "click a row to enlarge it" : ""].filter(Boolean).join("; "));
    set(canvas, { "aria-label": `cache map of step ${i}: ${plural(map.rows, "row")}, ${plural(length, "position")}, ${map.summary(i)}; [ and ] move along the positions` });
  }
  /** Parts of the text that the policy speaks of: [from, to, words, fewer words]. */
  function zonesOf(store, i, length) {
    const { name, heavy, recent, sinks, window: span, size: newest } = store.head.method.policy || {}, near = recent ?? span ?? newest;
    if (!store.map.any(i) || near === undefined) return [];
    const start = Math.min(sinks || 0, length), edge = Math.max(start, length - near), made = [];
    if (start) made.push([0, start, `sinks ${start}`, ""]);
    if (heavy && edge > start) made.push([start, edge, `heavy hitters ${heavy} per head, of ${plural(edge - start, "position")}`, "heavy hitters"]);
    made.push([edge, length, `${name === "h2o" ? "recent" : "window"} ${near}`, ""]);
    return made;
  }
  function table(store, i) {
    const map = store.map, rows = row === null ? [...Array(map.rows).keys()] : [row], length = map.length(i);
    const span = (list) => {
      const made = [];
      for (const p of list) made.length && made.at(-1)[1] === p - 1 ? (made.at(-1)[1] = p) : made.push([p, p]);
      return made.map(([a, b]) => (a === b ? a : `${a}–${b}`)).join(", ") || "–";
    };
    const positions = [...Array(length).keys()];
    twin.replaceChildren(h("table", { class: "plain" }, h("caption", null, `KV cache after step ${i}, by original position`), h("thead", null, h("tr", null, ["layer", "head", "kept", "positions kept", "evicted now"].map((x) => h("th", { scope: "col" }, x)))),
      h("tbody", null, rows.map((k) => {
        const kept = positions.filter((p) => map.kept(k, p, i));
        return h("tr", null, [Math.floor(k / map.heads), k % map.heads, kept.length, span(kept), span(positions.filter((p) => map.at[k * map.room + p] === i))].map((x) => h("td", null, String(x))));
      }))));
  }
  return {
    element,
    restyle: () => ((colours = null), (seen = "")),
    look: () => (wide = element.clientWidth),
    draw(store, i) {
      const step = store.steps[i];
      element.style.display = step ? "" : "none";
      if (!step) return;
      const target = step.kv.find((x) => x.lane === "target"), map = store.mapped(i);
      head(store, step, target);
      const ready = !!target && !!map && map.upto >= i && !map.untold;
      last = { store, i };
      canvas.style.display = ready && !tabled ? "" : "none";
      tip.style.display = ready && !tabled ? "" : "none";
      twin.style.display = ready && tabled ? "" : "none";
      asTable.style.display = ready ? "" : "none";
      back.style.display = ready && row !== null ? "" : "none";
      bars.style.display = step.kv.length > 1 || !ready ? "" : "none";
      if (!ready) return say(note, map?.untold ? "Which entries were evicted was not recorded." : target && map ? "The map waits for earlier steps." : "");
      const as = `${i} ${wide} ${row} ${tabled} ${map.upto} ${window.devicePixelRatio} ${step.kv[0].mass ? 1 : 0}`;
      if (as === seen) return;
      seen = as;
      if (tabled) table(store, i), say(note, "");
      else paint(store, i);
      tell();
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
  const play = h("button", { type: "button", class: "bare play-pause" }, icon("play"));
  play.addEventListener("click", () => context.play());
  const speed = h("button", { type: "button", class: "small speed" });
  speed.addEventListener("click", () => context.faster());
  const jump = (word, title, run) => {
    const button = h("button", { type: "button", class: "small", title }, word);
    button.addEventListener("click", run);
    return button;
  };
  const refusal = jump("next rejection", "r", () => context.find("refused", 1)), eviction = jump("next eviction", "e", () => context.find("evicted", 1));
  const live = h("button", { type: "button", class: "live" }, "● live");
  live.addEventListener("click", () => context.follow(true));
  const rate = h("span", { class: "quiet" });
  const element = h("footer", { class: "time-pane" },
    h("div", { class: "transport" }, h("h2", null, "Time"), rate,
      h("span", { class: "buttons" }, act("first", "first step", () => context.seek(0)), act("prev", "previous step", () => context.seek(context.at - 1)), play,
        act("next", "next step", () => context.seek(context.at + 1)), act("last", "last step", () => context.follow(true))), speed, live, h("span", { class: "jumps" }, refusal, eviction, jump("keys", "?", () => context.help()))),
    h("div", { class: "lane-box" }, canvas, slider));
  let colours = null, width = 0;
  return {
    element,
    look: () => (width = canvas.parentElement.clientWidth),
    restyle: () => (colours = null),
    draw(store, i) {
      element.style.display = store.count ? "" : "none";
      if (!store.count) return;
      if (Number(slider.max) !== store.count - 1) slider.max = store.count - 1;
      if (Number(slider.value) !== i) slider.value = i;
      slider.setAttribute("aria-valuetext", `step ${i} of ${store.count}`);
      live.style.display = context.following || store.end ? "none" : "";
      const playing = context.playing();
      if (play.dataset.on !== String(playing)) {
        play.dataset.on = playing;
        play.replaceChildren(icon(playing ? "pause" : "play"));
        set(play, { "aria-label": playing ? "pause the replay" : "play the steps", title: "Space" });
      }
      say(speed, context.speed().word);
      set(speed, { "aria-label": `speed of the replay: ${context.speed().told}` });
      refusal.style.display = store.steps.some((x) => x.refused) ? "" : "none";
      eviction.style.display = store.steps.some((x) => x.kv.some((k) => k.lane === "target" && k.evicted)) ? "" : "none";
      const now = store.steps[i];
      say(rate, now?.sum.decode ? `${milli(now.sum.decode)}, step ${i} of ${store.count - 1}` : "");
      const style = colours ? null : getComputedStyle(element);
      colours = colours || Object.fromEntries(["time-1", "time-2", "time-3", "reject", "muted", "ink", "ring", "bg", "sans"].map((c) => [c, style.getPropertyValue("--" + c).trim()]));
      const ratio = window.devicePixelRatio || 1, height = 54;
      if (canvas.width !== Math.round(width * ratio) || canvas.height !== height * ratio) {
        canvas.width = Math.round(width * ratio);
        canvas.height = height * ratio;
        canvas.style.height = height + "px";
      }
      const c = canvas.getContext("2d");
      c.setTransform(ratio, 0, 0, ratio, 0, 0);
      c.clearRect(0, 0, width, height);
      c.font = `11px ${colours.sans}`;
      c.textAlign = "center";
      const each = width / store.count, top = 18, tall = 20; // equal widths, so that the slider's thumb is on its step
      const longest = store.steps.reduce((most, x) => Math.max(most, x ? x.dt.all : 0), 1e-9);
      for (let k = 0; k < store.count; k++) {
        const step = store.steps[k], x = k * each, w = Math.max(0.5, each - (each > 4 ? 1.5 : 0));
        if (!step) {
          c.strokeStyle = colours.reject; // a step that has not come
          c.lineWidth = 1;
          c.setLineDash([2, 2]);
          c.strokeRect(x + 0.5, top + 0.5, Math.max(1, w - 1), tall - 1);
          c.setLineDash([]);
          continue;
        }
        const { draft, verify, all } = step.dt;
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

const VIEWS = ["strip", "tree", "card", "text", "cache", "time"];
const SPEEDS = [
  { word: "2/s", told: "two steps a second", wait: () => 500 },
  { word: "8/s", told: "eight steps a second", wait: () => 125 },
  { word: "1×", told: "as fast as it was", wait: (step) => Math.max(33, Math.min(5000, 1000 * (step?.dt.all || 0))) },
];
const KEYS = [["← →", "step back, on; with Shift ten"], ["Home End", "first, last step"], ["Space", "play, pause"], ["f", "follow the run"], ["h l", "in the tree: parent, child"], ["j k", "next, previous sibling"], ["Enter Esc", "to the card, and back"], ["r R", "next, previous rejection"], ["e E", "next, previous eviction"], ["[ ]", "along the cache map; Enter one row, j k the next"], ["?", "this list"]];

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
    chosen: (x, i) => (context.selection?.step === i ? context.selection.node : firstOf(x.steps[i])),
    redraw: () => request(),
    play: (on = !timer) => play(on),
    playing: () => !!timer,
    speed: () => SPEEDS[pace],
    faster: () => ((pace = (pace + 1) % SPEEDS.length), timer && (play(false), play(true)), request()),
    find: (what, way) => find(what, way),
    help: () => ((help.open ? help.close() : help.show()), help.open && help.focus()),
  };
  let timer = 0, pace = 0;
  const help = h("dialog", { class: "keys", "aria-label": "keys", tabindex: -1 }, h("dl", null, KEYS.map(([key, word]) => h("div", null, h("dt", null, key), h("dd", null, word)))));
  const empty = h("p", { class: "empty" }, options.empty || "No run yet.");
  const veil = h("p", { class: "veil", role: "status" });
  const outcome = h("p", { class: "outcome", role: "status" });
  const reader = h("p", { class: "aloud", "aria-live": "polite" });
  const root = h("div", { class: "ds", role: "region", "aria-label": options.label || "decoding run", tabindex: -1 });
  const parts = [];
  const add = (part, parent = root) => (parts.push(part), parent.append(part.element), part);
  root.append(empty);
  if (chosen.includes("strip")) add(stripView());
  let tree = null, card = null;
  if (chosen.includes("tree")) {
    const section = h("section", { class: "tree-pane" });
    root.append(section);
    add(headline(context), section);
    section.append(outcome);
    tree = add(treeView(context), section);
    add(legend(toggle("Show as table", tree.table)), section);
  }
  if (chosen.includes("card")) card = add(cardView(context));
  if (chosen.includes("text")) add(textView(context));
  if (chosen.includes("cache")) add(cacheView(context));
  if (chosen.includes("time")) add(timeView(context));
  root.append(veil, help, reader);
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
    root.classList.toggle("wide", !!card && !!tree && width >= 940);
    for (const part of parts) part.element.style.display = "";
    for (const part of parts) part.look?.(); // all widths are read before anything is drawn
    for (const part of parts) part.draw(store, i, width);
    for (const part of parts) part.settle?.();
    const end = store.end;
    say(outcome, end && i === store.count - 1 ? ending(end) : "");
    outcome.style.display = outcome.textContent ? "" : "none";
    outcome.classList.toggle("bad", !!end && !["stop_token", "max_new_tokens", "stopped_by_user"].includes(end.reason));
    if (i >= 0 && !store.whole(i) && (!context.following || end || context.selection?.step === i)) ask(i, i + 1);
    if (store.map?.wants !== null && store.map?.wants <= i && store.map.upto < i) ask(store.map.wants, store.map.wants + 1);
    const time = performance.now();
    if (store.steps[i] && time - told > 1000) {
      told = time;
      const step = store.steps[i];
      say(reader, `step ${i}, ${step.drafted ? `${step.made.filter((m) => m[2] === "accept").length} of ${step.drafted} accepted` : plural(step.made.length, "token")}`);
    }
  }
  function play(on) {
    clearTimeout(timer);
    timer = 0;
    if (on && store.count) {
      if (context.at >= store.count - 1 && store.end) view.seek(0);
      const next = () => {
        if (context.at >= store.count - 1) return store.end ? play(false) : ((timer = 0), view.follow(true));
        view.seek(context.at + 1, true);
        timer = setTimeout(next, SPEEDS[pace].wait(store.steps[context.at]));
      };
      timer = setTimeout(next, SPEEDS[pace].wait(store.steps[context.at]));
    }
    request();
  }
  /** Go to the next step (way 1) or the one before (-1) in which something was refused, or evicted from the target. */
  function find(what, way) {
    const has = (step) => step && (what === "refused" ? step.refused > 0 : step.kv.some((x) => x.lane === "target" && x.evicted > 0));
    let i = context.at + way;
    while (i >= 0 && i < store.count && !has(store.steps[i])) i += way;
    if (i < 0 || i >= store.count) return say(reader, `no ${way > 0 ? "further" : "earlier"} ${what === "refused" ? "rejection" : "eviction"}`);
    view.seek(i);
  }
  function ask(from, to) {
    const key = `${from}-${to}`;
    if (!options.onGap || asked.has(key)) return;
    asked.add(key);
    options.onGap(from, to);
  }

  let across = 0;
  const resize = new ResizeObserver(([entry]) => {
    if (across !== (across = entry.contentRect.width)) request(); // its height is our own doing
  });
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
    const { key } = event, at = context.at, node = context.chosen(store, at);
    const go = { ArrowLeft: -1, ",": -1, ArrowRight: 1, ".": 1, "<": -10, ">": 10 }[key];
    if (go) view.seek(at + go * (event.shiftKey && key.startsWith("Arrow") ? 10 : 1));
    else if (key === "Home") view.seek(0);
    else if (key === "End" || key === "f") view.follow(true);
    else if (key === " " && !event.target.closest("button, a, summary")) play(!timer);
    else if ("jkhl".includes(key) && tree) {
      const next = tree.step(key, node);
      if (next !== null) context.select(next);
    } else if (key === "Enter" && !event.target.closest("button, a, summary") && card) {
      if (node !== null) context.select(node);
      card.focus();
    } else if (key === "Escape" && help.open) help.close();
    else if (key === "Escape" && card?.element.contains(event.target)) tree?.focus();
    else if (key === "r" || key === "R") find("refused", key === "R" ? -1 : 1);
    else if (key === "e" || key === "E") find("evicted", key === "E" ? -1 : 1);
    else if (key === "?") context.help();
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
    seek(i, replayed = false) {
      if (!store.count) return;
      if (!replayed) clearTimeout(timer), (timer = 0);
      context.at = Math.max(0, Math.min(store.count - 1, i));
      context.following = false;
      options.onSeek?.(context.at);
      request();
    },
    /** Show the newest step from now on. */
    follow(on) {
      context.following = on;
      if (on) {
        clearTimeout(timer);
        timer = 0;
        context.at = store.count - 1;
        options.onSeek?.(context.at);
      }
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
      store.map = null;
      store.masses.clear();
      store.words.head = null;
      store.count = 0;
      play(false);
      asked = new Set();
      Object.assign(context, { at: -1, following: true, selection: null });
      request();
    },
    /** Forget what was asked for, so that it is asked for again. */
    retry: () => (asked.clear(), request()),
    destroy() {
      cancelAnimationFrame(frame);
      clearTimeout(timer);
      resize.disconnect();
      host.disconnect();
      media.removeEventListener("change", paint);
      root.remove();
    },
    get at() {
      return context.at;
    },
    get selection() {
      return context.selection;
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
export const ending = (end) => (end.message ? `${end.message}${["stop_token", "max_new_tokens"].includes(end.reason) ? "" : ` ${plural(end.steps, "step")} ${end.steps === 1 ? "is" : "are"} kept and can be looked at.`}` : "") || ENDS[end.reason] || `The run ended: ${named(end.reason)}.`;

/** The adapter of a notebook widget: steps come as custom messages, a finished trace and the cursor as traits. */
export default {
  render({ model, el }) {
    const put = (name, value) => (model.set(name, value), model.save_changes());
    const view = mount(el, {
      views: model.get("views") || undefined,
      onGap: (from, to) => model.send({ kind: "gap", from, to }),
      onSeek: (i) => model.get("step") !== i && put("step", i),
      onSelect: (selection) => put("selection", selection),
    });
    const take = () => {
      const all = model.get("messages") || [];
      if (!all.length) return;
      const at = view.following ? -1 : view.at;
      view.clear();
      all.forEach((message) => view.push(message));
      const wanted = at >= 0 ? at : model.get("step");
      if (wanted >= 0) view.seek(wanted);
    };
    const listen = (message) => {
      if (message.kind === "clear") view.clear();
      else if (message.kind === "batch") message.messages.forEach((one) => view.push(one));
      else view.push(message);
    };
    const cursor = () => model.get("step") >= 0 && model.get("step") !== view.at && view.seek(model.get("step"));
    const chosen = () => {
      const { step, node } = model.get("selection") || {};
      if (node !== undefined && (view.selection?.step !== step || view.selection?.node !== node)) view.select({ step, node });
    };
    take();
    model.on("msg:custom", listen);
    for (const [name, act] of [["messages", take], ["step", cursor], ["selection", chosen]]) model.on("change:" + name, act);
    return () => {
      model.off("msg:custom", listen);
      for (const [name, act] of [["messages", take], ["step", cursor], ["selection", chosen]]) model.off("change:" + name, act);
      view.destroy();
    };
  },
};
