/* prefetch: steps around the displayed ones are requested before somebody goes there, once nothing was drawn for a
 * while. */

const IDLE = 200, BLOCK = 64, BLOCKS = 4; // ms, steps requested at once, and how many times that on each side

/** panes(): the displayed ones, {view}; spare(): what may be missing of a step, as `Store.whole` takes it;
 *  fetch(pane, from, to). Call the returned function whenever one of them was drawn. */
export function prefetch({ panes, spare = () => [], fetch }) {
  const asked = new WeakMap(); // view -> the stretches that were asked for
  let timer = 0;

  /** Whether a stretch, not asked for before, lacks something. */
  function lacks({ store }, from, to, known) {
    if (from >= to || known.has(`${from}-${to}`)) return false;
    for (let k = from; k < to; k++) if (!store.whole(k, spare())) return true;
    return false;
  }
  /** Request the nearest stretch that lacks something. */
  function next(pane) {
    const { view } = pane, { store } = view, here = Math.floor(view.at / BLOCK);
    if (view.following && !store.end) return; // of a live run the reader looks at the newest steps
    if (!asked.has(view)) asked.set(view, new Set());
    const known = asked.get(view);
    for (let far = 0; far <= BLOCKS; far++)
      for (const block of [here + far, here - far]) {
        const from = Math.max(0, block * BLOCK), to = Math.min(store.count, (block + 1) * BLOCK);
        if (lacks(view, from, to, known)) return known.add(`${from}-${to}`), fetch(pane, from, to);
      }
  }
  return () => {
    clearTimeout(timer);
    timer = setTimeout(() => panes().forEach((pane) => pane.view && next(pane)), IDLE);
  };
}
