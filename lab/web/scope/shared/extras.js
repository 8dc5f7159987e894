/* Extras: what few runs need is no part of the core; it comes when the first message asks for it. */
import { h } from "./elements.js";

/** What of a step asks for which part; the same as in lab/views/bundle.py. */
const ASKS = { canvas: "canvas", branches: "trees", tree: "trees", threads: "threads", depth: "depth", lanes: "turns",
  scale: "scale", rounds: "repeats", survey: "survey" };
const AGAIN = 1000; // ms before a part that did not come is asked for again; twice as long each time

const brought = {}; // part -> what it gives
/** A part is here, and gives this by name. */
export const bring = (name, gives) => (brought[name] = gives);
/** What a part gives; null while it is not here. */
export const extra = (name) => brought[name] ?? null;

/** The parts that a message asks for; a head where pictures are written, a prompt was cut, a model was made of another
 *  or a depth rule was chosen. */
export const partsOf = (message) => (message.kind !== "head" ? Object.keys(ASKS).filter((key) => message[key])
  .map((key) => ASKS[key]) : [message.picture && "picture", message.shortened && "prompt_compression",
    Object.values(message.built ?? {}).some((one) => one.changed) && "model",
    message.parts?.adaptive_depth?.usual === false && "depth"].filter(Boolean));

/** Fetches what messages ask for. loads: part -> a function that begins to load it, of those that this place can fetch;
 *  arrived(): one came, or did not. `has`: whether a part is here or can come; `want` asks for it by name. `due`: how
 *  many are on their way for the first time: until then nothing is drawn that would have to change. */
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

/** A view of a part: nothing, until the part is here; make(what it gives) is the view. */
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
