/* heads: what each KV head holds after the step, layer by layer, beside what the policy has settled for it: how many
 * entries it is to hold, and of which kind it is. */
import { grouped, h, plural, s, toggle } from "../scope.js";
import { quiet, section, table } from "./parts.js";

const TALL = 18, LEFT = 34, MOST = 150; // px of a row, of its name, and of a head at most

export function headsView(shared) {
  const picture = h("div", { class: "picture" }), twin = h("div", { hidden: "" }), note = quiet();
  const asTable = toggle("Show as table", (on) => ((twin.hidden = !on), (picture.hidden = on), draw()));
  const element = section("heads", [h("h2", null, "Head by head"), h("span", { class: "row end" }, asTable)], picture,
    twin, note);
  element.hidden = true;
  function draw() {
    const { map } = shared;
    element.hidden = !map?.by_head;
    if (element.hidden) return;
    const { held, due, kinds, kind } = map.by_head, said = (row) => (kind ? kinds[kind[row]] ?? "" : "");
    const wide = Math.min(MOST, Math.floor((shared.wide() - LEFT) / map.heads)), bar = wide - 6;
    const most = Math.max(1, map.length, ...(due ?? []).map((x) => x ?? 0)), to = (x) => (x / most) * bar;
    const words = held.map((count, row) => `${shared.rowName(row)}: ${plural(count, "position")} held`
      + `${due?.[row] != null ? `, ${grouped(due[row])} settled` : ""}${said(row) ? `, ${said(row)}` : ""}`);
    const cells = held.map((count, row) => {
      const x = LEFT + (row % map.heads) * wide, y = Math.floor(row / map.heads) * TALL, at = due?.[row] ?? null;
      return s("g", { class: kind?.[row] === 0 ? "first" : "" }, s("title", null, words[row]),
        s("rect", { class: "room", x, y, width: bar, height: TALL - 6 }),
        s("rect", { class: "fill", x, y, width: Math.max(1, to(count)), height: TALL - 6 }),
        at === null ? [] : s("path", { class: "due", d: `M${x + to(at)},${y - 2}v${TALL - 2}` }));
    });
    const names = [...Array(map.layers).keys()].map((layer) =>
      s("text", { x: 0, y: layer * TALL + 10 }, `L${layer}`));
    picture.replaceChildren(s("svg", { width: LEFT + map.heads * wide, height: map.layers * TALL + 4, role: "img",
      "aria-label": `what each of ${plural(held.length, "KV head")} holds after step ${map.step}` }, names, cells));
    note.textContent = sentence(map);
    if (!twin.hidden)
      twin.replaceChildren(table(`What each head holds after step ${map.step}`,
        ["layer, head", "held", ...(due ? ["settled"] : []), ...(kind ? ["kind"] : [])],
        held.map((count, row) => [shared.rowName(row), grouped(count),
          ...(due ? [due[row] === null ? "–" : grouped(due[row])] : []), ...(kind ? [said(row)] : [])])));
  }
  return { element, draw };
}

/** How the picture is read, and how many heads are of each kind. */
function sentence({ length, once, by_head: { due, kinds, kind } }) {
  const count = (k) => kind.filter((x) => x === k).length;
  const some = due?.some((x) => x !== null);
  return [
    `A row is a layer, a bar in it a KV head: filled by the positions that it holds, of the ${grouped(length)} read.`,
    some ? `The line: how many the policy has settled for the head${once ? ", of the prompt" : ""}.` : "",
    kind ? `Kinds of heads: ${kinds.map((name, k) => `${name} ${count(k)}`).join(", ")}; ${kinds[0]} ones are stronger.`
      : "",
  ].filter(Boolean).join(" ");
}
