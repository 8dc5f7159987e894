/* Entries: the kinds of entries of the target's cache besides held ones and those that left: each has one mark on the
 * map, also in the Cache tab, and the legend lists those that occur. lab/cache/entry_states.py has the same kinds. */
import { bring } from "../shared/extras.js";
import { h, rgb } from "../shared/elements.js";
import { formatCount, plural } from "../shared/numbers.js";

/** Kind -> its words in the legend. */
export const ENTRY_WORDS = {
  held: "kept", gone: "evicted", now: "evicted in this step", unread: "kept, not read in this step",
  absent: "absent: the layer computed none", cut: "cut out of the model", packed: "packed",
  merged: "merged into another entry", soft: "soft entries, without tokens",
  virtual: "a trained state, without entries",
  shared: "shared with other texts", loaded: "loaded from a file",
};
const FORMS = { soft: ["soft entry", "soft entries"], latent: ["latent entry", "latent entries"] };
const MOST_EXTRAS = 3; // extra entries that are listed by name
const RULER = 5; // px of a line below the map
const NEVER = 0x7fffffff;
const SWATCH = { wide: 18, high: 10 }; // px of a swatch
/** Dots of a tile that is repeated over cells. */
const TILES = { absent: ["...#", "..#.", ".#..", "#..."], unread: ["....", ".#..", "....", "...#"] };

// ---- what the steps say

const learned = new WeakMap(); // map -> what its steps have said so far
/** Learn the new steps of a run: where entries were never there, and what was merged, packed or added. */
export function followEntries({ map, head, steps }) {
  if (!map || !head.entries) return;
  const { cut, loaded, bits } = head.entries;
  let seen = learned.get(map);
  if (!seen) {
    seen = { upto: -1, cut: new Set(cut), late: null, room: 0, merged: new Map(), packs: [], extras: [], loaded, bits };
    learned.set(map, seen);
    if (cut.length) Object.assign(map, { cut: seen.cut, late: (row) => (seen.cut.has(row) ? NEVER : -1) });
  }
  for (; seen.upto < map.upto; seen.upto++) {
    const i = seen.upto + 1, change = steps[i]?.kv.find((x) => x.lane === "target");
    if (!change) continue;
    if (change.prompt) learn(seen, map, change.prompt, -1);
    learn(seen, map, change, i);
  }
}

function learn(seen, map, { never, came, merged, packed, extras }, i) {
  if (never || came) {
    widen(seen, map);
    for (const [layer, first, stop] of never ?? []) seen.late.fill(NEVER, layer * seen.room + first, layer * seen.room
      + Math.min(stop, seen.room));
    for (const [layer, first, stop] of came ?? [])
      for (let k = layer * seen.room + first; k < layer * seen.room + Math.min(stop, seen.room); k++)
        if (seen.late[k] === NEVER) seen.late[k] = i;
  }
  merged?.forEach((runs, row) => {
    const mine = seen.merged.get(row) ?? new Map();
    for (const run of runs) {
      const [from, to] = Array.isArray(run) ? run : [run, run];
      for (let p = from; p <= to; p++) mine.set(p, i);
    }
    if (runs.length) seen.merged.set(row, mine);
  });
  if (packed) seen.packs.push([i, packed[1], packed[2] && new Set(packed[2])]);
  for (const one of extras ?? []) seen.extras.push([i, one]);
}

/** Make room for all positions of the map, by layer. */
function widen(seen, map) {
  if (seen.room < map.room) {
    const wider = new Int32Array(map.layers * map.room).fill(-1);
    for (let k = 0; seen.late && k < map.layers; k++)
      wider.set(seen.late.subarray(k * seen.room, (k + 1) * seen.room), k * map.room);
    Object.assign(seen, { late: wider, room: map.room });
  }
  map.late = (row, position) => seen.cut.has(row) ? NEVER
    : position < seen.room ? seen.late[Math.floor(row / map.heads) * seen.room + position] : -1;
}

/** The kinds of entries after step i, as `paintEntries` takes them; a column is `bin` positions. */
export function entryFacts(store, i, { bin, length, rows }) {
  const { map, steps } = store, seen = learned.get(map), read = store.seenAt(i);
  const target = steps[i].kv.find((x) => x.lane === "target");
  if (!seen) return null;
  const packs = seen.packs.filter(([k]) => k <= i), extras = seen.extras.filter(([k]) => k <= i).map(([, one]) => one);
  const end = (column) => Math.min(length, (column + 1) * bin);
  const count = (column, holds) => {
    let n = 0;
    for (let p = column * bin; p < end(column); p++) if (holds(p)) n++;
    return n / Math.max(1, end(column) - column * bin);
  };
  return {
    cut: (k) => seen.cut.has(rows[k]),
    absent: map.late && ((k, column) => count(column, (p) => map.late(rows[k], p) > i)),
    unread: read && ((k, column) => {
      let kept = false;
      for (let p = column * bin; p < end(column); p++)
        if (!map.kept(rows[k], p, i)) continue;
        else if (read(rows[k], p)) return false;
        else kept = true;
      return kept;
    }),
    merged: seen.merged.size && ((k, column) => count(column, (p) => (seen.merged.get(rows[k])?.get(p) ?? NEVER) <= i)),
    packed: packs.length && ((k, column) =>
      packs.some(([, stop, layers]) => column * bin < stop && (layers?.has(Math.floor(rows[k] / map.heads)) ?? true))),
    bits: seen.bits, extras, texts: target?.texts ?? [], loaded: Math.min(length, seen.loaded),
    bin,
  };
}

// ---- drawing

const tiles = new Map(); // kind, colour and pixels -> a pattern
/** The dots of a kind in a colour, over all cells alike. */
function tileOf(pen, kind, colour) {
  const ratio = window.devicePixelRatio || 1, name = [kind, colour, ratio].join(), side = TILES[kind].length;
  if (!tiles.has(name)) {
    const canvas = Object.assign(document.createElement("canvas"), { width: side * ratio, height: side * ratio }),
      dot = canvas.getContext("2d");
    dot.scale(ratio, ratio);
    dot.fillStyle = colour;
    TILES[kind].forEach((line, y) => [...line].forEach((x, k) => x === "#" && dot.fillRect(k, y, 1, 1)));
    const tile = pen.createPattern(canvas, "repeat");
    tile.setTransform(new DOMMatrix().scale(1 / ratio));
    tiles.set(name, tile);
  }
  return tiles.get(name);
}

/** The marks, each over a rectangle. */
const MARKS = {
  absent(pen, x, y, wide, high, c) {
    pen.fillStyle = c.bg;
    pen.fillRect(x, y, wide, high);
    pen.fillStyle = tileOf(pen, "absent", c.muted);
    pen.fillRect(x, y, wide, high);
  },
  cut(pen, x, y, wide, high, c) {
    pen.fillStyle = c.bg;
    pen.fillRect(x, y, wide, high);
    pen.fillStyle = c.muted;
    for (let at = x; at < x + wide; at += 8)
      pen.fillRect(at, y + Math.floor(high / 2), Math.min(4, x + wide - at), 1);
  },
  unread(pen, x, y, wide, high, c) {
    pen.fillStyle = tileOf(pen, "unread", c.ink);
    pen.fillRect(x, y, wide, high);
  },
  packed(pen, x, y, wide, high, c) {
    pen.fillStyle = c.bg;
    pen.fillRect(x, y + Math.floor((high - 1) / 2), wide, high > 8 ? 2 : 1);
  },
  merged(pen, x, y, wide, high, c) {
    pen.fillStyle = c.part;
    pen.fillRect(x, y + Math.floor((high - 2) / 2), wide, Math.min(2, high));
  },
  soft(pen, x, y, wide, high, c) {
    pen.fillStyle = c.part;
    pen.fillRect(x, y, 3, high);
  },
  virtual(pen, x, y, wide, high, c) {
    pen.fillStyle = c.part;
    for (let at = y; at < y + high; at += 4) pen.fillRect(x, at, 3, Math.min(2, y + high - at));
  },
  shared(pen, x, y, wide, high, c) {
    pen.fillStyle = c.ink;
    for (const at of [y, y + 2]) pen.fillRect(x, at, wide, 1);
  },
  loaded(pen, x, y, wide, high, c) {
    pen.fillStyle = c.ink;
    for (let at = x; at < x + wide; at += 4) pen.fillRect(at, y, 2, 2);
  },
};

/** The lines below the map: [kind, first position, the one behind the last]. */
const rulersOf = ({ texts, loaded }) =>
  [texts.map(([first, stop]) => ["shared", first, stop]), loaded ? [["loaded", 0, loaded]] : []]
    .filter((line) => line.length);

/** px that the lines below the map need. */
export const rulerRoom = (facts) => (facts ? RULER * rulersOf(facts).length : 0);

/** The kind of an extra entry: a state has none of its own. */
const bandOf = ({ entries }) => (entries ? "soft" : "virtual");

/** Mark the cells of a map, and return the kinds that occur. cells: {left, room, columns, rows, lines, tall, end}:
 *  `rows` of them, lines[k] the top of one, `end` px below the last. */
export function paintEntries(pen, { left, room, columns, rows, lines, tall, end }, facts, c) {
  const seen = new Set(), edge = (k) => left + (k * room) / columns, inset = room / columns >= 4 ? 1 : 0;
  /** Equal neighbours have one mark. */
  const strokes = (kind, k, worth) => {
    for (let from = 0, column = 1; column <= columns; column++) {
      const share = worth(k, from);
      if (column < columns && worth(k, column) === share) continue;
      if (share) {
        seen.add(kind);
        const high = Math.max(1, Math.round(tall * Math.min(1, Number(share))));
        MARKS[kind](pen, edge(from), lines[k], edge(column) - edge(from) - inset, high, c);
      }
      from = column;
    }
  };
  for (let k = 0; k < rows; k++) {
    if (facts.cut(k)) {
      seen.add("cut");
      MARKS.cut(pen, left, lines[k], room, tall, c);
      continue;
    }
    for (const kind of ["absent", "unread", "packed", "merged"]) if (facts[kind]) strokes(kind, k, facts[kind]);
  }
  for (const one of facts.extras) {
    seen.add(bandOf(one));
    MARKS[bandOf(one)](pen, edge(Math.min(columns, one.at / facts.bin)) - 5, lines[0], 3, end - lines[0], c);
  }
  rulersOf(facts).forEach((line, k) => line.forEach(([kind, first, stop]) => {
    seen.add(kind);
    const x = edge(first / facts.bin);
    MARKS[kind](pen, x, end + 1 + RULER * k, Math.min(left + room, edge(stop / facts.bin)) - x - inset, 3, c);
  }));
  return seen;
}

/** The colour of a cell of this strength. */
const strengthOf = (c, strength) => {
  const low = rgb(c["mass-low"]), high = rgb(c["mass-high"]);
  return `rgb(${low.map((x, k) => Math.round(x + (high[k] - x) * strength)).join(" ")})`;
};

/** The ground of a swatch. */
function groundOf(pen, kind, c, mass) {
  if (["gone", "now", "merged"].includes(kind)) return c.gone;
  if (kind === "unread") return strengthOf(c, 0.1);
  if (kind !== "held" && kind !== "packed") return null;
  if (!mass) return strengthOf(c, 0.62);
  const ramp = pen.createLinearGradient(0, 0, SWATCH.wide, 0);
  ramp.addColorStop(0, c["mass-low"]);
  ramp.addColorStop(1, c["mass-high"]);
  return ramp;
}

/** The legend of the kinds that occur. words: those that differ in this run; mass: whether strength is attention. */
export function entryLegend(kinds, words, c, mass) {
  return Object.keys(ENTRY_WORDS).filter((kind) => kinds.has(kind)).map((kind) => {
    const ratio = window.devicePixelRatio || 1, band = kind === "soft" || kind === "virtual",
      line = kind === "shared" || kind === "loaded";
    const size = { width: SWATCH.wide * ratio, height: SWATCH.high * ratio },
      canvas = h("canvas", { class: "swatch", "data-kind": kind, ...size }),
      pen = canvas.getContext("2d"), ground = groundOf(pen, kind, c, mass);
    pen.scale(ratio, ratio);
    if (ground) (pen.fillStyle = ground), pen.fillRect(0, 0, SWATCH.wide, SWATCH.high);
    if (kind === "now") (pen.strokeStyle = c.ink), pen.strokeRect(0.5, 0.5, SWATCH.wide - 1, SWATCH.high - 1);
    MARKS[kind]?.(pen, band ? 8 : 0, line ? 4 : 0, SWATCH.wide, SWATCH.high, c);
    return h("span", null, canvas, words[kind] ?? ENTRY_WORDS[kind]);
  });
}

// ---- words

/** Bits of a packed number. */
export const packedBits = (bits) => (bits ? `${Number(bits.toFixed(2))} bits a number` : "fewer bits");

/** Describe an extra entry, which belongs to no token of the text. */
function extraText({ form, at, entries }) {
  const [one, many] = FORMS[form] ?? ["entry", "entries"];
  const what = !entries ? "a trained state" : `${formatCount(entries)} ${entries === 1 ? one : many}`;
  return `${what} ${at ? `behind position ${at - 1}` : "before the text"}`;
}

/** The same for all of them, the first by name. */
export function extrasText(extras) {
  const more = extras.length - MOST_EXTRAS;
  return extras.slice(0, MOST_EXTRAS).map(extraText).join(", ") + (more > 0 ? ` and ${formatCount(more)} more` : "");
}

/** Words of the legend that depend on the run. */
export function legendWords({ went, mass, facts }) {
  const some = (kind) => extrasText((facts?.extras ?? []).filter((one) => bandOf(one) === kind));
  return { held: mass ? "kept, stronger: more attention" : "kept", gone: went, now: `${went} in this step`,
    ...(facts && { packed: `packed, ${packedBits(facts.bits)}`, soft: some("soft"), virtual: some("virtual") }) };
}

/** What is to be said of a position besides whether it is kept. has(kind): whether it, or some of it, is of a kind. */
export function entryText(facts, position, has) {
  const texts = facts.texts.find(([first, stop]) => first <= position && position < stop);
  return [has("merged") ? "merged into another entry" : "", has("packed") ? `packed in ${packedBits(facts.bits)}` : "",
    texts ? `shared by ${plural(texts[2], "text")}` : "", position < facts.loaded ? "loaded from a file" : ""]
    .filter(Boolean).map((word) => `, ${word}`).join("");
}

/** The same of a column of the run's map, over its rows. */
const columnNote = ({ facts, bin, rows }, column) => !facts ? ""
  : entryText(facts, column * bin, (kind) => facts[kind] && rows.some((_, k) => facts[kind](k, column)));

// ---- the parts of the text

/** Parts of the text that the policy distinguishes: [from, to, words, fewer words]. */
export function zonesOf(store, i, length) {
  const all = store.head.parts.zones, at = (place) => all.filter((zone) => zone[1] === place),
    sum = (list) => list.reduce((n, zone) => n + zone[2], 0);
  if (!store.map.any(i) || !all.length) return [];
  const once = store.head.parts.policy?.once, whole = once ? Math.min(length, store.head.prompt_tokens) : length,
    start = Math.min(sum(at("first")), length), edge = Math.max(start, whole - sum(at("newest"))),
    words = (list) => list.map(([word, , n]) => `${word} ${n}`).join(", ");
  const chosen = at("chosen").filter((zone) => zone[2]), zones = [];
  if (start) zones.push([0, start, words(at("first")), ""]);
  if (chosen.length && edge > start)
    zones.push([start, edge, `${words(chosen)} per head, of ${plural(edge - start, "position")}`, chosen[0][0]]);
  if (at("newest").length)
    zones.push([edge, length, words(at("newest")) + (once ? ", and what was written" : ""), ""]);
  return zones;
}

/** The marks of the map of step i on the grid `g`: its zones, px of the lines below it, and paint(pen, now), which
 *  draws them and returns the legend; now: whether something left in this step. */
function markedMap(store, i, g, c, whole) {
  const { map } = store, facts = (g.facts = entryFacts(store, i, g)), colours = { ...c.all, part: c.all.target };
  const paint = (pen, now) => {
    const kinds = facts ? paintEntries(pen, { ...g, rows: g.rows.length }, facts, colours) : new Set();
    const mass = store.massAt(i), words = legendWords({ went: map.went, mass, facts });
    const gone = map.first <= i;
    if (!gone && !kinds.size) return [];
    for (const [kind, on] of [["held", true], ["gone", gone], ["now", now]]) if (on) kinds.add(kind);
    return entryLegend(kinds, words, colours, mass);
  };
  return { zones: whole ? zonesOf(store, i, g.length) : [], below: rulerRoom(facts), paint };
}

bring("entries", { followEntries, markedMap, columnNote });
