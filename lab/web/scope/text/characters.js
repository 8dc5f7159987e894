/* Characters: a character that several tokens hold parts of, bytes or signs that combine, is shown as one. */
import { isHidden, textParts } from "../shared/tokens.js";

// text that begins with one of these may form one character with the text before it
const COMBINES = /^[\u200C\u200D\p{M}\u{1F3FB}-\u{1F3FF}\u{1F1E6}-\u{1F1FF}\u1160-\u11FF]/u;
const JOINER = /\u200D$/u, ASCII = /^[\0-\x7f]/;
const LARGEST = 64; // UTF-16 units of a character that grows

/** The text of UTF-8 bytes in hex; null while they end within a character, undefined if they are no text. */
function decodeUtf8(codes) {
  const bytes = Uint8Array.from(codes, (code) => parseInt(code, 16)), reader = new TextDecoder();
  const text = reader.decode(bytes, { stream: true });
  if (text.includes("\uFFFD")) return undefined;
  return reader.decode() ? null : text;
}

let segments = null; // made when it is first needed
/** Whether two texts form one character together, without anything invisible in it. */
function combine(before, text) {
  if (!before || before.length > LARGEST || ASCII.test(before) || !(COMBINES.test(text) || JOINER.test(before)))
    return false;
  segments = segments || new Intl.Segmenter(undefined, { granularity: "grapheme" });
  const all = before + text, seen = (char) => !isHidden(char) || /[\u200C\u200D]/.test(char);
  return [...segments.segment(all)].length === 1 && [...all].every(seen);
}

/** Takes tokens one after another, each with a key: join(text, key) -> {text, keys} if the token completes a
 *  character of several, with all their keys; else null. */
export function joiner() {
  let open = [], last = null;
  return (text, key) => {
    if (!Array.isArray(text)) open = [];
    else {
      open.push({ key, codes: text });
      let whole = decodeUtf8(open.flatMap(({ codes }) => codes));
      if (whole === undefined) (open = [{ key, codes: text }]), (last = null), (whole = decodeUtf8(text));
      if (whole === undefined) open = [];
      if (typeof whole !== "string") return null;
      text = whole;
    }
    const keys = open.length ? open.map((token) => token.key) : [key];
    open = [];
    last = last && combine(last.text, text) ? { text: last.text + text, keys: [...last.keys, ...keys] }
      : { text, keys };
    return last.keys.length > 1 ? last : null;
  };
}

/** Texts of tokens in a row as they are drawn together: a character of several belongs to the last of them, and
 *  the others get "". */
export function joinTokens(texts) {
  const join = joiner(), parts = [...texts];
  texts.forEach((text, k) => {
    const whole = join(text, k);
    if (!whole) return;
    for (const part of whole.keys) parts[part] = "";
    parts[k] = whole.text;
  });
  return parts;
}

/** A piece of text in one line. */
export const oneLine = (text) => textParts(text).map(([, shown]) => shown.replaceAll("\n", "")).join("");
/** The end of a text in `room` letters, in pieces of its tokens; the first is "…" if there was more. */
export function tailOf(texts, whole, room) {
  const pieces = joinTokens(texts).map(oneLine);
  let from = pieces.length, left = room;
  while (from > 0 && (left -= pieces[from - 1].length) >= 0) from--;
  from = Math.min(from, pieces.length - 1);
  return { from, pieces: pieces.slice(from), before: from > 0 || !whole ? "…" : "" };
}
