/* Beams: the hypotheses that a search keeps, with their texts, and which went on from which. */
import { shell } from "./card.js";
import { spelled } from "./characters.js";
import { numbersTable } from "./dart.js";
import { h, pool, s, say, see, set } from "./elements.js";
import { tokenOf } from "./marks.js";
import { plural } from "./numbers.js";
import { running } from "./tokens.js";

const LEVEL = 26, STRIDE = 16; // px between two hypotheses, and between two steps
const ENDED = 4; // hypotheses that ended, at most, the last ones
const LETTER = 8, BESIDE = 205, GROUP = 70; // px of a letter, of what stands beside a text, and of its group

/** Hypothesis k of step i and those that it went on from, oldest first, as far as the steps are there:
 *  [{step, rank, token: [id, text]}]. */
export function lineage(store, i, k) {
  const line = [];
  for (let at = i, rank = k; store.steps[at]?.beams; at--) {
    const { tokens, parents } = store.steps[at].beams;
    if (!tokens[rank]) break;
    line.push({ step: at, rank, token: tokens[rank] });
    rank = parents[rank];
  }
  return line.reverse();
}

/** Which hypothesis is the text of step i, the last: {rank, score} of that step, {ended}, one of those that ended, or
 *  null. */
export function winner(store, i) {
  const { made: text, beams } = store.steps[i], same = (tokens, from) =>
    tokens.length + from === text.length && tokens.every(([id], k) => id === text[from + k][0]);
  if (!text.length) return null;
  const rank = beams.tokens.findIndex((_, k) => same(lineage(store, i, k).map(({ token }) => token), 0));
  if (rank >= 0) return { rank, score: beams.scores[rank] };
  const matching = endedBy(store, i).filter(({ n, tail }) => n === text.length && same(tail, n - tail.length));
  return matching.length ? { ended: matching.reduce((best, one) => (one.score > best.score ? one : best)) } : null;
}

/** Hypotheses that ended up to step i: [{step, score, n, tail}], n tokens, the last of them in `tail`. */
function endedBy(store, i) {
  return store.steps.slice(0, i + 1).flatMap((step, at) =>
    (step?.beams?.ended ?? []).map((one) => ({ step: at, ...one })));
}

export const plainly = (text) => running(text).map(([, shown]) => shown.replaceAll("\n", "")).join("");
const nats = (score) => `${score.toFixed(2)} nats`.replace("-", "−");
/** The end of a text in `room` letters, in pieces of its tokens; the first is "…" where there was more. */
export function tailOf(texts, whole, room) {
  const pieces = spelled(texts).map(plainly);
  let from = pieces.length, left = room;
  while (from > 0 && (left -= pieces[from - 1].length) >= 0) from--;
  from = Math.min(from, pieces.length - 1);
  return { from, pieces: pieces.slice(from), before: from > 0 || !whole ? "…" : "" };
}

/** Rows of hypotheses, best first, with the lines of the last steps at their left; choose(k) when one is chosen. */
export function beamsView(choose) {
  const svg = s("svg", { class: "lines", "aria-hidden": "true" }), list = h("ol", { class: "beams" });
  const rows = pool(list, () => h("li", null, h("button", { type: "button" }, h("span", { class: "quiet" }),
    h("span", { class: "both" }), h("span"), h("b"))));
  list.addEventListener("click", ({ target }) =>
    target.closest("li") && choose([...list.children].indexOf(target.closest("li"))));
  const over = h("ul", { class: "over" }), left = h("ul", { class: "pruned" });
  const won = h("p", { class: "won", role: "status" });
  const element = h("div", { class: "hypotheses" }, h("div", { class: "lineage" }, svg, list), left, over, won);

  function line(k, { parents, scores, groups }, lines, both, room, { first, best, chosen }) {
    const own = lines[k], cut = tailOf(own.map(({ token }) => token[1]), own[0]?.step === 0, room);
    const [figures, alike, apart, last] = rows.at(k).firstChild.childNodes, split = Math.max(0, both - cut.from);
    const { pieces, before } = cut, group = groups ? `group ${groups[k] + 1}` : "";
    const from = [group, first ? "" : `from ${parents[k] + 1}`].filter(Boolean);
    say(figures, `${k + 1}  ${nats(scores[k])}  ${from.join(", ")}  `);
    say(alike, before + pieces.slice(0, Math.min(split, pieces.length - 1)).join(""));
    say(apart, pieces.slice(split, -1).join(""));
    say(last, pieces.at(-1) ?? "");
    set(rows.at(k).firstChild, { "aria-pressed": chosen,
      title: spelled(own.map(({ token }) => token[1])).map(plainly).join(""), class: best ? "best" : null });
  }
  /** Which went on from which: ranks of the last steps under each other, those that lead to a row that is kept darker,
   *  those of the chosen one in ink. */
  function draw(store, i, lines, chosen, back) {
    const begin = Math.max(0, i - back + 1), kept = new Set(lines.flat().map(({ step, rank }) => `${step} ${rank}`)),
      own = new Set((lines[chosen] ?? []).map(({ step, rank }) => `${step} ${rank}`)), strokes = [], dots = [];
    const at = (step, rank) => [(step - begin + 0.5) * STRIDE, (rank + 0.5) * LEVEL];
    let most = 0;
    for (let step = begin; step <= i; step++)
      store.steps[step]?.beams?.tokens.forEach((_, rank) => {
        const key = `${step} ${rank}`, kind = own.has(key) ? "own" : kept.has(key) ? "kept" : "left";
        const [x, y] = at(step, rank);
        most = Math.max(most, rank + 1);
        dots.push(s("circle", { class: kind, cx: x, cy: y, r: kind === "left" ? 2 : 3 }));
        if (step === begin) return;
        const [px, py] = at(step - 1, store.steps[step].beams.parents[rank]), middle = (px + x) / 2;
        strokes.push(s("path", { class: kind, d: `M${px},${py}C${middle},${py} ${middle},${y} ${x},${y}` }));
      });
    const order = (one) => ["left", "kept", "own"].indexOf(one.getAttribute("class"));
    svg.replaceChildren(...strokes.sort((a, b) => order(a) - order(b)), ...dots);
    set(svg, { width: (i - begin + 1) * STRIDE, height: most * LEVEL });
  }
  return {
    element,
    /** width: px; chosen: a hypothesis, from 0. */
    draw(store, i, chosen, width) {
      const { beams, made: text } = store.steps[i], lines = beams.tokens.map((_, k) => lineage(store, i, k));
      const longest = Math.max(0, ...lines.map((line) => line.length));
      const back = width < 560 ? 4 : 8, columns = Math.min(i + 1, back) * STRIDE;
      const room = Math.max(8, Math.floor((width - columns - BESIDE - (beams.groups ? GROUP : 0)) / LETTER));
      let both = 0; // tokens that all begin with
      while (both < longest && lines.every((line) => line[both]?.token[0] === lines[0][both].token[0])) both++;
      const best = text.length ? winner(store, i) : null;
      lines.forEach((_, k) =>
        line(k, beams, lines, both, room, { first: i === 0, best: best?.rank === k, chosen: k === chosen }));
      rows.trim(lines.length);
      draw(store, i, lines, chosen, back);
      see(left, beams.left);
      left.replaceChildren(...(beams.left ?? []).map(([parent, score, token]) => {
        const own = [...(i ? lineage(store, i - 1, parent) : []).map((one) => one.token), token];
        const { pieces, before } = tailOf(own.map(([, text]) => text), true, room);
        const figures = `left  ${nats(score)}  ${i ? `from ${parent + 1}  ` : ""}`;
        return h("li", null, h("span", { class: "quiet" }, figures), before, pieces.join(""));
      }));
      const ended = endedBy(store, i).slice(-ENDED);
      see(over, ended.length);
      over.replaceChildren(...ended.map(({ step, score, n, tail }) => {
        const { pieces, before } = tailOf(tail.map(([, text]) => text), n === tail.length, room);
        const figures = `ended in step ${step}  ${nats(score)}  ${plural(n, "token")}  `;
        return h("li", null, h("span", { class: "quiet" }, figures), before, pieces.join(""));
      }));
      const which = best?.ended ? `the hypothesis that ended in step ${best.ended.step}`
        : `hypothesis ${best?.rank + 1}`;
      const drawn = store.head.parts?.strategy?.uses?.includes("sampler"), word = drawn ? "The text" : "Won";
      const sum = best && nats((best.ended ?? best).score);
      say(won, best ? `${word}: ${which}, ${sum} over ${plural(text.length, "token")}.` : "");
      see(won, best);
    },
  };
}

/** What gave a hypothesis its score in this step: the model alone, or n-grams beside it. */
function growth({ scores, mixed }, k, from) {
  const own = from === null ? null : scores[k] - from;
  if (!mixed)
    return { rows: [["this token", "ln p", own === null ? null : own.toFixed(3)],
      ["", "p", own === null ? null : Math.exp(own)]],
    says: "Every hypothesis is extended by every token; the best sums of log-probabilities stay. Nothing is drawn." };
  const [p, q, share] = mixed[k];
  return { rows: [["this token", "p, the model", p], ["", "n-grams", q === 0 ? "unknown" : q],
    ["", "mixed, nats", own === null ? null : own.toFixed(3)], ["", "share of the next row", share]],
  says: "The model gives all drafts one distribution; n-grams tell them apart. The next pass reads one row: "
    + "the mean of the last tokens' embeddings, by these shares." };
}
/** A hypothesis of beam search. */
export function beamsCard(store, i, step, at) {
  const { parents, scores, tokens } = step.beams, k = Math.min(tokens.length - 1, Math.max(0, at - 1)),
    before = store.steps[i - 1]?.beams;
  if (!tokens.length)
    return [shell("", "No hypothesis goes on", "", "all texts have ended", { agrees: null })];
  const from = before ? before.scores[parents[k]] : i === 0 ? 0 : null, { rows, says } = growth(step.beams, k, from);
  const { groups, fines } = step.beams;
  return [
    shell("", `Hypothesis ${k + 1} of ${tokens.length}`, tokens[k] ? tokenOf(tokens[k][1]) : "",
      before ? `goes on from hypothesis ${parents[k] + 1}` : "", { agrees: null }),
    numbersTable([
      ["so far", "score before, nats", from === null ? null : from.toFixed(3)],
      ...rows,
      ["together", "score, nats", scores[k]?.toFixed(3)],
      ...(groups ? [[`group ${groups[k] + 1}`, "fined, nats", fines?.[k]?.toFixed(3)]] : []),
    ]),
    h("p", { class: "line" },
      store.head.parts?.strategy?.uses?.includes("sampler") ? "Each text is drawn by itself; the first is the run's."
        : groups ? `${says} Each group ranks its own, less a fine for what groups before it chose in the same step.`
        : says),
  ];
}
