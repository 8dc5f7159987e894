/* Note text: the notes of the method's parts, in words: of a step, and of one node. */
import { formatTime, prob } from "../shared/numbers.js";
import { visibleText } from "../shared/tokens.js";

const FEW = 6; // members or rows that are listed; the others are counted

/** A single value in words. */
export function wordOf(x) {
  if (x === null || x === undefined) return "–";
  if (typeof x === "boolean") return x ? "yes" : "no";
  if (typeof x === "number") return Number.isInteger(x) ? String(x) : String(+x.toPrecision(3));
  if (Array.isArray(x)) return x.map(wordOf).join(" ");
  return typeof x === "object" ? visibleText(x.text) : x;
}
const withUnit = (unit, x) => (!unit || typeof x !== "number" ? wordOf(x)
  : unit === "place" ? `position ${x}` : `${wordOf(x)} ${unit}`);
const listText = (words) =>
  words.slice(0, FEW).join(", ") + (words.length > FEW ? ` and ${words.length - FEW} more` : "");

const SAID = {
  series: (note, x) => withUnit(note.unit, x),
  clock: (note, x) => `${note.word} ${formatTime(x)}`,
  span: (note, x) => `${listText(x.map(([from, to]) => `${wordOf(from)} to ${wordOf(to)}`))} ${note.unit ?? ""}`.trim(),
  track: (note, x) => listText(x.map(([, from, to, token, word]) => `${wordOf(token)} ${from} to ${to} (${word})`)),
  set: (note, x) => (x.length ? listText(x.map(wordOf)) : "nothing"),
  grid: (note, x) => listText(Object.entries(x).map(([row, one]) => `${row}: ${wordOf(one)}`)),
};
/** The values of a step in words, by the kind of their notes; "" if there are none. */
export const noteText = (notes, values) =>
  notes.map((note, k) => (values[k] === undefined ? "" : SAID[note.kind](note, values[k]))).filter(Boolean).join(", ");

/** The reference of a note in a step, in words; "" if there is none. values: those of its part. */
export function referenceText(note, values) {
  const at = typeof note.at === "string" ? values?.[note.at] : note.at;
  return typeof at === "number" ? `${note.line} ${wordOf(at)}` : "";
}

/** The notes of one node: [[word, reference value, value, whether it is a place], ...]. A sum of logarithms over
 *  its path is preceded by what the draft gave the node alone, if q does not show it. */
export function nodeNotes(head, step, id) {
  const rows = [];
  for (const [part, values] of Object.entries(step.notes ?? {}))
    for (const [name, note] of Object.entries(head?.tells[part] ?? {})) {
      const x = note.kind === "node" ? values[name]?.[id] : null;
      if (x === null || x === undefined) continue;
      if (note.summed && isCertain(step))
        rows.push(["draft", "gave it", prob(ownChance(values[name], step.nodes[id][0], x))]);
      rows.push([note.word, referenceText(note, values), withUnit(note.unit, x), note.unit === "place"]);
    }
  return rows;
}
const ownChance = (sums, parent, x) => Math.exp(x - (parent > 0 ? sums[parent] : 0));

/** The text under a node in the tree: its reference; else, if its q is 1 because it was chosen without chance, the
 *  number that shaped the tree instead: "sure 0.42", "rank 2". */
export function noteLabel(head, step, id) {
  const rows = nodeNotes(head, step, id).filter(([, , , place]) => !place); // the text is marked there
  const shaped = isCertain(step) ? rows.find(([word]) => word === "draft") ?? rows[0] : null;
  const [name, , x] = rows.find(([, against]) => against && against !== "gave it") ?? shaped ?? [];
  return name ? `${name} ${x}` : "";
}
/** Whether the draft chose its tokens without chance: its q is 1 by convention, and does not measure its
 *  confidence. */
export const isCertain = (step) => step.proposal === "onehot";
