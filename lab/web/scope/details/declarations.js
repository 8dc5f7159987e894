/* Declarations: formulas and sentences that a header declares, evaluated for one thing. */
import { evaluate, numbersOf, saySentence } from "./formulas.js";

/** Builds sentences on a thing. own(name): its entry, a number or a text; above(name): the same of the thing that it
 *  continues; null or nothing if there is none.
 *  @param {(name: string) => any} above */
export function scopeOf(own, above = () => null) {
  const names = (name, before) => (before ? above(name) : own(name)), numbers = numbersOf(names);
  return { value: (formula) => (formula === null ? null : evaluate(formula, numbers)),
    /** All sentences that apply. */
    all: (sentences) => sentences.map((one) => saySentence(one, names)).filter((said) => said !== null),
    /** The first sentence that applies; "" for none. */
    first: (sentences) => {
      for (const one of sentences) {
        const said = saySentence(one, names);
        if (said !== null) return said;
      }
      return "";
    } };
}

/** A text whose numbers have a minus sign instead of a hyphen. */
export const minusSigns = (text) => text.replace(/-(?=\d)/g, "\u2212");
/** A noun at the beginning of a title. */
export const capitalize = (noun) => noun.charAt(0).toUpperCase() + noun.slice(1);
