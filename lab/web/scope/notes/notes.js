/* Notes: the signals of the method's parts over the steps, drawn by kind; no method is known here. */
import { h, inks, rgb, say, see, set, sheet } from "../shared/elements.js";
import { axisOf, LEFT, NOTE_KINDS } from "./note_kinds.js";
import { referenceText, noteText } from "./note_text.js";
import { spaced } from "../strip.js";

const MANY_SHADES = 16;

/** The pictures of a part: [{part, note, columns}]; a column holds the values of one name by step. All clocks
 *  share one picture, and a line that serves as another's reference is in that one's picture. Notes of nodes are
 *  shown on the card. */
function picturesOf(part, notes) {
  const all = Object.entries(notes).map(([name, note]) => ({ name, note, values: [], filled: 0 }));
  const of = (name) => all.filter((x) => x.name === name && x.note.kind === "series");
  const lines = new Set(all.filter((x) => x.note.kind === "series").map((x) => x.note.at));
  const alone = all.filter(({ name, note: { kind, at } }) =>
    kind !== "node" && kind !== "clock" && !(kind === "series" && at === undefined && lines.has(name)));
  const clocks = all.filter((x) => x.note.kind === "clock");
  return [
    ...alone.map((x) => ({ part, note: x.note, columns: [x, ...of(x.note.at)], own: [x] })),
    ...(clocks.length ? [{ part, note: { kind: "clock", word: "time" }, columns: clocks, own: clocks }] : []),
  ];
}

/** A row for each note, with its value in the displayed step; its picture is also a scrubber. */
export function notesView(context) {
  const element = h("section", { class: "notes-pane", "aria-label": "what the parts of the method noted" });
  const rows = [];
  let steps = null, head = null, read = [], come = -1, width = 0, ink = null, seen = true;
  const back = (all) => (seen = all.at(-1).isIntersecting) && context.redraw();
  new IntersectionObserver(back, { rootMargin: "200px" }).observe(element);

  function rowOf(picture) {
    const { note } = picture, now = h("span", { class: "now" }), against = h("span", { class: "quiet" });
    const more = h("p", { class: "quiet" }), canvas = h("canvas"), mark = h("i");
    const what = [note.word, note.what].filter(Boolean).join(": ");
    const plot = h("div", { class: "plot", role: "slider", tabindex: 0, "aria-label": what }, canvas, mark);
    const words = h("div", null, h("p", null, h("b", null, note.word), now, against), more);
    const line = h("div", { class: "note" }, words, plot);
    const row = { ...picture, line, plot, canvas, mark, now, against, more, axis: null, painted: "", laid: null };
    const point = ({ clientX }) => {
      const step = row.axis?.step(clientX - plot.getBoundingClientRect().left);
      if (step !== undefined) context.seek(step);
    };
    plot.addEventListener("pointerdown", (event) => (plot.setPointerCapture?.(event.pointerId), point(event)));
    plot.addEventListener("pointermove", (event) => plot.hasPointerCapture?.(event.pointerId) && point(event));
    return row;
  }
  function begin(store) {
    ({ head, steps } = store);
    element.replaceChildren();
    rows.length = 0;
    (read = []), (come = -1);
    for (const [part, notes] of Object.entries(head.tells ?? {})) {
      const mine = picturesOf(part, notes).map(rowOf), own = head.method[part];
      const names = (own?.stages || [own]).map((x) => spaced(x?.name ?? "")).join(" → ");
      const title = h("h2", null, part[0].toUpperCase() + part.slice(1));
      const header = h("header", null, title, h("span", { class: "quiet" }, names));
      element.append(h("div", { class: "part" }, header, mine.map((x) => x.line)));
      rows.push(...mine);
    }
  }
  /** Take in the steps that are new, or are now whole. */
  function take(store, i) {
    if (come === store.come && read[i] === steps[i]) return;
    come = store.come;
    for (let k = 0; k < store.count; k++) {
      if (steps[k] === read[k]) continue;
      const { notes } = (read[k] = steps[k]);
      if (notes) for (const { part, columns } of rows) for (const x of columns) put(x, k, notes[part]?.[x.name]);
    }
  }
  function put(column, k, value) {
    if (value === undefined || value === null) return;
    if (column.values[k] === undefined) column.filled++;
    column.values[k] = value;
  }
  function tell(row, step, i, count) {
    const { note, own, plot, laid } = row;
    const words = noteText(own.map((x) => x.note), own.map((x) => x.values[i]));
    const against = words ? referenceText(note, step?.notes?.[row.part]) : "";
    say(row.now, words || "–");
    say(row.against, against);
    say(row.more, [note.what, laid?.said].filter(Boolean).join("; "));
    const spoken = [`step ${i}: ${words || "nothing noted"}`, against].filter(Boolean).join(", ");
    set(plot, { "aria-valuemin": 0, "aria-valuemax": count - 1, "aria-valuenow": i, "aria-valuetext": spoken });
    const [left, wide] = row.axis?.at(i) ?? [0, 0];
    set(row.mark, { style: `left:${left.toFixed(1)}px;width:${wide.toFixed(1)}px` });
  }
  /** Paint the visible part if it changed; with steps thinner than a pixel, only when a pixel is full. */
  function paint(row, store, i) {
    const steps = axisOf(store.count, Math.max(1, width - LEFT)), kind = NOTE_KINDS[row.note.kind];
    const filled = row.columns.reduce((sum, x) => sum + x.filled, 0);
    const come = store.end ? filled : Math.floor(filled / steps.grain);
    const as = [come, width, window.devicePixelRatio].join();
    if (!seen && row.axis) return;
    const laid = row.come === as ? row.laid : kind.lay(row.columns);
    const axis = kind.axis?.(laid, Math.max(1, width - LEFT), i) ?? steps, whole = [as, axis.key].join();
    Object.assign(row, { axis, laid, come: as });
    row.canvas.style.height = `${laid.tall}px`; // invisible rows keep their room
    if (whole === row.painted || !seen) return;
    row.painted = whole;
    const pen = sheet(row.canvas, width, laid.tall);
    pen.font = ink.less;
    kind.paint(pen, ink, axis, row.columns, laid);
  }
  return {
    element,
    look: () => (width = rows.find((x) => x.plot.clientWidth)?.plot.clientWidth ?? 0),
    restyle: () => ((ink = null), rows.forEach((x) => (x.painted = ""))),
    draw(store, i) {
      if (store.head && (store.head !== head || store.steps !== steps)) begin(store);
      if (store.head) take(store, i);
      const shown = store.head && i >= 0 ? rows.filter((x) => x.own.some((one) => one.filled)) : [];
      see(element, shown.length);
      for (const row of rows) see(row.line, shown.includes(row));
      for (const part of element.children) see(part, shown.some((x) => x.line.parentNode === part));
      width = width || shown[0]?.plot.clientWidth;
      if (!width) return;
      ink = ink || withShades(inks(element, "ink", "muted", "line", "time-3", "bg", "accept", "accept-soft", "branch",
        "mass-low", "mass-high"));
      for (const row of shown) paint(row, store, i), tell(row, store.steps[i], i, store.count);
    },
  };
}

/** Shades from weak to strong, in addition to the colours. */
function withShades(ink) {
  const [low, high] = [ink["mass-low"], ink["mass-high"]].map(rgb);
  const mixed = (t) => `rgb(${low.map((x, k) => Math.round(x + t * (high[k] - x))).join()})`;
  return { ...ink, shades: Array.from({ length: MANY_SHADES }, (_, k) => mixed(k / (MANY_SHADES - 1))) };
}
