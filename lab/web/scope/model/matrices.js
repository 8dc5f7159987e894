/* Matrices: the description of a model in a header, as bytes and in sentences; the same sums as
 * lab/figures/model.py. */
import { formatCount, plural, size } from "../shared/numbers.js";

const NAMED = [["qkv", "queries, keys and values"], ["out", "output of attention"], ["gate_up", "gate and up"],
  ["down", "down"]];
/** Shades by bits a weight: [what they are below, shade, in words]. */
export const SHADES = [[3.5, 1, "under 3.5"], [6, 2, "3.5 to 6"], [12, 3, "6 to 12"], [24, 4, "12 to 24"],
  [Infinity, 5, "24 and more"]];

/** Bits for people: 5, 4.5, 8.08. */
export const bitsOf = (bits) => String(Math.round(100 * bits) / 100);
/** The shade of a number of bits: 1 to 5. */
export const shadeOf = (bits) => SHADES.find(([below]) => bits < below)[1];
/** The sum of one number of each. */
export const sumOf = (list, what) => list.reduce((all, one) => all + one[what], 0);

/** The matrices of layer i: [{name, word, rows, columns, bits, bytes, gone, saved}, ...]: bytes of the present
 *  part, those of the removed part, in the model's type, and the saving of fewer bits. */
export function matricesOf({ kinds, layers, whole, usual }, i) {
  return kinds[layers[i]].parts.map(([rows, columns, bits], k) => {
    const [tall, wide] = whole.parts[k], many = rows * columns;
    return { name: NAMED[k][0], word: NAMED[k][1], where: ` of layer ${i}`, place: [i, k], rows, columns, tall, wide,
      bits, bytes: (many * bits) / 8, gone: ((tall * wide - many) * usual) / 8, saved: (many * (usual - bits)) / 8 };
  });
}

/** Embedding and head, in the same form. */
export const endsOf = ({ ends, usual }) => ends.map(([name, rows, columns, bits]) => ({ name, word: name, where: "",
  place: [null, name === "head"],
  rows, columns, tall: rows, wide: columns, bits, bytes: (rows * columns * bits) / 8, gone: 0,
  saved: (rows * columns * (usual - bits)) / 8 }));

/** A finding's value, with its unit. */
const valueText = (x, unit) => (typeof x === "boolean" ? (x ? "yes" : "no") : typeof x === "string" ? x
  : `${Number(x.toPrecision(4))}${unit ? ` ${unit}` : ""}`);
/** The findings of transforms on one place, as lines; pick(values) gives the value of the place. */
export const findingLines = ({ findings }, over, pick) => findings.filter((x) => x.over === over)
  .map((x) => [x, pick(x.values)]).filter(([, value]) => value !== null && value !== undefined)
  .map(([{ word, unit, what, by }, value]) => `${word} ${valueText(value, unit)}${what ? `: ${what}` : ""} (${by}).`);

/** The description of a matrix: {title, lines}. */
export function matrixText(one, model) {
  const { usual } = model;
  const many = one.rows * one.columns, there = many > 0, lines = [];
  if (there) lines.push(`${formatCount(one.rows)} × ${formatCount(one.columns)} = ${plural(many, "weight")}, `
    + `${bitsOf(one.bits)} bits each${one.bits === usual ? ", as the model's type has them" : ", scales included"}: `
    + `${size(one.bytes)}.`);
  if (one.gone) lines.push(`${there ? "" : "It is gone. "}The model that this one was made of has `
    + `${formatCount(one.tall)} × ${formatCount(one.wide)} here: ${size(one.gone)} are gone.`);
  if (there && one.saved > 0)
    lines.push(`In the model's type these weights would take ${size(one.bytes + one.saved)}.`);
  const [row, k] = one.place, last = (values) => values[values.length - 1][0];
  lines.push(...findingLines(model, "matrix", row === null ? (k ? last : () => null) : (values) => values[row][k]),
    ...(row === null ? [] : findingLines(model, "sublayer", (values) => values[row][k >> 1])));
  return { title: `${one.name}${one.where}${one.word === one.name ? "" : `: ${one.word}`}`, lines };
}

/** The heads of layer i: query heads by KV head, and how many of both are gone, whichever they were; `known`: if
 *  the transforms recorded which, for each KV head of the whole model [[head, whether it is there], ...]. */
export function headsOf({ kinds, layers, whole, there }, i) {
  const { groups } = kinds[layers[i]], sum = (list) => list.reduce((a, b) => a + b, 0), [usual] = whole.groups;
  return { groups, usual, loose: sum(whole.groups) - sum(groups), lost: whole.groups.length - groups.length,
    known: there && whole.groups.map((_, g) => Array.from({ length: usual },
      (_, k) => [g * usual + k, there[i][g * usual + k]])) };
}

/** The findings on heads: `mark(i, head)`, a whole number drawn in the head; `worth(i, head)`, its share of the
 *  range of the first numbers, 0 to 1; null: nothing. */
export function headMarks({ findings }) {
  const own = findings.filter((x) => x.over === "head"), some = (x) => x.values.flat().filter((v) => v !== null);
  const places = own.find((x) => some(x).every(Number.isInteger)), scores = own.find((x) => x !== places);
  const [low, high] = scores ? [Math.min(...some(scores)), Math.max(...some(scores))] : [];
  return { scores, places, mark: (i, head) => places?.values[i][head] ?? null, worth: (i, head) => {
    const value = scores?.values[i][head] ?? null;
    return value === null ? null : high > low ? (value - low) / (high - low) : 1;
  } };
}
