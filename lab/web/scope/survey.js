/* Survey: all that a step held against each other: the spans of a passage as a map, or texts that voted. */
import { h, inks, pool, rgb, say, see, set, sheet } from "./elements.js";
import { bring } from "./extras.js";
import { plural } from "./numbers.js";
import { running, spoken } from "./tokens.js";

// px: words at the left, the head, a row, a row with a text
const SIDE_PX = 84, HEAD_PX = 16, SPAN_PX = 15, VOTE_PX = 26;
const MAP_MOST = 12000, WORD_PX = 11, CELL_MOST = 44; // px of a map, of a row that has room for its word, of a cell
const TURNS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

const lined = (text) => running(text).map(([, shown]) => shown.replaceAll("\n", "")).join("");
const alike = (a, b) => !!a && !!b && a[0] === b[0] && a[1] === b[1];
const thirds = (x) => x.toFixed(3).replace("-", "−");

const reckoned = new WeakMap(); // a message -> what is reckoned from its numbers
/** The spans of a message: {loss(first, tokens), judged(first, tokens), values, least, most}; NaN: there is none. */
export function spansOf(survey) {
  if (!reckoned.has(survey)) {
    const bytes = Uint8Array.from(atob(survey.losses), (c) => c.charCodeAt(0)), list = new Float32Array(bytes.buffer);
    const loss = (first, tokens) => list[first * survey.long + tokens - 1] ?? NaN;
    const judged = (first, tokens) => loss(first, tokens) / (survey.normal ? tokens + 1 : 1), values = [];
    for (let first = 0; first < survey.count; first++)
      for (let tokens = 1; tokens <= survey.long; tokens++) {
        const value = judged(first, tokens);
        if (!isNaN(value)) values.push(value);
      }
    values.sort((a, b) => a - b);
    reckoned.set(survey, { loss, judged, values, least: values[0], most: values.at(-1) });
  }
  return reckoned.get(survey);
}

/** Colours between the two of the sheet's map: shade(0) is the weakest. */
function shadesOf(element) {
  const ink = inks(element, "mass-low", "mass-high", "accept", "reject", "ink", "muted", "ring", "bg", "gone");
  const [low, high] = [ink["mass-low"], ink["mass-high"]].map(rgb);
  const shade = (t) => `rgb(${low.map((x, k) => Math.round(x + t * (high[k] - x))).join()})`;
  return { ...ink, shade };
}
/** A frame around a cell, also seen on its own colour. */
function framed(pen, ink, [x, y, wide, high], colour, dash = []) {
  pen.setLineDash([]);
  Object.assign(pen, { lineWidth: 4, strokeStyle: ink.bg });
  pen.strokeRect(x + 1, y + 1, wide - 2, high - 2);
  pen.setLineDash(dash);
  Object.assign(pen, { lineWidth: 2, strokeStyle: colour });
  pen.strokeRect(x + 1, y + 1, wide - 2, high - 2);
  pen.setLineDash([]);
}

/** A map of every span, where it begins downwards, its length across. */
function spansMap(context) {
  const canvas = h("canvas"), element = h("div", { class: "spans", role: "group", tabindex: 0 }, canvas);
  let of = null, at = null, row = null, size = null, ink = null;
  function choose(first, tokens) {
    if (first < 0 || first >= of.count || isNaN(spansOf(of).loss(first, tokens))) return;
    at = [first, tokens];
    const k = of.rows.findIndex((span) => alike(span, at));
    if (k >= 0) context.select((row = k + 1));
    else context.redraw();
  }
  canvas.addEventListener("click", ({ offsetX, offsetY }) => choose(Math.floor((offsetY - HEAD_PX) / size.high),
    Math.floor((offsetX - SIDE_PX) / size.wide) + 1));
  element.addEventListener("keydown", (event) => {
    const way = event.shiftKey || !at ? null : TURNS[event.key];
    if (!way) return;
    event.preventDefault(), event.stopPropagation();
    choose(at[0] + way[0], at[1] + way[1]);
    element.scrollTop = Math.min(element.scrollTop, at[0] * size.high);
    element.scrollTop = Math.max(element.scrollTop, HEAD_PX + (at[0] + 1) * size.high - element.clientHeight);
  });
  function paint(survey, wide) {
    const { judged, least, most } = spansOf(survey), { count, long, words } = survey;
    const high = Math.min(SPAN_PX, MAP_MOST / count);
    const cell = Math.max(5, Math.min(CELL_MOST, Math.floor((wide - SIDE_PX - 14) / long)));
    size = { wide: cell, high };
    ink ??= shadesOf(element);
    set(canvas, { style: `width:${SIDE_PX + cell * long + 2}px` });
    const pen = sheet(canvas, SIDE_PX + cell * long + 2, HEAD_PX + high * count + 2), gap = high >= WORD_PX ? 1 : 0;
    pen.font = ink.mono;
    pen.textAlign = "right";
    for (let first = 0; first < count; first++) {
      pen.fillStyle = first === at?.[0] ? ink.ink : ink.muted;
      if (gap) pen.fillText(lined(words[first]).slice(0, 11), SIDE_PX - 6, HEAD_PX + first * high + high - 4);
      for (let tokens = 1; tokens <= long; tokens++) {
        const value = judged(first, tokens);
        if (isNaN(value)) continue;
        pen.fillStyle = ink.shade(most > least ? (most - value) / (most - least) : 1);
        pen.fillRect(SIDE_PX + (tokens - 1) * cell, HEAD_PX + first * high, cell - gap, high - gap);
      }
    }
    pen.font = ink.less;
    pen.textAlign = "center";
    pen.fillStyle = ink.muted;
    const every = cell < 18 ? 5 : 1;
    for (let tokens = 1; tokens <= long; tokens++)
      if (tokens === 1 || tokens % every === 0)
        pen.fillText(String(tokens), SIDE_PX + (tokens - 0.5) * cell, HEAD_PX - 4);
    const box = ([first, tokens]) =>
      [SIDE_PX + (tokens - 1) * cell - 1, HEAD_PX + first * high - 1, cell + 1, Math.max(6, high + 1)];
    if (survey.greedy && !alike(survey.greedy, survey.best)) framed(pen, ink, box(survey.greedy), ink.reject, [3, 2]);
    framed(pen, ink, box(survey.best), ink.accept);
    if (at && !alike(at, survey.best)) framed(pen, ink, box(at), ink.ring);
  }
  /** The chosen span in words. */
  function said(survey) {
    const [first, tokens] = at, { loss, judged, values } = spansOf(survey), value = judged(first, tokens);
    const text = survey.words.slice(first, first + tokens).map(spoken).join("");
    const before = values.findIndex((x) => x >= value);
    const where = tokens === 1 ? `token ${first + 1}` : `tokens ${first + 1} to ${first + tokens}`;
    return `“${text}”: ${where} of the passage, ${thirds(loss(first, tokens))} nats`
      + `${survey.normal ? `, ${thirds(value)} a token` : ""}, ${before + 1} of `
      + `${plural(values.length, "span")}` + (alike(at, survey.best) ? "; the answer" : "")
      + (alike(at, survey.greedy) ? "; the greedy text" : "") + ".";
  }
  return {
    element,
    restyle: () => (ink = null),
    /** Draws it and returns what is said under it. */
    draw(survey, chosen, width) {
      if (of !== survey || (chosen !== row && survey.rows[chosen - 1])) at = survey.rows[chosen - 1] ?? survey.best;
      (of = survey), (row = chosen);
      paint(survey, width);
      set(element, { "aria-label": "nats of every span: down where it begins, across how many tokens it has" });
      const greedy = !survey.greedy ? "; greedy decoding leaves the passage"
        : alike(survey.greedy, survey.best) ? ", which is the greedy text too" : "; dashed: the greedy text";
      return [said(survey), `The stronger a shade, the likelier. Framed: the answer${greedy}. `
        + "Down: where a span begins; across: its tokens."];
    },
  };
}

/** The texts of a vote, those with the most votes first, and beside each how like it is to all. */
function votesMap(context) {
  const canvas = h("canvas"), list = h("ol", { class: "beams grown" });
  const rows = pool(list, () => h("li", null, h("button", { type: "button" }, h("span", { class: "quiet n" }),
    h("span", { class: "meter" }, h("i")), h("span", { class: "quiet rate" }), h("span", { class: "text" }),
    h("span", { class: "quiet why" }))));
  const element = h("div", { class: "lineage voted" }, canvas, list);
  let of = null, order = [], pair = null, size = 0, ink = null;
  const choose = (k, other) => ((pair = other ?? null), context.select(k + 1));
  list.addEventListener("click", ({ target }) => {
    const row = target.closest("li");
    if (row) choose(order[[...list.children].indexOf(row)]);
  });
  canvas.addEventListener("click", ({ offsetX, offsetY }) => {
    const [a, b] = [Math.floor(offsetY / VOTE_PX), Math.floor(offsetX / size)];
    if (a < order.length && b < order.length) choose(order[a], order[b]);
  });
  function paint({ like }, at, width) {
    const n = order.length;
    size = Math.max(3, Math.min(VOTE_PX, Math.floor((width < 560 ? 0.3 : 0.4) * width / n)));
    ink ??= shadesOf(element);
    set(canvas, { style: `width:${n * size}px;flex:none` });
    const pen = sheet(canvas, n * size, n * VOTE_PX), gap = size > 6 ? 1 : 0;
    order.forEach((a, y) => order.forEach((b, x) => {
      pen.fillStyle = ink.shade(like[a][b]);
      pen.fillRect(x * size, y * VOTE_PX, size - gap, VOTE_PX - 1);
    }));
    const y = order.indexOf(at);
    if (y >= 0) framed(pen, ink, [0, y * VOTE_PX, n * size, VOTE_PX], ink.ring);
    if (pair !== null) framed(pen, ink, [order.indexOf(pair) * size, y * VOTE_PX, size, VOTE_PX], ink.ink);
  }
  return {
    element,
    restyle: () => (ink = null),
    draw(survey, chosen, width, tally) {
      const { votes, texts, like, chosen: won } = survey, most = Math.max(...votes);
      if (of !== survey)
        (of = survey), (pair = null),
        (order = votes.map((_, k) => k).sort((a, b) => votes[b] - votes[a] || (b === won) - (a === won) || a - b));
      const at = Math.min(votes.length, Math.max(1, chosen ?? 1)) - 1;
      order.forEach((k, place) => {
        const row = rows.at(place), [n, meter, figure, text, why] = row.firstChild.childNodes;
        say(n, String(k + 1)), say(figure, thirds(votes[k])), say(text, lined(texts[k]));
        set(meter.firstChild, { style: `width:${(100 * votes[k] / most).toFixed(0)}%` });
        say(why, k === won ? "★ the run's text" : (tally?.rows?.[k]?.[4] ?? "").split(",")[0]);
        set(row, { class: k === won ? "best" : votes[k] < most ? "shut" : null });
        set(row.firstChild, { "aria-pressed": k === at, title: lined(texts[k]) });
      });
      rows.trim(order.length);
      paint(survey, at, width);
      const other = pair ?? at;
      return [pair === null ? `Text ${at + 1} has ${thirds(votes[at])} votes, its mean likeness to all ${votes.length}.`
        : `Text ${at + 1} and text ${other + 1} are ${thirds(like[at][other])} alike.`,
      `Shade: how like two texts are, from 0 to 1, by ${survey.by === "exact" ? "equality" : survey.by}; a row a text, `
        + "columns in the same order. Bars: votes."];
    },
  };
}

/** What a step held against each other, and under it in words what is chosen and what its colours mean. */
export function surveyView(context) {
  const maps = { spans: spansMap(context), votes: votesMap(context) };
  const now = h("p", { class: "took", role: "status" }), key = h("p", { class: "quiet" });
  const element = h("div", { class: "survey" }, Object.values(maps).map((map) => map.element), now, key);
  return {
    element,
    restyle: () => Object.values(maps).forEach((map) => map.restyle()),
    draw(store, i, chosen, width) {
      const { survey, tally, few } = store.steps[i], whole = survey.losses || survey.like;
      for (const [name, map] of Object.entries(maps)) see(map.element, whole && name === survey.of);
      see(now, whole);
      if (!whole)
        return void say(key, few === true ? context.absent(store, "The map of this step")
          : "The map of this step is too large to be drawn, or was not kept; the card lists the best.");
      const [words, colours] = maps[survey.of].draw(survey, chosen, Math.max(200, width), tally);
      say(now, words), say(key, colours);
    },
  };
}

bring("survey", { surveyView });
