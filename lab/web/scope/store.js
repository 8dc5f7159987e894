/* The messages of one run, by number, and values derived from them. */
import { CacheMap, leaveWord } from "./cache/cache_map.js";

const ROW = ["parent", "text", "token", "q", "p", "u", "status", "r", "threshold", "num", "den"];

/** The messages of one run, by number, and values derived from them. */
export class Store {
  head = null;
  end = null;
  steps = []; // sparse: a hole is a step that has not come
  count = 0;
  come = 0; // steps that have come
  total = 0; // steps of the run, if they are known to be coming
  refused = 0; // steps with a rejection
  evicted = 0; // steps with an eviction
  longest = 1e-9; // s
  map = null;
  words = { head: null, upto: 0, list: [] };
  masses = new Map(); // step -> its map of attention, unpacked when looked at
  seen = new Map(); // step -> its map of what was read, likewise

  /** Take a message; returns whether anything changed. A full step replaces its brief, never the other way round. */
  push(message) {
    if (message.kind === "head") this.head = message;
    else if (message.kind === "end") this.end = message;
    else if (message.kind === "step") {
      const old = this.steps[message.i], { threads, chain, settling, canvas } = message;
      // what the head says of it
      for (const one of [threads, chain, settling, canvas]) if (one) one.form = this.head?.forms?.[one.name] ?? {};
      if (old && fullness(message) < fullness(old)) return false;
      if (!old) this.note(message);
      this.steps[message.i] = message;
      this.count = Math.max(this.count, message.i + 1);
    } else return false;
    return true;
  }

  note({ refused, kv, dt }) {
    this.come++;
    if (refused > 0) this.refused++;
    if (kv.some((x) => x.lane === "target" && x.evicted > 0)) this.evicted++;
    this.longest = Math.max(this.longest, dt.all);
  }

  /** Steps around step i, at most 2000; of fewer all. */
  near(i) {
    return this.count > 2000 ? this.steps.slice(Math.max(0, i - 1000), i + 1000) : this.steps;
  }

  /** Whether step i can be drawn as it was recorded. spare: what may be missing: "laws" (distributions), "maps",
   *  "passes". */
  whole(i, spare = []) {
    const step = this.steps[i];
    return !!step && fullness(step, spare) === 2;
  }

  /** The map of the target's cache, as far as the steps reach. */
  mapped() {
    if (!this.head) return null;
    const { n_layers: layers, n_kv_heads: heads } = this.head.model;
    if (!this.map && layers && heads) this.map = new CacheMap(layers, heads, leaveWord(this.head));
    this.map?.follow(this.steps);
    return this.map;
  }

  /** Attention mass at step i where it was recorded: bytes [row, stretch of `long` positions], `width` to a row. */
  massAt(i) {
    return this.unpacked(i, "mass", this.masses, (bytes) => {
      const width = bytes.length / this.map.rows;
      return Object.assign(bytes, { width, long: Math.ceil(this.map.length(i) / width) });
    });
  }

  /** Whether the last pass of step i has read the entry of a row at a position: (row, position) -> boolean; null
   *  if it read all, or nothing was recorded. */
  seenAt(i) {
    const width = this.map?.length(i);
    return this.unpacked(i, "seen", this.seen, (bytes) => (row, position) => {
      const bit = row * width + position;
      return !!((bytes[bit >> 3] >> (7 - (bit & 7))) & 1);
    });
  }

  unpacked(i, name, known, shaped) {
    const packed = this.steps[i]?.kv.find((x) => x.lane === "target")?.[name];
    if (!packed || !this.map) return null;
    if (!known.has(i)) {
      if (known.size > 16) known.clear();
      known.set(i, shaped(Uint8Array.from(atob(packed), (c) => c.charCodeAt(0))));
    }
    return known.get(i);
  }

  /** The columns of the cache's map after step i: {at: column -> position, text: column -> its text, block}. A
   *  cache of both sides leaves out the block between them, [first, end], and has masks on its right. */
  columns(i) {
    const { cache, among } = this.steps[i]?.canvas ?? {}, texts = this.texts(), block = cache === "dual" ? among : null;
    const right = (k) => block && k >= block[0];
    return { at: (k) => (right(k) ? k + block[1] - block[0] : k), text: (k) => (right(k) ? "" : texts(k)), block };
  }

  /** Position in the text -> the token's text; "" if it is not known. */
  texts() {
    const { words } = this, { prompt, prompt_tokens: all, prompt_read: read = all } = this.head;
    if (words.head !== this.head) {
      const texts = prompt.filter((row) => row[2] !== 0).map(([, text]) => text); // 0: the target did not read it
      Object.assign(words, { head: this.head, upto: 0, list: [...Array(read - texts.length).fill(""), ...texts] });
    }
    for (; words.upto < this.count && this.steps[words.upto]; words.upto++)
      words.list.push(...this.steps[words.upto].made.map(([, text]) => text));
    return (position) => words.list[position] ?? "";
  }

  /** The nodes of step i: [{id, parent, text, q, p, u, status, r, threshold, num, den}], without those left out of
   *  the wire. */
  nodes(i) {
    const step = this.steps[i];
    return step && step.nodes ? nodesOf(step) : null;
  }
}

/** 0: no tree; 1: something is left out; 2: the full record, except what may be spared. */
const fullness = (step, spare = []) => (step.brief ? 0 : step.cut || step.kv?.some((x) => x.lost)
  || step.few === true || step.few?.some((what) => !spare.includes(what)) ? 1 : 2);

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

/** A row of places as a chain: settled ones are kept, the others still guesses. */
export function chainOf(step) {
  const { after, fixed } = step.chain;
  const root = { ...nodesOf(step)[0] };
  return [root,
    ...after.map(([id, text], k) => ({ id: k + 1, parent: k, text, token: id, q: null, p: null, u: null,
      status: k < fixed ? "accept" : "unreached", settled: k < fixed ? "final" : "not final" })
    )];
}
