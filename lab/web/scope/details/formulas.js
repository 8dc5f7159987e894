/* Formulas, relations and sentences of a declaration, evaluated with the numbers of a record. All come in parts. */
import { prob } from "../shared/numbers.js";

const DOES = { "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "/": (a, b) => a / b,
  "**": (a, b) => a ** b, min: Math.min, max: Math.max, exp: Math.exp, log: Math.log };
const HOLDS = { "==": (a, b, within) => Math.abs(a - b) <= within,
  "!=": (a, b, within) => Math.abs(a - b) > within, "<=": (a, b, within) => a <= b + within,
  ">=": (a, b, within) => a >= b - within };

/** The value of a formula (a number, a name, or an operation with its operands); null if a number is not recorded. */
export function evaluate(formula, names) {
  if (typeof formula !== "object") return typeof formula === "number" ? formula : names(formula);
  const [does, ...parts] = formula;
  if (does === "before") return names(parts[0], true);
  const numbers = parts.map((part) => evaluate(part, names)),
    result = numbers.includes(null) ? null : DOES[does]?.(...numbers);
  return Number.isFinite(result) ? result : null;
}

/** Whether a relation, [formula, sign, formula, tolerance], holds; null if a number is missing. */
export function holds([left, sign, right, within = 1e-9], names) {
  const a = evaluate(left, names), b = evaluate(right, names);
  return a === null || b === null ? null : HOLDS[sign](a, b, within * Math.max(1, Math.abs(a), Math.abs(b)));
}

/** The numbers of names: true is 1, and a text has none. */
export const numbersOf = (names) => (name, before) => {
  const x = names(name, before);
  return typeof x === "number" ? x : typeof x === "boolean" ? Number(x) : null;
};

/** A number of a sentence in a form: "g" as it is, "p" as a probability, or a count of decimals. Without a form a whole
 *  number is written as it is, any other as a probability. */
export const writeNumber = (x, form) => (form === "g" || (!form && Number.isInteger(x)) ? String(x)
  : form && form !== "p" ? x.toFixed(form) : prob(x));

/** The text of a sentence; null if it does not apply, or lacks something. It is [its parts, required values of names:
 *  a value or one of several, the relation that must hold or null]; a part is a text, or [a formula or a text's name,
 *  its form]. names(name, before): number, text or null; write(number, form): the number as text.
 *  @param {any[]} sentence */
export function saySentence([parts, given = {}, where], names, write = writeNumber) {
  const numbers = numbersOf(names);
  const due = Object.entries(given).every(([name, wanted]) => [wanted].flat().includes(names(name)));
  if (!due || (where && !holds(where, numbers))) return null;
  const words = parts.map((part) => {
    if (typeof part === "string") return part;
    const [what, form] = part, text = typeof what === "string" && names(what), x = evaluate(what, numbers);
    return typeof text === "string" ? text : x === null ? null : write(x, form);
  });
  return words.includes(null) ? null : words.join("");
}

/** The texts of sentences, one after another. */
export const sayAll = (sentences, names, write) =>
  sentences.map((one) => saySentence(one, names, write)).join("");
