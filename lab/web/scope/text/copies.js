/* Copies: the positions in the text that tokens were copied from, and the marks that join both. */
import { button, say, see } from "../shared/elements.js";
import { textParts } from "../shared/tokens.js";

const SHOWN_RUNS = 2; // stretches that are named for a step

/** By node of a step the position of the token that it is a copy of, counted in what the target read; null where
 *  nothing is known. */
export function placesOf(head, step) {
  for (const [part, values] of Object.entries(step?.notes ?? {}))
    for (const [name, note] of Object.entries(head?.tells?.[part] ?? {}))
      if (note.kind === "node" && note.unit === "place" && values[name]) return values[name];
  return [];
}

/** Neighbours of a list of numbers as [first, last]. */
function runsOf(places) {
  const runs = [];
  for (const place of [...new Set(places)].sort((a, b) => a - b)) {
    if (runs.at(-1)?.[1] === place - 1) runs.at(-1)[1] = place;
    else runs.push([place, place]);
  }
  return runs;
}

/** The marks of copies in a text: `line` says where the tokens of a step come from. A token under the pointer
 *  marks the place that it was copied from, and such a place all its copies; the chosen node of a step marks its
 *  own. */
export function copiesOf(context, box) {
  const line = button("", () => first?.scrollIntoView({ block: "nearest" }), { class: "small copied" });
  let marked = [], first = null;
  const point = (place) => {
    if (context.linked === place) return;
    context.linked = place;
    context.redraw();
  };
  const over = ({ target }) => {
    const token = target.closest?.(".tok");
    point(token ? token.from ?? (token.copies ? token.place : null) : null);
  };
  for (const kind of ["pointerover", "focusin"]) box.addEventListener(kind, over);
  for (const kind of ["pointerleave", "focusout"]) box.addEventListener(kind, () => point(null));
  const mark = (element, kind) => element && (element.classList.add(kind), marked.push([element, kind]));
  return {
    line,
    /** Add a token that is a copy of another one. */
    take(copy, place, source) {
      copy.from = place;
      if (source) source.copies = [...(source.copies ?? []), copy];
    },
    /** at(place): the element of the token there. texts(place): its text. prompt: tokens of it that were read. */
    draw(store, i, { at, texts, prompt }) {
      for (const [element, kind] of marked) element.classList.remove(kind);
      marked = [];
      const step = store.steps[i], places = placesOf(store.head, step), own = context.selection;
      const chosen = own?.step === i ? places[own.node] ?? step?.from?.[own.node - 1] ?? null : null;
      const pointed = context.linked ?? chosen;
      const all = (places.length ? places : step?.from ?? []).filter((x) => x !== null && x !== undefined);
      for (const place of all) mark(at(place), "source");
      if (pointed !== null) {
        mark(at(pointed), "pointed");
        for (const copy of at(pointed)?.copies ?? []) if (copy.step <= i) mark(copy, "copy");
      }
      const runs = runsOf(all).sort((a, b) => b[1] - b[0] - a[1] + a[0]), words = ([from, to]) => {
        const shown = Array.from({ length: to - from + 1 }, (_, k) => textParts(texts(from + k)).map(([, x]) => x)
          .join("").replaceAll("\n", "")).join("");
        const where = from === to ? `position ${from}` : `positions ${from} to ${to}`;
        const text = shown.length > 48 ? `${shown.slice(0, 47)}…` : shown;
        return `“${text}” (${from < prompt ? "prompt" : "text"}, ${where})`;
      };
      first = runs.length ? at(runs[0][0]) : null;
      say(line, runs.length ? `${places.length ? "drafted" : "copied"} from ${runs.slice(0, SHOWN_RUNS).map(words)
        .join(", ")}${runs.length > SHOWN_RUNS ? ` and ${runs.length - SHOWN_RUNS} places more` : ""}` : "");
      see(line, runs.length);
    },
  };
}
