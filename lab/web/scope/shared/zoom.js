/* Zoom: the displayed stretch of an axis. Wheel, drag, pinch, keys and buttons change it. */
import { button, h, set } from "./elements.js";

// of what is shown: by a key or a button
const NEARER = 0.5, ALONG = 0.25;
const CLICK = 4; // px that a pointer may move in a click
const HELP = "zoom: + and −, or the wheel with Ctrl; along: arrows, or drag; 0: all";

/** An axis from 0 on, drawn on a canvas in `box`, which takes its keys. least: the shortest stretch; edges(): the
 *  position of the axis in the box, [left, width] in px; seek(x, event): a pointer is at x of the axis; request():
 *  ask for a drawing; `what` the axis counts, in a word. */
export function zoom(box, { least, edges, seek, request, what }) {
  let from = 0, shown = Infinity, length = 1, place = null;
  const wide = () => Math.min(shown, length), near = () => shown < length;
  const all = button("all", () => reset(), { class: "small", title: "0" });
  const tools = h("span", { class: "zoom", role: "group", "aria-label": `zoom: ${what}` },
    button("−", () => by(1 / NEARER), { class: "small", title: "−", "aria-label": "zoom out" }),
    button("+", () => by(NEARER), { class: "small", title: "+", "aria-label": "zoom in" }), all);
  set(box, { tabindex: 0, role: "group", "aria-label": `${what}; ${HELP}` });

  function settle() {
    if (!near()) shown = Infinity;
    from = Math.max(0, Math.min(length - wide(), from));
    box.classList.toggle("zoomed", near());
    set(all, { "aria-disabled": !near() });
  }
  /** Show `factor` of what is shown, and keep `about` at its position. */
  function by(factor, about = place >= from && place <= from + wide() ? place : from + wide() / 2) {
    const next = Math.max(Math.min(least, length), wide() * factor);
    from = about - ((about - from) * next) / wide();
    shown = next;
    settle(), request();
  }
  function along(x) {
    from += x;
    settle(), request();
  }
  const reset = () => ((shown = Infinity), settle(), request());
  const perPixel = () => wide() / Math.max(1, edges()[1]);
  function at(clientX) {
    const x = clientX - box.getBoundingClientRect().left - edges()[0];
    return Math.max(from, Math.min(from + wide(), from + x * perPixel()));
  }

  box.addEventListener("wheel", (event) => {
    const unit = event.deltaMode ? 20 : 1, down = event.deltaY * unit, held = event.ctrlKey || event.metaKey;
    const side = event.shiftKey ? down : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX * unit : 0;
    if (held || (!side && box.matches(":focus-within") && (near() || down < 0)))
      by(1.01 ** Math.max(-60, Math.min(60, down)), at(event.clientX));
    else if (side && near()) along(side * perPixel());
    else return; // the page scrolls
    event.preventDefault();
  }, { passive: false });

  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { key } = event, arrow = event.target === box && near() && { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (key === "+" || key === "=") by(NEARER);
    else if (key === "-") by(1 / NEARER);
    else if (key === "0") reset();
    else if (arrow) along(arrow * ALONG * wide());
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  const held = new Map(); // pointer -> where it is, in px
  let moved = 0;
  box.addEventListener("pointerdown", (event) => {
    if (event.target.matches("input") || event.button) return;
    held.set(event.pointerId, event.clientX);
    box.setPointerCapture?.(event.pointerId);
    moved = 0;
    if (!near()) seek(at(event.clientX), event);
  });
  box.addEventListener("pointermove", (event) => {
    if (!held.has(event.pointerId)) return;
    const before = held.get(event.pointerId), x = event.clientX;
    const [other] = [...held].flatMap(([id, there]) => (id === event.pointerId ? [] : [there]));
    held.set(event.pointerId, x);
    moved += Math.abs(x - before);
    if (other !== undefined) by(Math.max(1, Math.abs(before - other)) / Math.max(1, Math.abs(x - other)), at(other));
    else if (near()) along((before - x) * perPixel());
    else seek(at(x), event);
  });
  for (const name of ["pointerup", "pointercancel"])
    box.addEventListener(name, (event) => {
      const click = held.delete(event.pointerId) && name === "pointerup" && !held.size && moved < CLICK;
      if (click && near()) seek(at(event.clientX), event);
    });

  return {
    tools,
    /** The axis ends at `most`, and `here` is the displayed place on it, or null: [from, how much] is visible. A
     *  place that has moved is brought into view. */
    stretch(most, here) {
      length = most;
      if (here !== null && here !== place && (here < from || here > from + wide()))
        from = here - wide() * (here > (place ?? 0) ? 0.1 : 0.9);
      place = here;
      settle();
      return [from, wide()];
    },
    /** The stretch as a bar under the axis, which begins at `left` and is `width` px wide; nothing while all is
     *  visible. */
    bar(pen, colour, left, width, y) {
      if (!near()) return;
      pen.fillStyle = colour;
      pen.fillRect(left + (from / length) * width, y, Math.max(6, (wide() / length) * width), 3);
    },
    near,
  };
}
