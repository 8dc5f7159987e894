/* Threads: the texts that a pass writes side by side, as lanes with their forks, a column per round. */
import { numbersTable } from "../card/arrow.js";
import { shell } from "../card/card.js";
import { oneLine, joinTokens, tailOf } from "../text/characters.js";
import { h, pool, s, say, see, set } from "../shared/elements.js";
import { bring } from "../shared/extras.js";
import { tokenOf } from "../shared/marks.js";
import { plural } from "../shared/numbers.js";

const LANE = 26, ROUND = 12, GLYPH = 8.5; // px of a lane, of a round, of a letter

/** The threads up to step i, a child after its parent: [{number, parent, at, given, many, way, why, ended, tokens:
 *  [{step, token}]}]; way: tokens from the prompt to its first. */
export function threadsOf(store, i) {
  const all = new Map(), under = new Map(), lanes = [];
  for (let step = 0; step <= i; step++) {
    const round = store.steps[step]?.threads;
    if (!round) continue;
    for (const [number, parent, at, given, many] of round.begun) {
      all.set(number, { number, parent, at, given, many, way: parent < 0 ? 0 : (all.get(parent)?.way ?? 0) + at,
        tokens: [], why: null, ended: null });
      under.set(parent, [...(under.get(parent) ?? []), number]);
    }
    round.alive.forEach((number, k) => all.get(number)?.tokens.push({ step, token: round.tokens[k] }));
    for (const [number, why] of round.ended) Object.assign(all.get(number) ?? {}, { why, ended: step });
  }
  const due = [...(under.get(-1) ?? [])].reverse();
  while (due.length) {
    const number = due.pop();
    lanes.push(all.get(number));
    due.push(...[...(under.get(number) ?? [])].reverse());
  }
  return lanes;
}

/** The cost of the threads: rounds, tokens on the longest path, tokens of all. */
export function threadCounts(lanes) {
  const steps = new Set(lanes.flatMap(({ tokens }) => tokens.map(({ step }) => step)));
  return { rounds: steps.size, longest: Math.max(0, ...lanes.map(({ way, tokens }) => way + tokens.length)),
    sum: lanes.reduce((sum, { tokens }) => sum + tokens.length, 0) };
}

/** Why a thread ended, in the words of its declaration; "" while it continues. */
export const whyOf = ({ why }, form) => (why ? form.ends?.[why] ?? why : "");

/** Lanes of the last rounds at the left, texts at the right; choose(k): a thread is chosen that wrote in the step. */
export function threadsView(choose) {
  const svg = s("svg", { class: "lines", "aria-hidden": "true" }), list = h("ol", { class: "beams threads" });
  const rows = pool(list, () => h("li", null, h("button", { type: "button" }, h("span", { class: "quiet" }), h("span"),
    h("b"))));
  let alive = [], lanes = [], form = null;
  list.addEventListener("click", ({ target }) => {
    const row = target.closest("li"), k = row ? alive.indexOf(lanes[[...list.children].indexOf(row)].number) : -1;
    if (k >= 0) choose(k);
  });
  const sums = h("p", { class: "took", role: "status" });
  const element = h("div", { class: "hypotheses" }, h("div", { class: "lineage" }, svg, list), sums);

  function line(k, lane, room, chosen) {
    const [figures, text, last] = rows.at(k).firstChild.childNodes, { number, parent, tokens, why } = lane;
    const texts = tokens.map(({ token }) => token[1]), writes = alive.includes(number);
    const said = `${number}  ${parent < 0 ? "" : `from ${parent}  `}${why ? `${whyOf(lane, form)}  ` : ""}`;
    say(figures, said);
    const { pieces, before } = tailOf(texts, true, Math.max(8, room - said.length));
    say(text, before + (writes ? pieces.slice(0, -1) : pieces).join(""));
    say(last, writes ? pieces.at(-1) ?? "" : "");
    set(rows.at(k).firstChild, { "aria-pressed": chosen, "aria-disabled": writes ? null : true,
      title: joinTokens(texts).map(oneLine).join("") });
  }
  /** The lanes of `back` rounds: a dot per token, a curve from where a thread forked, a bar where it ended. */
  function draw(i, chosen, back) {
    const begin = Math.max(0, i - back + 1), rank = new Map(lanes.map(({ number }, k) => [number, k]));
    const x = (step) => (step - begin + 0.5) * ROUND, y = (number) => (rank.get(number) + 0.5) * LANE, drawn = [];
    for (const lane of lanes) {
      const { number, parent, tokens, ended } = lane, level = y(number), first = tokens[0]?.step;
      const kind = number === chosen ? "own" : alive.includes(number) ? "kept" : "left";
      const seen = tokens.filter(({ step }) => step >= begin);
      if (!seen.length) continue;
      const path = (d) => drawn.push(s("path", { class: kind, d }));
      path(`M${first < begin ? 0 : x(first)},${level}H${x(seen.at(-1).step)}`);
      if (parent >= 0 && first > begin && rank.has(parent)) {
        const [px, py] = [x(first - 1), y(parent)];
        path(`M${px},${py}C${px},${level} ${px},${level} ${x(first)},${level}`);
      }
      for (const { step } of seen) drawn.push(s("circle", { class: kind, cx: x(step), cy: level, r: 3 }));
      if (ended !== null) path(`M${x(ended) + 4.5},${level - 6}V${level + 6}`);
    }
    svg.replaceChildren(...drawn);
    set(svg, { width: (i - begin + 1) * ROUND, height: lanes.length * LANE });
  }
  return {
    element,
    /** width: px; chosen: a thread that wrote in the step, by its place among them, from 0. */
    draw(store, i, chosen, width) {
      lanes = threadsOf(store, i);
      ({ alive, form } = store.steps[i].threads);
      const back = Math.max(6, Math.floor((width * (width < 560 ? 0.3 : 0.45)) / ROUND));
      const room = Math.floor((width - Math.min(i + 1, back) * ROUND - 35) / GLYPH);
      lanes.forEach((lane, k) => line(k, lane, room, lane.number === alive[chosen]));
      rows.trim(lanes.length);
      draw(i, alive[chosen], back);
      const { rounds, longest, sum } = threadCounts(lanes);
      say(sums, `${plural(rounds, "round")}, a pass each; critical path ${plural(longest, "token")}, sum `
        + `${plural(sum, "token")}.`);
      see(sums, lanes.length);
    },
  };
}

/** A thread that wrote in this step. */
function threadsCard(store, i, step, at) {
  const { alive, tokens } = step.threads, k = Math.min(alive.length - 1, Math.max(0, at - 1));
  const lanes = threadsOf(store, i), lane = lanes.find(({ number }) => number === alive[k]);
  const { rounds, longest, sum } = threadCounts(lanes), { form } = step.threads, why = whyOf(lane ?? {}, form);
  const { parent, given = [], many = 0, at: behind = 0, tokens: own = [] } = lane ?? { parent: -1 };
  const before = given.map(([, text]) => text).join("");
  return [
    shell("", `Thread ${alive[k]}, one of ${alive.length} that wrote`, tokens[k] ? tokenOf(tokens[k][1]) : "",
      parent < 0 ? "behind the prompt" : `behind ${plural(behind, "token")} of thread ${parent}`, { agrees: null }),
    numbersTable([
      ["this thread", "tokens written", `${own.length}`],
      ["", "rounds", own.length ? `${own[0].step} to ${own.at(-1).step}` : "–"],
      ["", "given before", `${many}`],
      ["run", "rounds, passes", `${rounds}`],
      ["", "critical path", `${longest}`],
      ["", "sum of all", `${sum}`],
    ]),
    many ? h("p", { class: "line" }, `It was given ${many > given.length ? "…" : ""}${before}`) : null,
    h("p", { class: "line" }, why ? `It ended with this step: ${why}.`
      : form.card),
  ].filter(Boolean);
}

bring("threads", { threadsView, threadsCard });
