/* Frame: all views of a page are drawn in one animation frame; of those that follow a run as many as fit. The
 * other details of a step have a frame of their own. */

const FITS = 8; // ms of drawing, after which low-priority views wait
const REST = 50; // ms between two drawings of a low-priority view while steps come; doubled if no frame is free
const waiting = new Set(); // longest first
const paints = []; // of this frame
let frame = 0;

/** Draw `view` with the next frame: look() reads sizes, draw() none. All look before one draws: one layout. A view
 *  with `since`, the time of its last drawing, has low priority: it is drawn after the others, in a free frame. */
export function requestDraw(view) {
  waiting.add(view);
  frame = frame || requestAnimationFrame(drawFrame);
}
/** Paint once all elements of this frame have changed: a canvas that is given a type asks for the page's styles. */
export const paintLast = (paint) => paints.push(paint);
export const cancelDraw = (view) => waiting.delete(view);
/** Whether something waits to be drawn. */
export const isWaiting = () => waiting.size > 0;

function drawFrame(time) {
  frame = 0;
  const looked = new Set(waiting), drawn = new Set(), begin = performance.now();
  for (const view of looked) view.look?.();
  const draw = (view) => (waiting.delete(view), drawn.add(view), view.draw());
  try {
    for (const view of waiting) {
      if (drawn.has(view) || "since" in view || (view.patient?.() && performance.now() - begin > FITS)) continue;
      if (!looked.has(view)) view.look();
      draw(view);
    }
    const busy = drawn.size;
    for (const view of looked) {
      if (!("since" in view) || !waiting.has(view) || time - view.since < REST * (busy ? 2 : 1)) continue;
      view.since = time;
      draw(view);
    }
    paints.splice(0).forEach((paint) => paint());
  } finally {
    if (waiting.size) frame = frame || requestAnimationFrame(drawFrame);
  }
}
