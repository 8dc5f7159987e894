/* Tokens as text: characters without a glyph become symbols. */

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/u;
const SPACE = /\p{Zs}/u;
const code = (char) => "‹U+" + char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "›";

/** Whether a character has no glyph. */
export const isHidden = (char) => HIDDEN.test(char);

/** One displayed character: white space, controls and bidi marks become visible. */
export function visibleChar(char) {
  const at = char.codePointAt(0);
  if (char === " ") return "␣";
  if (char === "\n") return "⏎";
  if (char === "\t") return "⇥";
  if (at < 0x20) return String.fromCodePoint(0x2400 + at);
  if (at === 0x7f) return "␡";
  return HIDDEN.test(char) || SPACE.test(char) ? code(char) : char;
}

/** A token's text -> [[shown, quiet]]: quiet parts are symbols for characters without a glyph. Bytes come as a
 *  list of hex codes. Runs of three or more equal spaces are counted, and at most `most` characters are shown. */
export function pieces(text, most = 40) {
  if (Array.isArray(text)) return [["⟨" + text.join(" ").toUpperCase() + "⟩", true]];
  const parts = [];
  const add = (shown, quiet) => {
    const last = parts[parts.length - 1];
    if (last && last[1] === quiet) last[0] += shown;
    else parts.push([shown, quiet]);
  };
  const chars = [...text];
  let left = most;
  for (let i = 0; i < chars.length;) {
    let run = 1;
    while (chars[i] === " " && chars[i + run] === " ") run++;
    if (left-- <= 1 && i + run < chars.length) {
      add("…", true);
      break;
    }
    if (run > 2) {
      add("␣×" + run, true);
      i += run;
    } else {
      const shown = visibleChar(chars[i]);
      add(/\p{M}/u.test(chars[i]) && i === 0 ? "◌" + shown : shown, shown !== chars[i]);
      i++;
    }
  }
  return parts;
}

/** The same as one string, for labels that are read aloud. */
export const visibleText = (text) => pieces(text).map(([shown]) => shown).join("");

// joiners keep their meaning within the signs that they join: emoji, Arabic, scripts of India
const JOINED = /(?<=[\p{Extended_Pictographic}\p{M}\p{Emoji_Modifier}\u0600-\u0DFF])[\u200C\u200D]/gu;
/** A token in running text -> [[kind, shown]]: line breaks stay line breaks and spaces spaces; "nl" and "sign" are
 *  symbols. */
export function textParts(text) {
  if (Array.isArray(text)) return [["sign", "⟨" + text.join(" ").toUpperCase() + "⟩"]];
  const parts = [], joins = new Set([...text.matchAll(JOINED)].map(({ index }) => index));
  let at = 0;
  for (const char of text) {
    const kind = char === "\n" ? "nl"
      : char === " " || char === "\t" ? "space" : visibleChar(char) === char || joins.has(at) ? "text" : "sign";
    at += char.length;
    const last = parts[parts.length - 1];
    const shown = kind === "nl" ? "⏎\n" : kind === "sign" ? visibleChar(char) : char;
    if (last && last[0] === kind) last[1] += shown;
    else parts.push([kind, shown]);
  }
  return parts;
}
