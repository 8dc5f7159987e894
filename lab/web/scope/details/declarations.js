/* Declarations: formulas and sentences that a header declares, worked out and said of one thing. */
import { holds, evaluate } from "./formulas.js";
import { prob } from "../shared/numbers.js";

/** Says sentences of a thing. own(name): its entry, a number or a text; above(name): the same of what it goes on from;
 *  null or nothing where there is none. */
export function scopeOf(own, above = () => null) {
  const number = (name, before = false) => {
    const x = before ? above(name) : own(name);
    return typeof x === "number" ? x : typeof x === "boolean" ? Number(x) : null;
  };
  function applies([, given, where]) {
    const is = ([name, wanted]) => (Array.isArray(wanted) ? wanted.includes(own(name)) : own(name) === wanted);
    return Object.entries(given).every(is) && (!where || holds(where, number) === true);
  }
  function part(one) {
    if (typeof one === "string") return one;
    const [what, form] = one, text = typeof what === "string" ? own(what) : null;
    if (typeof text === "string") return text;
    const x = evaluate(what, number);
    if (x === null) return null;
    if (form === "g" || (!form && Number.isInteger(x))) return String(x);
    return form && form !== "p" ? x.toFixed(form) : prob(x);
  }
  function say(sentence) {
    const parts = applies(sentence) ? sentence[0].map(part) : [null];
    return parts.includes(null) ? null : parts.join("");
  }
  return { value: (formula) => (formula === null ? null : evaluate(formula, number)),
    /** All sentences that are said. */
    all: (sentences) => sentences.map(say).filter((said) => said !== null),
    /** The first that is said; "" for none. */
    first: (sentences) => sentences.map(say).find((said) => said !== null) ?? "" };
}

/** A text whose numbers have the sign of minus in the place of a hyphen. */
export const minusSigns = (text) => text.replace(/-(?=\d)/g, "\u2212");
/** A noun at the beginning of a title. */
export const capitalize = (noun) => noun.charAt(0).toUpperCase() + noun.slice(1);
