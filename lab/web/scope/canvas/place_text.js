/* Place text: the card's words for a place of a canvas, from the record alone. */
import { agrees, openPlaces, settledAt } from "./fills.js";
import { sayAll } from "../details/formulas.js";
import { plural, prob, formatFixed } from "../shared/numbers.js";
import { textParts, visibleText } from "../shared/tokens.js";

const BEFORE = 8; // passes that are listed

/** Why a place was settled, or not, in the words of the declaration. */
function why(one, { form, anchors, at: [start] }) {
  const where = (anchors ?? []).map((x) => `place ${x - start + 1}`).join(", ");
  const names = (name) => (name === "anchors" ? where : one.names(name));
  if (!one.rule) return sayAll(form.stays ?? [], names, String);
  return sayAll(form.words?.[one.rule]?.[2] ?? [], names, String) || `It was settled: ${one.rule}.`;
}

/** The candidates of a place in all passes up to step i: [{step, token, text, c}]. */
const candidatesAt = (store, i, place) =>
  store.steps.slice(0, i + 1).flatMap((step, k) => {
    const one = step?.canvas && openPlaces(step.canvas)?.get(place);
    return one ? [{ step: k, ...one }] : [];
  });

/** For a place, from 1: {title, mark, text, where, agrees, rows, lines, before}: title, numbers and sentences of
 *  the card, and the proposals there in the passes so far. */
export function placeText(store, i, number) {
  const { canvas: fill } = store.steps[i], [start, length] = fill.at, place = start + number - 1;
  const one = openPlaces(fill)?.get(place), stands = settledAt(store, i).get(place), now = stands?.step === i;
  const later = settledAt(store, store.count - 1).get(place), line = candidatesAt(store, i, place);
  // since when it was always the token that was committed in the end
  let right = line.length;
  while (right && later && line[right - 1].token === later.token) right--;
  const said = { where: `place ${number} of ${length}`, agrees: agrees(fill), rows: [], lines: [], text: null,
    mark: stands ? "accept" : "unreached" };
  if (one) {
    const again = fill.again?.includes(place);
    said.title = now ? "Settled in this pass" : again ? "Masked again" : "Stays open";
    said.text = one.text;
    said.rows = [["its confidence", "c", one.c], ["bar", "", one.bar], ["rank", "", String(one.rank)]]
      .filter(([, , x]) => x !== null);
    said.lines.push(again ? "It is among the least sure of its block, and is masked again." : why(one, fill));
  } else {
    said.title = stands ? `Settled in pass ${stands.step}` : fill.cache === "kept" ? "Open" : "Masked";
    said.text = stands?.text ?? null;
    said.lines.push(stands ? `By rule: ${stands.rule}. It is final.`
      : fill.cache === "kept" ? "It comes later."
      : place >= fill.among[1] ? "Its block comes later: this pass decided nothing here."
      : fill.open ? "This pass decided nothing here."
      : "What this pass proposed was left out here.");
  }
  if (later && right < line.length)
    said.lines.push(`Its candidate is the token that was settled here${right ? ` since pass ${line[right].step}`
      : " in all passes"}.`);
  said.lines.push(...triedText(fill, place), ...vetoText(fill, place), ...bitsText(fill), fedText(fill));
  said.before = line.slice(-BEFORE).map((x, k, all) => ({ ...x, word: x.step === later?.step ? "settled"
    : line.length - all.length + k >= right ? "right" : "" }));
  return said;
}

/** Rows that a pass fed, and the age of the cached entries that it read with them. */
export const fedText = ({ fed: rows, stale, cache }) =>
  `The pass read ${plural(rows, "row")}${stale
    ? `, beside entries that were made ${stale === 1 ? "1 pass" : `${stale} passes`} before (${cache})` : ""}.`;

const quote = (text) => `“${visibleText(text)}”`;
const surprise = (c) => -Math.log2(Math.max(c, 1e-300));

/** The tokens that were tried, each on a canvas of its own. */
function triedText({ tried, at: [start] }, place) {
  if (!tried) return [];
  const where = tried.at === place ? "here" : `at place ${tried.at - start + 1}`;
  const list = tried.of.map(([, text, p, sure, score], k) => `${quote(text)} ${prob(p)}, `
    + `${plural(sure, "place")} sure behind it, score ${formatFixed(score)}${k === tried.won ? ", won" : ""}`);
  return [`Canvases read side by side: ${tried.of.length}. They differ ${where}: ${list.join("; ")}.`];
}

/** The tokens that the grammar refused at a place, and a text that the canvas can still become. */
function vetoText({ vetoes, witness }, place) {
  if (!vetoes) return [];
  const here = vetoes.filter(([at]) => at === place).map(([, , text, together]) =>
    `The grammar refused ${quote(text)} here: ${together
      ? "with what the pass settled before it, no text is left. The place stays open."
      : "no filling of the open places is one of its texts then."}`);
  const shown = witness.flatMap(textParts).map(([, part]) => part).join("");
  return [...here, `The canvas can still become ${shown ? `“${shown}”` : "the empty text"} (witness), `
    + `and ${plural(vetoes.length, "token")} ${vetoes.length === 1 ? "was" : "were"} refused in this pass.`];
}

/** Bits that the pass settled, and the maximum bits of the places that were taken for reaching their bar. */
function bitsText(fill) {
  const all = openPlaces(fill);
  if (!all || fill.bars == null) return [];
  const now = fill.now.map(([place]) => all.get(place)).filter(Boolean);
  const sure = now.filter((x) => x.bar > 0 && x.c >= x.bar);
  const sum = (list, of) => formatFixed(list.reduce((total, x) => total + of(x), 0));
  return [`Bits settled: ${sum(now, (x) => surprise(x.c))}, by ${plural(sure.length, "sure place")} `
    + `${sum(sure, (x) => surprise(x.c))} of at most ${sum(sure, (x) => surprise(x.bar))} (log2 of 1 / bar each).`];
}
