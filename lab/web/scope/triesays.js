/* What a card says of a pass over a canvas beside its places: what was tried, what a grammar refused, and bits. */
import { offered } from "./fills.js";
import { plural, prob, two } from "./numbers.js";
import { running, spoken } from "./tokens.js";

const quoted = (text) => `“${spoken(text)}”`;
const surprise = (c) => -Math.log2(Math.max(c, 1e-300));

/** The tokens that were tried, each on a canvas of its own. */
export function triedSay({ tried, at: [start] }, place) {
  if (!tried) return [];
  const where = tried.at === place ? "here" : `at place ${tried.at - start + 1}`;
  const list = tried.of.map(([, text, p, sure, score], k) => `${quoted(text)} ${prob(p)}, `
    + `${plural(sure, "place")} sure behind it, score ${two(score)}${k === tried.won ? ", won" : ""}`);
  return [`Canvases read side by side: ${tried.of.length}. They differ ${where}: ${list.join("; ")}.`];
}

/** What the grammar refused at a place, and a text that the canvas can still become. */
export function vetoesSay({ vetoes, witness }, place) {
  if (!vetoes) return [];
  const here = vetoes.filter(([at]) => at === place).map(([, , text, together]) =>
    `The grammar refused ${quoted(text)} here: ${together
      ? "beside what the pass settled before it no text is left. The place stays open."
      : "no filling of the open places is one of its texts then."}`);
  const shown = witness.flatMap(running).map(([, part]) => part).join("");
  return [...here, `The canvas can still become ${shown ? `“${shown}”` : "the empty text"} (witness), `
    + `and ${plural(vetoes.length, "token")} ${vetoes.length === 1 ? "was" : "were"} refused in this pass.`];
}

/** Bits that the pass settled, and the most that places can settle which are taken for reaching their bar. */
export function bitsSay(fill) {
  const all = offered(fill);
  if (!all || fill.bars == null) return [];
  const now = fill.now.map(([place]) => all.get(place)).filter(Boolean);
  const sure = now.filter((x) => x.bar > 0 && x.c >= x.bar);
  const sum = (list, of) => two(list.reduce((total, x) => total + of(x), 0));
  return [`Bits settled: ${sum(now, (x) => surprise(x.c))}, by ${plural(sure.length, "sure place")} `
    + `${sum(sure, (x) => surprise(x.c))} of at most ${sum(sure, (x) => surprise(x.bar))} (log2 of 1 / bar each).`];
}
