/* What the card says of a place of a canvas, from the record alone. */
import { follows, offered, proposed, settled } from "./fills.js";
import { plural } from "./numbers.js";
import { bitsSay, triedSay, vetoesSay } from "./triesays.js";

const BEFORE = 8; // passes that are listed

/** Why a place was settled, or not, in one sentence. */
function why(one, { count, order, anchors, at: [start] }) {
  const ranked = order ? "places in an order drawn by chance" : "places with the highest confidence";
  const { rule, rank, bar } = one;
  if (rule === "scheduled")
    return `The schedule settles ${count} in this pass: the ${ranked}. This is number ${rank}.`;
  if (rule === "best") return "The surest open place is settled in every pass, whatever its confidence.";
  if (rule === "sure") return "Its confidence reaches the bar.";
  if (rule === "near") return `An anchor near it lowered its bar (${(anchors ?? []).map((x) =>
    `place ${x - start + 1}`).join(", ")}), and its confidence reaches that.`;
  if (rule === "factor")
    return `The ${count} surest places: the largest n for which (n + 1)(1 − c) stays below the factor.`;
  if (rule === "row") return "Each row that is alive is written one cell on in a pass.";
  if (rule === "group") return "All cells of a group are drawn in one pass, and none of them sees another.";
  if (rule === "explored") return "It was the most uncertain place, and tokens were tried here.";
  if (rule) return `It was settled: ${rule}.`;
  return `It stays open: it is number ${rank} of the ${ranked}${bar === null ? "" : ", and below its bar"}; `
    + `${plural(count, "place")} ${count === 1 ? "is" : "are"} settled by rank.`;
}

/** Of a place, from 1: {title, mark, text, where, agrees, rows, lines, before}: title, numbers and sentences of the
 *  card, and what was proposed there in the passes so far. */
export function placeSays(store, i, number) {
  const { fill } = store.steps[i], [start, length] = fill.at, place = start + number - 1;
  const one = offered(fill)?.get(place), stands = settled(store, i).get(place), now = stands?.step === i;
  const later = settled(store, store.count - 1).get(place), line = proposed(store, i, place);
  // since when it was always what was committed in the end
  let right = line.length;
  while (right && later && line[right - 1].token === later.token) right--;
  const said = { where: `place ${number} of ${length}`, agrees: follows(fill), rows: [], lines: [], text: null,
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
    said.lines.push(stands ? `By rule: ${stands.rule}. It stands.`
      : fill.cache === "kept" ? "It comes later."
      : place >= fill.among[1] ? "Its block comes later: this pass decided nothing here."
      : fill.open ? "This pass decided nothing here."
      : "What this pass proposed was left out here.");
  }
  if (later && right < line.length)
    said.lines.push(`Its candidate is the token that was settled here${right ? ` since pass ${line[right].step}`
      : " in all passes"}.`);
  said.lines.push(...triedSay(fill, place), ...vetoesSay(fill, place), ...bitsSay(fill), fedSays(fill));
  said.before = line.slice(-BEFORE).map((x, k, all) => ({ ...x, word: x.step === later?.step ? "settled"
    : line.length - all.length + k >= right ? "right" : "" }));
  return said;
}

/** Rows that a pass fed, and how old the entries are that it read beside them. */
export const fedSays = ({ fed: rows, stale, cache }) =>
  `The pass read ${plural(rows, "row")}${stale
    ? `, beside entries that were made ${stale === 1 ? "1 pass" : `${stale} passes`} before (${cache})` : ""}.`;
