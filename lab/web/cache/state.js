/* state: shared by the sections of the cache page: the displayed run and step, the map as the server counted it,
 * and the chosen row and position. */
import { current } from "../shared/address.js";
import { panes } from "../runs/runs.js";
import { gridColours } from "./grids.js";

const CELL = 28; // px of a position in the picture of one head

/** State that the page passes to its sections. The page adds go(row, position) and choose(row), which choose, and
 *  load(). */
export function cacheState(element) {
  const view = () => panes[0]?.view, store = () => view()?.store, now = () => view()?.at ?? -1;
  const base = () => `ds/run/${panes[0].id}/cache`;
  const looked = () => current() === "cache" && !!panes[0]?.id && now() >= 0 && (store()?.count ?? 0) > now();
  let colours = null;
  const shared = {
    at: { row: 0, position: null }, // what is chosen; a row is a layer and a head
    map: null,
    hits: null, // the text that was searched for: its places
    box: null, // the element that the map is drawn in
    view,
    store,
    now,
    base,
    looked,
    /** Whether the map belongs to the displayed step and says which entries are kept. */
    known: () => looked() && !!shared.map && !shared.map.untold && shared.map.run === panes[0].id,
    query: (path, words) => `${base()}${path}?${new URLSearchParams(words)}`,
    /** px that a picture can take, and how many positions of one head fit into them. */
    wide: () => Math.floor(shared.box.clientWidth || shared.box.parentElement.clientWidth),
    many: () => Math.max(8, Math.min(200, Math.floor(shared.wide() / CELL))),
    rowName: (row) => `layer ${Math.floor(row / shared.map.heads)}, head ${row % shared.map.heads}`,
    columnOf: (position) => Math.floor(position / shared.map.bin),
    /** The first and the last position of the found text, at the displayed place; or null. */
    marked: () => (shared.hits?.places?.length ? shared.hits.places[shared.hits.which] : null),
    colours: () => (colours ??= gridColours(element)),
    restyle: () => (colours = null),
  };
  return shared;
}
