/* Frame: all views of a page are drawn in one animation frame; of those that follow a run as many as fit. */

const FITS = 8; // ms of drawing, then the patient wait
const waiting = new Set(); // longest first
let frame = 0;

/** Draw `view` with the next frame: look() reads sizes, draw() none. All look before one draws: one layout. */
export function soon(view) {
  waiting.add(view);
  frame = frame || requestAnimationFrame(all);
}
export const never = (view) => waiting.delete(view);

function all() {
  frame = 0;
  const looked = new Set(waiting), drawn = new Set(), begin = performance.now();
  for (const view of looked) view.look();
  try {
    for (const view of waiting) {
      if (drawn.has(view) || (view.patient?.() && performance.now() - begin > FITS)) continue;
      if (!looked.has(view)) view.look();
      waiting.delete(view);
      drawn.add(view);
      view.draw();
    }
  } finally {
    if (waiting.size) frame = frame || requestAnimationFrame(all);
  }
}
