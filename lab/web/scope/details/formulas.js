/* Formulas, relations and sentences of a declaration, worked out with the numbers of a record. All come in parts. */

const DOES = { "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "/": (a, b) => a / b,
  "**": (a, b) => a ** b, min: Math.min, max: Math.max, exp: Math.exp, log: Math.log };
const HOLDS = { "==": (a, b, within) => Math.abs(a - b) <= within,
  "!=": (a, b, within) => Math.abs(a - b) > within, "<=": (a, b, within) => a <= b + within,
  ">=": (a, b, within) => a >= b - within };

/** The number that a formula gives (a number, a name, or what is done and to what); null where one is not recorded. */
export function evaluate(formula, names) {
  if (typeof formula !== "object") return typeof formula === "number" ? formula : names(formula);
  const [does, ...parts] = formula;
  if (does === "before") return names(parts[0], true);
  const numbers = parts.map((part) => evaluate(part, names)),
    result = numbers.includes(null) ? null : DOES[does]?.(...numbers);
  return Number.isFinite(result) ? result : null;
}

/** Whether a relation, [formula, sign, formula, how far they may be apart], holds; null where a number is missing. */
export function holds([left, sign, right, within = 1e-9], names) {
  const a = evaluate(left, names), b = evaluate(right, names);
  return a === null || b === null ? null : HOLDS[sign](a, b, within * Math.max(1, Math.abs(a), Math.abs(b)));
}

/** The sentences that are due and lack no number, one behind the other. Each is [its parts, what names must be, the
 *  relation that must hold or null]; a part is a text, or [a formula, its form]. */
export const sayAll = (sentences, names) => sentences.filter(([, given, where]) => (!where || holds(where, names))
  && Object.entries(given).every(([name, value]) => names(name) === value))
  .map(([parts]) => parts.map((part) => (typeof part === "string" ? part : evaluate(part[0], names))))
  .filter((parts) => !parts.includes(null)).flat().join("");
