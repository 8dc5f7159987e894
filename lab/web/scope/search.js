/* Search: a tree of beginnings of texts as it grew, text by text, and the terms by which each was chosen. */
import { treeLines } from "./branches.js";
import { shell } from "./card.js";
import { button, h, pool, s, say, see, set } from "./elements.js";
import { bring } from "./extras.js";
import { tokenOf } from "./marks.js";
import { percent, plural, prob, share } from "./numbers.js";
import { running } from "./tokens.js";

const ROW_PX = 26, REWARD_PX = 46; // px of a row, and of the rewards
const MOST_NODES = 96, MOST_CHOICES = 4; // rows, and choices of a card, at most
const TEXT_MS = 700; // of a text that is played
const SHUT = { exhausted: "nothing left behind it", stop_token: "text ends", max_new_tokens: "text is full",
  context_full: "text is full" };

const rewardOf = ([, passed]) => (passed.length ? passed.reduce((sum, ok) => sum + ok, 0) / passed.length : 0);

/** The candidates of a node by their scores, as P-UCB has them: [{id, text, p, node, seen, q, more, sum, closed}]. */
function scored({ nodes, c, base }, { visits, values, closed, kids }, at) {
  const n = visits[at], beta = Math.log((n + base + 1) / base) + c;
  return nodes[at][4].map(([id, text, p]) => {
    const node = kids[at].get(id), seen = node ? visits[node] : 0, q = node ? values[node] : 0;
    const more = (beta * p * Math.sqrt(Math.log(n))) / (1 + seen), shut = node ? closed[node] : "";
    return { id, text, p, node, seen, q, more, sum: shut ? -Infinity : q + more, closed: shut };
  });
}

const grownOnce = new WeakMap(); // a search -> what it was behind each text that was looked at
/** The search behind its first `upto` texts, made again from candidates and rewards: {visits, values, closed, kids} by
 *  node, `best`: the text that was the best so far, `walk`: the choices on the way to the last node,
 *  [{at, rows, taken}], `agrees`: whether each node is the one that was due. */
export function grown(search, upto) {
  const all = grownOnce.get(search) ?? new Map();
  grownOnce.set(search, all);
  if (all.has(upto)) return all.get(upto);
  const { nodes, texts } = search, now = { visits: [1], values: [0], closed: [""], kids: [new Map()], best: 0,
    agrees: true, walk: [] };
  for (let born = 1; born <= upto; born++) {
    const [parent, id, , why, offers] = nodes[born], reward = rewardOf(texts[born - 1]);
    now.walk = [];
    for (let at = 0; at !== undefined && nodes[at][4].length;) {
      const rows = scored(search, now, at), sums = rows.map((row) => row.sum), k = sums.indexOf(Math.max(...sums));
      now.walk.push({ at, rows, taken: k });
      at = rows[k].node;
    }
    const last = now.walk.at(-1);
    now.agrees &&= last?.at === parent && last.rows[last.taken].id === id;
    now.kids[parent].set(id, born);
    now.kids.push(new Map());
    now.visits.push(0), now.values.push(0), now.closed.push(offers.length ? "" : why);
    for (let at = born; at >= 0; [at] = nodes[at]) {
      now.visits[at]++;
      now.values[at] = Math.max(now.values[at], reward);
      const mine = now.kids[at];
      if (!now.closed[at] && nodes[at][4].every(([x]) => mine.has(x) && now.closed[mine.get(x)]))
        now.closed[at] = "exhausted";
    }
    if (!now.best || reward > rewardOf(texts[now.best - 1])) now.best = born;
  }
  if (all.size > 64) all.clear();
  all.set(upto, now);
  return now;
}

/** From the first node to this one. */
function way({ nodes }, node) {
  const line = [];
  for (let at = node; at >= 0; [at] = nodes[at]) line.unshift(at);
  return line;
}
/** A text in one line. */
const inline = (text) => running(text).map(([, shown]) => shown.replaceAll("\n", "")).join("");
/** The text of a node, up to it. */
const begun = (search, node) => way(search, node).slice(1).map((at) => inline(search.nodes[at][2])).join("");
/** A whole text: up to its node, and what followed. */
const textOf = (search, node) => begun(search, node) + inline(search.texts[node - 1][0]);

/** The nodes that are drawn, each behind its parent, siblings with the likeliest first: [{node, depth}]; of a large
 *  tree the first ones, and those that lead to `must`. */
function laid(search, { kids }, upto, must) {
  const kept = new Set(must.flatMap((node) => way(search, node)));
  for (let node = 0; node <= upto && kept.size < MOST_NODES; node++) kept.add(node);
  const rows = [], due = [[0, 0]];
  while (due.length) {
    const [node, depth] = due.pop();
    rows.push({ node, depth });
    const mine = search.nodes[node][4].map(([id]) => kids[node].get(id)).filter((kid) => kept.has(kid));
    due.push(...mine.reverse().map((kid) => [kid, depth + 1]));
  }
  return rows;
}

/** The rewards of all texts as dots, and the best so far as a line. */
function drawRewards(svg, { texts, count }, upto, width) {
  const x = (k) => 60 + ((k - 0.5) / count) * (width - 60), best = [];
  const y = (reward) => REWARD_PX - 8 - reward * (REWARD_PX - 16);
  let most = 0;
  const dots = texts.slice(0, upto).map((one, k) => {
    const reward = rewardOf(one), better = k === 0 || reward > most;
    most = Math.max(most, reward);
    best.push(`${k ? "H" : "M"}${k ? x(k + 1) : `${x(1)},${y(most)}`}${k ? `V${y(most)}` : ""}`);
    return s("circle", { class: better ? "best" : null, cx: x(k + 1), cy: y(reward), r: better ? 4 : 2.5 });
  });
  set(svg, { width, height: REWARD_PX });
  svg.replaceChildren(s("path", { class: "scale", d: `M52,${y(0)}H${width}M52,${y(1)}H${width}` }),
    s("path", { class: "best", d: best.join("") }), ...dots,
    ...[[1, "all tests"], [0, "none"]].map(([at, word]) => s("text", { class: "sub", x: 0, y: y(at) + 4 }, word)));
}

/** Writes one row of the tree: of a text, or of the empty beginning. */
function writeRow(row, { node, depth }, search, state, { upto, chosen }) {
  const [n, meter, figure, words, why] = row.firstChild.childNodes, [before, token, rest] = words.childNodes;
  const text = node ? search.texts[node - 1] : null, reward = text && rewardOf(text), shut = state.closed[node];
  const best = node > 0 && node === state.best, fresh = node > 0 && node === upto && upto < search.count;
  say(n, node ? String(node) : "");
  set(meter, { style: `visibility:${node ? "visible" : "hidden"}` });
  set(meter.firstChild, { style: `width:${(100 * (reward ?? 0)).toFixed(0)}%` });
  say(figure, node ? percent(reward) : "");
  say(before, node ? begun(search, search.nodes[node][0]) : "the empty beginning");
  say(token, node ? inline(search.nodes[node][2]) : "");
  say(rest, text ? inline(text[0]) : "");
  say(why, [best ? "★ best so far" : "", fresh ? "new" : "", shut ? `closed: ${SHUT[shut] ?? shut}` : ""]
    .filter(Boolean).join(", "));
  set(row, { class: best ? "best" : shut ? "shut" : null });
  set(row.firstChild, { "aria-pressed": node > 0 && node === chosen, "aria-disabled": node ? null : true,
    title: node ? textOf(search, node) : "", "aria-label": node ? `text ${node}, depth ${depth}, `
      + `${percent(reward)} of the tests: ${textOf(search, node)}` : null });
}
/** Draws the lines of the tree beside its rows. */
function drawBranches(svg, drawn, search, state, chosen, width) {
  const deepest = Math.max(1, ...drawn.map(({ depth }) => depth)), own = new Set(way(search, state.best));
  const stride = Math.max(5, Math.min(16, ((width < 560 ? 0.2 : 0.3) * width) / deepest));
  const place = new Map(drawn.map(({ node, depth }, k) => [node, [depth, k]]));
  const lines = drawn.map(({ node }) => ({ from: place.get(search.nodes[node][0]), at: place.get(node),
    own: node === chosen, kind: own.has(node) ? "won" : state.closed[node] ? "left" : "kept" }));
  treeLines(svg, lines, { stride, high: ROW_PX, deepest, rows: drawn.length });
}

/** The tree as rows, one a text, with its lines at the left; a slider goes through the texts as they came. */
export function searchView(context) {
  const rewards = s("svg", { class: "rewards", "aria-hidden": "true" }), along = h("input", { type: "range", min: 1,
    class: "along", "aria-label": "texts that were judged" }), count = h("b");
  const now = h("p", { class: "won", role: "status" });
  const play = button("play", () => played(!timer), { class: "small", "aria-pressed": "false" });
  const svg = s("svg", { class: "lines", "aria-hidden": "true" }), list = h("ol", { class: "beams grown" });
  const rows = pool(list, () => h("li", null, h("button", { type: "button" }, h("span", { class: "quiet n" }),
    h("span", { class: "meter" }, h("i")), h("span", { class: "quiet rate" }), h("span", { class: "text" },
    h("span", { class: "both" }), h("b"), h("span", { class: "rest" })), h("span", { class: "quiet why" }))));
  const note = h("p", { class: "quiet" });
  const element = h("div", { class: "searched" }, h("div", { class: "passing" }, play, along, count), rewards, now,
    h("div", { class: "lineage" }, svg, list), note);
  let of = null, upto = 0, timer = 0, drawn = [];
  const show = (n) => ((upto = n), context.select(n));
  along.addEventListener("input", () => (played(false), show(Number(along.value))));
  list.addEventListener("click", ({ target }) => {
    const row = target.closest("li"), node = row ? drawn[[...list.children].indexOf(row)].node : 0;
    if (node) context.select(node);
  });
  function played(on) {
    clearInterval(timer);
    const next = () => (element.isConnected && upto < of.count ? show(upto + 1) : played(false));
    timer = on ? setInterval(next, TEXT_MS) : 0;
    if (on) show(upto < of.count ? upto + 1 : 1);
    set(play, { "aria-pressed": on });
    say(play, on ? "pause" : "play");
  }
  return {
    element,
    /** Draws the search of step i, and returns its nodes: [{id, parent}]. */
    draw(store, i, chosen, width) {
      const { search } = store.steps[i], { nodes, count: all } = search;
      for (const part of element.children) see(part, nodes || part === note);
      if (!nodes) return void say(note, context.absent(store, "The tree of this search"));
      if (of !== search) (upto = all), (of = search);
      const state = grown(search, upto), ring = Math.min(chosen ?? 1, upto);
      set(along, { max: all });
      if (Number(along.value) !== upto) along.value = upto;
      say(count, `text ${upto} of ${all}`);
      drawRewards(rewards, search, upto, Math.max(120, width - 4));
      drawn = laid(search, state, upto, [state.best, ring, upto]);
      drawn.forEach((row, k) => writeRow(rows.at(k), row, search, state, { upto, chosen: ring }));
      rows.trim(drawn.length);
      drawBranches(svg, drawn, search, state, ring, width);
      const best = rewardOf(search.texts[state.best - 1]);
      say(now, `${upto < all ? "Best so far" : "Written"}: text ${state.best}, ${percent(best)} of the tests, `
        + textOf(search, state.best));
      say(note, drawn.length <= upto ? `${plural(upto + 1 - drawn.length, "node")} more are not drawn.` : "");
      return drawn.map(({ node }) => ({ id: node, parent: nodes[node][0] }));
    },
  };
}

/** One choice on the way: the candidates, each with what it was worth and the bar of both terms. */
function choiceTable(search, { at, rows, taken }) {
  const most = Math.max(...rows.map(({ q, more }) => q + more), 1e-9);
  const wide = (x) => `width:${((100 * x) / most).toFixed(1)}%`;
  const behind = begun(search, at);
  return [h("h3", null, at ? "Behind " : "At the beginning", at ? tokenOf(behind.slice(-24), 24) : null),
    h("table", { class: "laws terms-of" },
      h("thead", null, h("tr", null, ["", "P", "N", "Q", "+", "sum"].map((x) => h("th", { scope: "col" }, x)))),
      h("tbody", null, rows.map((row, k) => [
        h("tr", { class: k === taken ? "tried" : row.closed ? "rest" : null },
          h("th", { scope: "row" }, tokenOf(row.text, 10)),
          [share(row.p), String(row.seen), row.node ? prob(row.q) : "–", prob(row.more),
            row.closed ? "closed" : prob(row.sum)].map((x) => h("td", null, x))),
        h("tr", { class: "stack" }, h("td", { colspan: 6 }, h("span", { class: "q", style: wide(row.q) }),
          h("span", { class: row.closed ? "shut" : "more", style: wide(row.more) })))])))];
}

/** Why a text was begun as it was: the choices that led to its node, with their terms. */
export function searchCard(context, store, step, at) {
  const { search } = step, { nodes, count, c, base } = search;
  if (!nodes) return [h("p", { class: "quiet" }, context.absent(store, "The tree of this search"))];
  const k = Math.max(1, Math.min(count, at ?? 1)), { walk, agrees } = grown(search, k);
  const [, passed, read] = search.texts[k - 1];
  const left = walk.length - MOST_CHOICES, sum = passed.reduce((all, ok) => all + ok, 0);
  return [
    shell("", `Text ${k} of ${count}`, tokenOf(nodes[k][2]), `depth ${way(search, k).length - 1}`, { agrees }),
    h("p", { class: "line" }, tokenOf(textOf(search, k), 80)),
    h("p", { class: "line" }, passed.length ? `It passes ${sum} of ${plural(passed.length, "test")}; `
      : "There are no tests; ", `${plural(read, "token")} read for it.`),
    left > 0 ? h("p", { class: "quiet" }, `${plural(left, "choice")} before these went the same way.`) : null,
    walk.slice(-MOST_CHOICES).map((choice) => choiceTable(search, choice)),
    h("p", { class: "line" }, "The largest Q + β P √ln N(s) / (1 + N) is followed: Q is the best reward behind a "
      + `candidate, N how often it was passed, P its probability among these; `
      + `β = ln((N(s) + ${base} + 1) / ${base}) + ${c}.`),
  ];
}

bring("search", { searchView, searchCard });
