/* heads: what each KV head holds after the step, layer by layer, compared with what the policy has settled for it:
 * how many entries it is to hold, and of which kind it is. */
import { formatCount, h, plural, s, toggle } from "../scope.js";
import { quiet, section, table } from "./parts.js";

const TALL = 18, LEFT = 34, MOST = 150, LEAST = 8; // px of a row, of its name, and of a head at most and at least
const DRAWN = 1024; // heads at most; with more, only the table is shown
const NAMED = 6; // kinds

export function headsView(shared) {
  const picture = h("div", { class: "picture" }), twin = h("div", { hidden: "" }), note = quiet();
  let listed = false;
  const asTable = toggle("Show as table", (on) => ((listed = on), draw()));
  const element = section("heads", [h("h2", null, "Head by head"), h("span", { class: "row end" }, asTable)], picture,
    twin, note);
  element.hidden = true;
  function draw() {
    const { map } = shared;
    element.hidden = !map?.by_head;
    if (element.hidden) return;
    const { held, due, kinds, kind } = map.by_head, said = (row) => (kind ? kinds[kind[row]] ?? "" : "");
    const many = held.length > DRAWN;
    asTable.hidden = many;
    picture.hidden = many || listed;
    twin.hidden = !picture.hidden;
    if (!many) picture.replaceChildren(drawHeads(shared, said));
    note.textContent = sentence(map, many);
    if (!twin.hidden)
      twin.replaceChildren(table(`What each head holds after step ${map.step}`,
        ["layer, head", "held", ...(due ? ["settled"] : []), ...(kind ? ["kind"] : [])],
        held.map((count, row) => [shared.rowName(row), formatCount(count),
          ...(due ? [due[row] === null ? "–" : formatCount(due[row])] : []), ...(kind ? [said(row)] : [])])));
  }
  return { element, draw };
}

/** A bar for each head, as long as the text read so far; a mark shows the settled number of entries. said(row):
 *  its kind. */
function drawHeads({ map, wide: room, rowName }, said) {
  const { held, due, kind } = map.by_head;
  const wide = Math.max(LEAST, Math.min(MOST, Math.floor((room() - LEFT) / map.heads))),
    bar = Math.max(1, wide - Math.min(6, wide / 4)),
    to = (x) => (Math.min(x, map.length) / Math.max(1, map.length)) * bar;
  const cells = held.map((count, row) => {
    const x = LEFT + (row % map.heads) * wide, y = Math.floor(row / map.heads) * TALL + 2, at = due?.[row] ?? null;
    const words = `${rowName(row)}: ${plural(count, "position")} held`
      + `${at !== null ? `, ${formatCount(at)} settled` : ""}${said(row) ? `, ${said(row)}` : ""}`;
    return s("g", { class: kind?.[row] === 0 ? "first" : "" }, s("title", null, words),
      s("rect", { class: "room", x, y, width: bar, height: TALL - 6 }),
      s("rect", { class: "fill", x, y, width: Math.max(1, to(count)), height: TALL - 6 }),
      at === null ? [] : s("path", { class: "due", d: `M${x + to(at)},${y - 2}v${TALL - 2}` }));
  });
  const names = [...Array(map.layers).keys()].map((layer) => s("text", { x: 0, y: layer * TALL + 12 }, `L${layer}`));
  return s("svg", { width: LEFT + map.heads * wide, height: map.layers * TALL + 6, role: "img",
    "aria-label": `what each of ${plural(held.length, "KV head")} holds after step ${map.step}` }, names, cells);
}

/** How to read the picture, and how many heads there are of each kind. many: there is no picture. */
function sentence({ length, once, by_head: { held, due, kinds, kind } }, many) {
  const some = due?.some((x) => x !== null), settled = once ? ", of the prompt" : "";
  return [
    many ? `${plural(held.length, "KV head")}, too many to draw.`
      : "A row is a layer, a bar in it a KV head: filled by the positions that it holds, of the "
        + `${formatCount(length)} read.`,
    some && !many ? `The line: how many the policy has settled for the head${settled}.` : "",
    kind ? `Kinds of heads: ${kindCounts(kinds, kind)}${many ? "" : `; ${kinds[0]} ones are stronger`}.` : "",
  ].filter(Boolean).join(" ");
}

/** How many heads there are of each kind, the first kinds by name. */
function kindCounts(kinds, kind) {
  const count = kinds.map(() => 0), rest = kinds.length - NAMED;
  for (const k of kind) count[k]++;
  return kinds.slice(0, NAMED).map((name, k) => `${name} ${formatCount(count[k])}`).join(", ")
    + (rest > 0 ? ` and ${plural(rest, "more kind")}` : "");
}
