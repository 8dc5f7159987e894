/* map: which positions each layer and head keeps after the step, as a picture to walk through, and as a table. */
import { formatRange, formatCount, h, plural, size, visibleText, toggle } from "../scope.js";
import {
  entryLegend, entryText, extrasText, legendWords, paintEntries, rulerRoom
} from "../scope/cache/entries.js";
import { panes } from "../runs/runs.js";
import { grid, unpackBytes } from "./grids.js";
import { positionTable } from "./position_table.js";
import { statusLine, canvas, quiet, refuse, section, share } from "./parts.js";
import { question } from "./question.js";

export const PLAIN = 0.62; // strength of held entries where attention is not recorded

/** drawn(): called when the server has answered; enter(): show the life of the chosen entry. */
export function mapView(shared, { drawn, enter }) {
  const title = h("h1"), lead = h("span", { class: "lead" }), legend = h("span", { class: "legend" });
  const picture = canvas("application", "map of the cache"), tip = h("p", { class: "tip", role: "status" }),
    rule = quiet(), why = statusLine("alert"), twin = positionTable(shared, why);
  const box = h("div", { class: "picture" }, picture);
  const asTable = toggle("Show as table",
    (on) => ((twin.element.hidden = !on), (box.hidden = on), on && twin.fill()));
  const element = section("map", [title, lead, legend], why, box, h("div", { class: "tools" }, tip, asTable),
    twin.element, rule);
  let spots = null; // positions of the cells of the picture
  shared.box = box;

  const columns = () => Math.max(40, Math.min(450, Math.floor((shared.wide() - 34) / 2)));
  const asked = question(
    () => (shared.looked() && shared.wide() ? shared.query("", { step: shared.now(), columns: columns() }) : null),
    (answer, trouble) => {
      shared.map = answer && { ...answer, run: panes[0].id, kept: unpackBytes(answer.kept),
        now: unpackBytes(answer.now),
        mass: answer.mass && unpackBytes(answer.mass), merged: answer.merged && unpackBytes(answer.merged),
        read: answer.read && unpackBytes(answer.read), absent: answer.absent && unpackBytes(answer.absent) };
      if (answer) shared.map.facts = factsOf(shared.map);
      refuse(why, trouble);
      drawn();
    }
  );

  /** The text above the picture. fits: whether the map belongs to the displayed run and step. */
  function caption(fits) {
    const { map } = shared;
    title.textContent = `Step ${shared.now()}`;
    box.hidden = !fits || map.untold || !twin.element.hidden;
    lead.replaceChildren();
    if (!fits) return;
    lead.append(h("b", null, `${formatRange(map.least, map.held)} of ${formatCount(map.length)}`),
      " positions kept per head, ",
      h("b", null, size(map.kept_bytes)), map.kept_bytes < map.full ? ` of ${size(map.full)}` : " kept",
      map.cut.length
        ? h("span", null, ", ", h("b", null, `${map.cut.length} of ${map.layers * map.heads}`), " heads cut") : "",
      map.evicted ? h("span", null, ", ", h("b", null, formatCount(map.evicted)), ` ${map.went} now`) : "");
    legend.replaceChildren();
    asTable.hidden = map.untold;
    if (!map.untold) return;
    rule.textContent = `${map.unlisted[0].toUpperCase()}${map.unlisted.slice(1)}.`;
    tip.textContent = "";
  }
  /** Per column, the score that selects its words: the attention that it drew, or how often it is kept. */
  function scores() {
    const { map } = shared, score = new Float64Array(map.columns);
    for (let row = 0; row < map.layers * map.heads; row++)
      for (let c = 0; c < map.columns; c++)
        score[c] += map.mass ? Math.max(0, map.mass[row * map.columns + c] - 1) : map.kept[row * map.columns + c];
    return score;
  }
  function draw() {
    const { map, at } = shared;
    if (!map || map.untold || box.hidden || !shared.wide()) return;
    const rows = map.layers * map.heads, marked = shared.marked(), score = scores(), kinds = new Set();
    const bound = [...score].sort((a, b) => b - a)[Math.min(map.columns - 1, 40)] ?? 0,
      words = [...score.keys()].filter((c) =>
        score[c] >= bound && score[c] > 0 && /[\p{L}\p{N}]{2}/u.test(String(map.texts[c]))
      );
    spots = grid(picture, shared.colours(), {
      wide: shared.wide(),
      rows,
      columns: map.columns,
      group: map.heads,
      most: 22,
      tall: rows > 128 ? 3 : rows > 64 ? 4 : rows > 32 ? 7 : 12,
      cell: cellOf(map, kinds),
      label: (row) => (row % map.heads ? "" : `L${row / map.heads}`),
      marks: (pen, cells) => paintEntries(pen, cells, map.facts, shared.colours()).forEach((kind) => kinds.add(kind)),
      below: rulerRoom(map.facts),
      over: words.map((c) => [c, visibleText(map.texts[c]).slice(0, 12).replace(/^␣/, "")]),
      marked: marked && ((c) => marked[1] >= c * map.bin && marked[0] < (c + 1) * map.bin),
      cursor: at.position === null ? null : { row: at.row, column: shared.columnOf(at.position) },
    });
    legend.replaceChildren(...entryLegend(kinds, legendWords(map), shared.colours(), map.mass));
    picture.setAttribute("aria-label",
      `cache after step ${map.step}: ${plural(rows, "row")} of layers and heads, ${plural(map.length, "position")}, `
        + `${formatRange(map.least, map.held)} ${map.held === 1 ? "entry" : "entries"} kept per head; `
        + "the arrow keys move");
    rule.textContent = mapCaption(map, marked);
    say();
  }
  /** Describe the cell under the cursor, or under the pointer. */
  function say(row = shared.at.row, column = shared.at.position === null ? null
    : shared.columnOf(shared.at.position)) {
    const { map, at, columnOf } = shared;
    if (!map || column === null || column >= map.columns)
      return void (tip.textContent = "The arrow keys walk in the map; Enter goes to the life of the entry.");
    const k = row * map.columns + column, first = column * map.bin, last = Math.min(map.length, first + map.bin) - 1,
      part = map.kept[k] / 255, { facts } = map;
    const what = stateText(map, row, column, last - first + 1);
    const mass = map.mass && part
      ? `, attention drawn: ${share((Math.max(0, map.mass[k] - 1) / 254) ** 2)} of its layer's largest` : "";
    const position = at.position !== null && columnOf(at.position) === column && row === at.row ? at.position : first;
    const place = map.bin === 1 ? `position ${first} ${visibleText(map.texts[column])}`
      : `positions ${first} to ${last}${position !== first ? `, at ${position}` : ""}`;
    const other = entryText(facts, position, (kind) => facts[kind]?.(row, column));
    tip.textContent = `${shared.rowName(row)}, ${place}: ${what}`
      + `${map.now[k] ? `, ${map.went} in this step` : ""}${other}${part ? readText(map, k) : ""}${mass}`;
  }

  picture.addEventListener("click", (event) => {
    const hit = spots?.at(event);
    if (hit) shared.go(hit.row, hit.column * shared.map.bin);
  });
  picture.addEventListener("pointermove", (event) => {
    const hit = spots?.at(event);
    if (hit?.inside) say(hit.row, hit.column);
  });
  picture.addEventListener("pointerleave", () => say());
  picture.addEventListener("keydown", (event) => walk(shared, event, enter));
  return {
    element,
    question: asked,
    caption,
    draw,
    /** The table, where it is shown instead of the picture. */
    list: () => twin.element.hidden || twin.fill(),
    reset: twin.reset,
    reveal: () => (picture.scrollIntoView({ block: "nearest" }), picture.focus({ preventScroll: true })),
  };
}

/** How a cell of the map is drawn; `kinds` gathers what occurs. */
const cellOf = (map, kinds) => (row, column) => {
  const k = row * map.columns + column, worth = map.mass ? Math.max(0, map.mass[k] - 1) / 254 : PLAIN;
  if (map.now[k]) kinds.add("now");
  if (map.kept[k]) kinds.add("held");
  if (map.kept[k] + (map.absent?.[k] ?? 0) < 255) kinds.add("gone");
  return [map.kept[k] / 255, worth * opacity(map, k), map.now[k]];
};

/** What the server counts of a cell, in words. */
function stateText(map, row, column, many) {
  const k = row * map.columns + column, part = map.kept[k] / 255;
  const lost = map.facts.cut(row) ? "cut out of the model"
    : map.absent?.[k] ? "absent, the layer computed none" : map.went;
  return map.bin === 1 ? (part ? "kept" : lost)
    : part === 1 ? "all kept" : part ? `${Math.round(part * many)} of ${many} kept` : `all ${lost}`;
}

/** The kinds of entries of the map that the server has counted, as `paintEntries` takes them. */
function factsOf(map) {
  const { columns, heads, bin, absent, read, merged, kept, packed } = map, cut = new Set(map.cut),
    layers = map.packed_layers && new Set(map.packed_layers), at = (row, column) => row * columns + column;
  return {
    cut: (row) => cut.has(row),
    absent: absent && ((row, column) => absent[at(row, column)] / 255),
    unread: read && ((row, column) => kept[at(row, column)] > 0 && !read[at(row, column)]),
    merged: merged && ((row, column) => merged[at(row, column)]),
    packed: packed && ((row, column) => column * bin < packed && (layers?.has(Math.floor(row / heads)) ?? true)),
    bits: map.bits, extras: map.beside, texts: map.texts_shared, loaded: map.loaded, bin,
  };
}

/** The remaining strength of a cell if not all of it was read. */
const opacity = (map, k) => (map.read ? 0.1 + 0.9 * (map.read[k] / 255) : 1);

const readText = ({ read }, k) => !read ? "" : read[k] === 255 ? ", read in this step"
  : read[k] ? ", some read in this step" : ", not read in this step";

/** How to read the picture: its columns, the policy's knobs, what is marked and what is missing. */
function mapCaption(map, marked) {
  const kinds = [map.sinks ? `the first ${map.sinks} (S) never leave` : "",
    map.once ? `the prompt's last ${map.near ?? 0} and all that was written (W) stay`
      : map.near !== null && map.near !== undefined ? `the newest ${map.near} (W) stay` : "",
    map.heavy ? `of those between each head keeps the ${map.heavy} that are worth most (H)` : ""].filter(Boolean);
  return [
    map.bin > 1
      ? `One column is ${map.bin} positions: filled as high as the share of them that is kept, as strong as the `
        + "strongest."
      : "",
    kinds.length ? `By the policy's knobs ${kinds.join(", ")}.` : "",
    map.loaded ? `The entries of the first ${plural(map.loaded, "position")} came from a saved cache; no pass of `
      + "this run has read them in." : "",
    map.beside.length ? `A band: ${extrasText(map.beside)}, without tokens; every head attends `
      + "to that too, and nothing evicts it." : "",
    map.facts.texts.length ? `A double line below: ${map.facts.texts.map(([first, stop, texts]) =>
      `positions ${first} to ${stop - 1} are held once for ${texts} texts`).join("; ")}.` : "",
    marked ? "Triangles below: the text that was found." : "",
    map.mass ? "" : "How much attention an entry drew is not recorded in this step.",
    map.thinned ? `The map of attention was thinned: ${map.thinned}.` : "",
  ].filter(Boolean).join(" ");
}

/** A key on the map: one row or column on, ten, or to the end of the row. */
function walk({ map, at, columnOf, go }, event, enter) {
  if (!map || event.ctrlKey || event.metaKey || event.altKey) return;
  const p = at.position ?? 0, by = map.bin, key = event.key;
  if (at.position === null && /^(Arrow|Page|Home|End)/.test(key)) go(at.row, key === "End" ? map.length - 1 : 0);
  else if (key === "ArrowLeft") go(at.row, columnOf(p) * by - by);
  else if (key === "ArrowRight") go(at.row, columnOf(p) * by + by);
  else if (key === "ArrowUp") go(at.row - 1, p);
  else if (key === "ArrowDown") go(at.row + 1, p);
  else if (key === "PageUp") go(at.row, p - 10 * by);
  else if (key === "PageDown") go(at.row, p + 10 * by);
  else if (key === "Home") go(at.row, 0);
  else if (key === "End") go(at.row, map.length - 1);
  else if (key === "Enter" && at.position !== null) enter();
  else return;
  event.preventDefault();
  event.stopPropagation();
}
