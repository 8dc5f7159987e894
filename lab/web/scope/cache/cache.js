/* The map of the target's cache. */
import { cacheSums, cacheTable } from "./cache_totals.js";
import { columnText, columnWords, rowsAndZones, ticks } from "./cell_labels.js";
import { cellsOf, mapInks, paintCells, rowsOf } from "./cells.js";
import { button, h, say, see, set, sheet, toggle } from "../shared/elements.js";
import { extra } from "../shared/extras.js";
import { plural } from "../shared/numbers.js";

/** The nearest of the numbers from 0 to n - 1. */
const inside = (k, n) => Math.max(0, Math.min(n - 1, k));

/** The target's cache: rows = layer x KV head, columns = positions. Ticks above: the share of attention if it was
 *  recorded, else in how many rows an entry is kept. */
export function cacheView(context) {
  const { shape, sums, bars, draw: drawSums } = cacheSums(), note = h("p", { class: "quiet rule" });
  const canvas = h("canvas", { class: "map", tabindex: 0, role: "img" }),
    tip = h("p", { class: "tip", "aria-live": "off" });
  const twin = h("div", { class: "twin" });
  const asTable = toggle("Show as table", (on) => ((tabled = on), (seen = ""), context.redraw()));
  const back = button("all heads", () => open(null), { class: "small" });
  const key = h("div", { class: "legend" });
  const element = h("section", { class: "cache-pane" },
    h("header", null, h("h2", null, "KV cache"), shape, sums), key, canvas,
    h("div", { class: "tools" }, note, tip, back, asTable), twin, bars);
  let row = null, tabled = false, seen = "", colours = null, geometry = null, cursor = null, last = null, wide = 0;
  const open = (k) => ((row = k), (seen = ""), context.redraw());
  /** The column and the line of rows under the pointer. */
  const at = ({ clientX, clientY }) => {
    const g = geometry, box = canvas.getBoundingClientRect();
    return g && { column: inside(Math.floor(((clientX - box.left - g.left) / g.room) * g.columns), g.columns),
      line: g.lines.findIndex((y) => clientY - box.top < y + g.tall + 1) };
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
    if (move) cursor = inside((cursor ?? g.columns - 1) + move, g.columns);
    else if (event.key === "Enter")
      return void (event.preventDefault(), event.stopPropagation(), open(row === null ? 0 : null));
    else if (row !== null && (event.key === "j" || event.key === "k"))
      return void (event.stopPropagation(),
        open(inside(row + (event.key === "j" ? 1 : -1), last.store.map.rows)));
    else return;
    event.stopPropagation();
    event.preventDefault();
    tell();
  });
  const tell = () => say(tip, !geometry || !last || cursor === null ? ""
    : columnText(geometry, cursor, last.store, last.i) + (extra("entries")?.columnNote(geometry, cursor) ?? ""));
  function paint(store, i, { thinned }) {
    const map = store.map, mass = store.massAt(i), read = store.seenAt(i), c = (colours ||= mapInks(element)),
      g = (geometry = cellsOf(map, i, wide, row)), more = extra("entries")?.markedMap(store, i, g, c, row === null),
      zones = more?.zones ?? [], end = g.end + (more?.below ?? 0);
    const pen = sheet(canvas, g.right, end + (zones.length ? 22 : 2)),
      { score, recent } = paintCells(pen, g, map, i, mass, read, c), differ = map.any(i) || mass ? score : null;
    key.replaceChildren(...more?.paint(pen, recent.some(Boolean)) ?? []);
    if (differ) ticks(pen, g, score, c);
    rowsAndZones(pen, { ...g, end }, map.heads, zones, c);
    const { text, block } = store.columns(i);
    columnWords(pen, g, text, differ, c);
    const { bin } = g;
    say(note,
      [mass ? "ticks: share of attention" : differ ? "ticks: in how many rows an entry is kept" : "",
        bin > 1 ? `one column is ${bin} positions: as high as the share that is kept, as strong as the largest of them`
          : "", thinned,
        block ? `positions ${block[0]} to ${block[1] - 1} are left out: they are the block, which each pass feeds` : "",
        row === null ? "click a row to enlarge it" : ""].filter(Boolean).join("; "));
    set(canvas, {
      "aria-label": `cache map of step ${i}: ${plural(map.rows, "row")}, ${plural(g.length, "position")}, `
        + `${map.summary(i)}; [ and ] move along the positions`,
    });
  }
  return {
    element,
    restyle: () => ((colours = null), (seen = "")),
    look: () => (wide = element.clientWidth),
    draw(store, i) {
      const step = store.steps[i];
      see(element, step);
      if (!step) return;
      const none = step.canvas?.cache === "none", map = store.mapped(i),
        target = none ? null : step.kv.find((x) => x.lane === "target");
      extra("entries")?.followEntries(store);
      drawSums(store.map, step, target);
      const ready = !!target && !!map && map.upto >= i && !map.untold;
      last = { store, i };
      for (const one of [key, canvas]) see(one, ready && !tabled);
      see(tip, ready && !tabled);
      see(twin, ready && tabled);
      see(asTable, ready);
      see(back, ready && row !== null);
      see(bars, !none && (step.kv.length > 1 || !ready));
      if (!ready)
        return say(note, none ? "Nothing is kept: every pass reads the prompt and the whole canvas again."
          : map?.untold
          ? `Which entries were ${map.went} ${map.went === "evicted" ? "was not recorded" : "is unknown"}.`
          : target && map
          ? (context.waits ? "The map waits for earlier steps."
            : "Earlier steps were left out here, so what left in them is not known.") : "");
      const as = [i, wide, row, tabled, map.upto, window.devicePixelRatio, !!target.mass, !!target.seen].join();
      if (as === seen) return;
      seen = as;
      if (tabled) twin.replaceChildren(cacheTable(map, i, rowsOf(map, row), store.columns(i).at)), say(note, "");
      else paint(store, i, target);
      tell();
    },
  };
}
