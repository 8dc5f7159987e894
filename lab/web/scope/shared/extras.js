/* Extras: parts that few runs need are not in the core; a part is loaded when the first message needs it. */
import { h } from "./elements.js";

/** Which field of a step needs which part; the same as in lab/views/bundle.py. */
const ASKS = { canvas: "canvas", branches: "trees", tree: "trees", threads: "threads", depth: "depth", lanes: "turns",
  scale: "scale", rounds: "repeats", survey: "survey" };
const AGAIN = 1000; // ms before a part that did not come is requested again; doubled each time

const brought = {}; // part -> its exports
/** Register a loaded part, with its exports by name. */
export const bring = (name, gives) => (brought[name] = gives);
/** The exports of a part; null while it is not loaded. */
export const extra = (name) => brought[name] ?? null;

/** The parts that a message needs. A head needs one if pictures are written, a prompt was cut, a model was made
 *  from another, a depth rule was chosen or its cache may hold other entries than plain ones. */
export const partsOf = (message) => (message.kind !== "head" ? Object.keys(ASKS).filter((key) => message[key])
  .map((key) => ASKS[key]) : [message.picture && "picture", message.shortened && "prompt_compression",
    Object.values(message.built ?? {}).some((one) => one.changed) && "model",
    message.parts?.adaptive_depth?.usual === false && "depth", message.entries && "entries"].filter(Boolean));

/** Fetches the parts that messages need. loads: part -> a function that begins to load it, for those that can be
 *  fetched here; arrived(): one came, or failed. `has`: whether a part is loaded or can be; `want` requests it by
 *  name. `due`: how many are being loaded for the first time: until then nothing is drawn that would have to
 *  change. */
export function partFetcher(loads, arrived) {
  const begun = new Set(), has = (name) => !!(brought[name] || loads?.[name]);
  const way = { ask: (message) => partsOf(message).forEach(want), has, want, due: 0 };
  function want(name) {
    if (brought[name] || begun.has(name) || !loads?.[name]) return;
    begun.add(name);
    way.due++;
    get(name, AGAIN).then(() => (way.due--, arrived()));
  }
  const get = (name, wait) => loads[name]().catch(() => void setTimeout(
    () => get(name, Math.min(2 * wait, 15000)).then(arrived), wait));
  return way;
}

/** A view of a part: empty until the part is loaded; make(its exports) is the view. */
export function lateView(name, make) {
  const place = h("template");
  let view = null;
  const now = () => {
    if (!view && brought[name]) place.replaceWith((view = make(brought[name])).element);
    return view;
  };
  return {
    get element() {
      return now()?.element ?? place;
    },
    get view() {
      return now();
    },
    look: () => now()?.look?.(),
    draw: (...given) => now()?.draw(...given),
    restyle: () => view?.restyle?.(),
  };
}
