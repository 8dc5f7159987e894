/* position_table: the table next to the map: when each position came, who keeps it, and why it left. */
import { button, formatCount, h } from "../scope.js";
import { ask, panes } from "../runs/runs.js";
import { refuse, table, token } from "./parts.js";

const LINES = 64; // of the table

/** why: the line that shows a refusal. */
export function positionTable(shared, why) {
  const element = h("div");
  let from = 0;
  element.hidden = true;

  async function fill() {
    const { map, now, query } = shared;
    const mine = `${panes[0].id} ${now()} ${from}`;
    from = Math.min(from, Math.max(0, Math.floor((map.length - 1) / LINES) * LINES));
    try {
      const { rows } = await ask(query("/lives", { step: now(), from, many: LINES }));
      if (mine !== `${panes[0].id} ${now()} ${from}` || element.hidden) return;
      draw(rows);
    } catch (error) {
      refuse(why, String(error.message));
    }
  }
  function draw(rows) {
    const { map, now } = shared, all = map.layers * map.heads - map.cut.length, last = from + rows.length - 1;
    const when = (step) => (step === null ? "–" : step < 0 ? "with the prompt" : `step ${step}`);
    const brief = (letter) => (map.words[letter] || "").split(":")[0];
    const flip = (word, by, off) => button(word, () => ((from += by), fill()), { "aria-disabled": String(off) });
    element.replaceChildren(
      table(`Lives of the positions ${from} to ${last} by step ${now()}`,
        ["position", "token", "came", "kept by", "left first", "left last", "why"],
        rows.map((x) => [String(x.position), token(x.text), when(x.came),
          `${x.kept} of ${all}${x.absent > map.cut.length ? `, absent in ${x.absent - map.cut.length}` : ""}`,
          when(x.first),
          when(x.last), x.why ? `${x.why}, ${brief(x.why)}` : "–"])),
      h("p", { class: "row" }, flip("earlier positions", -LINES, from === 0),
        flip("later positions", LINES, from + LINES >= map.length),
        h("span", { class: "quiet" }, `${from} to ${last} of ${formatCount(map.length)}`))
    );
  }
  return { element, fill, reset: () => (from = 0) };
}
