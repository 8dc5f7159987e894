/* trainings: the heads that decodescope train head trains on this machine, and how far their drafts get on held-out
 * prompts. The list is read again while a training is not over. */
import { ask } from "../runs/runs.js";
import { formatCount, h, prob, s } from "../scope.js";
import { current } from "../shared/address.js";
import { folderReading } from "../shared/folder_reading.js";

const WIDE = 180, HIGH = 48, EDGE = 4; // px
const AGAIN = 5000; // ms

/** Small lines: at each position of a draft the share that is accepted, over the tokens that were read. */
function drawAcceptance({ tokens, accepted, wanted }) {
  const most = Math.max(wanted, tokens.at(-1));
  const x = (count) => EDGE + (WIDE - 2 * EDGE) * (count / most);
  const y = (share) => HIGH - EDGE - (HIGH - 2 * EDGE) * share;
  const lines = accepted[0].map((_, position) => s("path", { class: "line", "data-position": position,
    d: tokens.map((count, k) => `${k ? "L" : "M"}${x(count)},${y(accepted[k][position])}`).join("") }));
  const dots = accepted.at(-1).map((share) => s("circle", { cx: x(tokens.at(-1)), cy: y(share), r: 2.5 }));
  const words = accepted.at(-1).map((share, k) => `position ${k + 1} ${prob(share)}`).join(", ");
  return s("svg", { width: WIDE, height: HIGH, role: "img", "aria-label": `accepted: ${words}` },
    s("path", { class: "axis", d: `M${EDGE},${EDGE}V${HIGH - EDGE}H${WIDE - EDGE}` }), ...lines, ...dots);
}

/** The cells of a training behind its name. */
function cells(one) {
  if (one.trouble) return [h("td", { colspan: 5, class: "wide" }, one.trouble)];
  const last = one.tokens.length - 1;
  if (last < 0) return [h("td", { colspan: 4 }, "nothing was measured yet"), h("td", null, one.model)];
  const ends = one.finished ? ", finished" : "";
  return [drawAcceptance(one), `${formatCount(one.tokens[last])} of ${formatCount(one.wanted)}${ends}`,
    one.loss[last].toFixed(2), `${one.accepted[last].map(prob).join(", ")}; ${one.tokens_per_pass[last].toFixed(2)}`,
    one.model].map((x) => h("td", null, x));
}

/** The list; it is hidden if there are none. */
export function trainings() {
  const rows = h("tbody");
  const heads = ["head", "accepted so far", "tokens read", "loss", "accepted by position; tokens a pass", "model"];
  const element = h("section", { class: "trainings", "aria-label": "Heads in training" }, h("header", null,
    h("h1", null, "Heads in training"),
    h("span", { class: "quiet" }, "measured on held-out prompts by decodescope train head")),
  h("div", { class: "scroll" }, h("table", null,
    h("thead", null, h("tr", null, heads.map((x) => h("th", { scope: "col" }, x)))), rows)));
  element.hidden = true;
  let waits = 0, drawnAs = "";

  async function look() {
    clearTimeout(waits);
    const answer = await ask("ds/trainings").catch(() => null);
    if (!answer) return;
    element.hidden = !answer.rows.length;
    const known = JSON.stringify(answer.rows);
    if (known !== drawnAs) {
      drawnAs = known;
      rows.replaceChildren(...answer.rows.map((one) => h("tr", null,
        h("th", { scope: "row" }, one.name, one.folder ? folderReading(one.folder) : null), cells(one))));
    }
    const going = answer.rows.some((one) => !one.finished && !one.trouble);
    clearTimeout(waits);
    if (going && current() === "library") waits = setTimeout(look, AGAIN);
  }
  return { element, look };
}
