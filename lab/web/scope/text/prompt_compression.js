/* Prompt compression: a prompt with tokens left out by a prompt compression. Every token with its score and its
 * reason, another budget's cut from the record, and the cost of the look compared with its savings. */
import { button, figures, h, pool, say, see, set } from "../shared/elements.js";
import { bring } from "../shared/extras.js";
import { formatCount, formatTime, percent, plural } from "../shared/numbers.js";
import { formatScaled } from "../time/roof.js";
import { textParts, visibleText } from "../shared/tokens.js";

const OUTSIDE = 0, BY_SCORE = 1, BY_PLACE = 2, SETTLED = 3; // 4: left out together with its unit
const REASONS = ["left out: it is worth less than what was read", "read: it is among the best",
  "read: it is next to one of the best", "read in any case: what asks, a mark of the chat, or the last tokens",
  "left out with its paragraph, before tokens were scored"];

/** The `near` places around `at` of n, the nearest first; of two at the same distance the left one first. */
function placesAround(at, near, n) {
  const reach = [];
  for (let x = -Math.floor((near - 1) / 2); x <= Math.floor(near / 2); x++) reach.push(x);
  reach.sort((a, b) => Math.abs(a) - Math.abs(b) || a - b);
  return reach.map((x) => Math.min(Math.max(at + x, 0), n - 1));
}

/** Why each token would be read or not under another budget: by the rule of engine/trace/records/prompt_cut.py. */
export function recut({ reason, scores, units, worth, parts, near }, budget) {
  const n = reason.length, fates = reason.map((x) => (x >= SETTLED ? x : OUTSIDE));
  const starts = units ?? reason.map((_, i) => i), value = worth ?? scores, bounds = parts ?? [0];
  const before = [0];
  for (const x of fates) before.push(before[before.length - 1] + (x === OUTSIDE ? 1 : 0));
  const due = Math.max(0, budget - fates.filter((x) => x === SETTLED).length), free = Math.max(1, before[n]);
  const share = (at) => Math.floor((due * before[at]) / free);
  const order = starts.map((_, u) => u).sort((a, b) => value[b] - value[a] || a - b);
  bounds.forEach((first, k) => {
    const behind = bounds[k + 1] ?? n;
    let left = share(behind) - share(first);
    for (const u of order) {
      if (left <= 0) break;
      if (starts[u] < first || starts[u] >= behind) continue;
      for (const v of placesAround(u, near, starts.length)) {
        if (left <= 0) break;
        for (let i = starts[v]; i < (starts[v + 1] ?? n); i++)
          if (fates[i] === OUTSIDE) (fates[i] = v === u ? BY_SCORE : BY_PLACE), left--;
      }
    }
  });
  return fates;
}

/** For each score the share of scores below it, from 0 to 1. */
function ranksOf(scores) {
  const sorted = [...scores].sort((a, b) => a - b), first = new Map();
  sorted.forEach((x, k) => first.has(x) || first.set(x, k));
  return scores.map((x) => first.get(x) / Math.max(1, scores.length - 1));
}

const clockText = (s) => (s === null ? "" : formatTime(s));

/** The whole prompt, left-out tokens struck through, tinted by score; shown if a prompt compression left tokens
 *  out. */
export function compressionView() {
  const sums = figures(), body = h("div", { class: "text cut", tabindex: 0, "aria-label": "prompt" });
  const why = h("p", { class: "took", role: "status" });
  const range = h("input", { type: "range", step: 1, "aria-label": "tokens to be read" }), due = h("output");
  const back = button("as it ran", () => choose(own), { class: "small" });
  const slider = h("label", { class: "budget" }, h("span", { class: "quiet" }, "budget"), range, due, back);
  const costs = h("tbody"), rows = pool(costs, () => h("tr", null, h("th", { scope: "row" }),
    h("td", { class: "axis" }, h("span", { class: "fill" })), h("td", { class: "n" }), h("td")));
  const heads = ["passes", "operations", "", "rows and time"].map((x) => h("th", { scope: "col" }, x));
  const table = h("table", { class: "answers prices" }, h("caption", null, "Looking at it, and what that saved"),
    h("thead", { class: "unsaid" }, h("tr", null, heads)), costs), note = h("p", { class: "quiet" });
  const element = h("section", { class: "prompt-pane", "aria-label": "prompt" }, h("header", null,
    h("h2", null, "Prompt"), h("span", { class: "key worth" }, "worth more"),
    h("span", { class: "key stays" }, "stays in any case"),
    h("span", { class: "quiet" }, h("s", null, "left out")), sums.element), body, why, slider, table, note);
  let one = null, spans = [], own = 0, at = -1, fates = [];

  range.addEventListener("input", () => choose(Number(range.value)));
  body.addEventListener("click", (event) => tell(event.target.closest("[data-at]")));
  body.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || !spans.length) return;
    event.preventDefault(), event.stopPropagation();
    tell(spans[Math.min(spans.length - 1, Math.max(0, at + step))]);
  });

  /** Say why a token was read or not. */
  function tell(span) {
    if (!span) return;
    spans[at]?.classList.remove("now");
    at = Number(span.dataset.at);
    span.classList.add("now");
    explain();
  }
  function explain() {
    if (at < 0) return say(why, "Press a token: why it was read, or not.");
    const unit = one.units ? one.units.findLastIndex((x) => x <= at) : at, whole = one.units && one.unit !== "token";
    const score = one.scores ? `score ${one.scores[at].toPrecision(3)}` : "";
    const worth = whole && one.worth ? `its ${one.unit} ${one.worth[unit].toPrecision(3)}` : "";
    say(why, `Token ${at + 1}, “${visibleText(one.texts[at])}”, ${REASONS[fates[at]]}.`
      + (score && ` ${[score, worth].filter(Boolean).join(", ")}.`));
  }
  /** Show the tokens that a budget keeps. */
  function choose(budget) {
    fates = budget === own ? one.reason : recut(one, budget);
    const left = (x) => x === OUTSIDE || x > SETTLED, read = fates.filter((x) => !left(x)).length;
    spans.forEach((span, i) => {
      span.classList.toggle("left", left(fates[i]));
      span.classList.toggle("stays", fates[i] === SETTLED);
    });
    range.value = budget;
    say(due, `${formatCount(read)} of ${plural(fates.length, "token")}` + (budget === own ? ""
      : one.guess ? ", a guess: with another budget later segments are judged again" : ", what a run would read"));
    set(back, { "aria-disabled": budget === own ? "true" : null });
    see(back, budget !== own);
    explain();
  }
  function begin(given) {
    one = given;
    at = -1;
    const tint = one.scores ? ranksOf(one.scores) : [];
    spans = one.texts.map((text, i) => h("span", { class: "tok", "data-at": i,
      style: tint.length ? `--worth:${(38 * tint[i]).toFixed(0)}%` : null },
      textParts(text).map(([kind, shown]) => (kind === "nl" ? h("span", { class: "nl" }, shown) : shown))));
    body.replaceChildren(...spans);
    own = one.budget ?? 0;
    see(slider, one.budget !== null);
    set(range, { min: one.reason.filter((x) => x === SETTLED).length,
      max: one.reason.filter((x) => x <= SETTLED).length });
    choose(own);
    prices();
  }
  /** The cost of the look and of the reading, compared with the cost of reading all. */
  function prices() {
    const { looked, read, whole } = one, all = Math.max(looked[1] + read[1], whole[1]);
    const by = one.lane === "target" ? "its own layers" : `the ${one.lane} model`;
    const list = [["by-small", `looking, ${by}`, looked],
      ["by-large", "reading what is left", read], ["by-sum", "reading all instead", whole]];
    list.forEach(([cls, name, [fed, flops, took]], k) => {
      const line = rows.at(k), [first, bar, value, last] = line.childNodes;
      set(line, { class: cls });
      say(first, name);
      set(bar.firstChild, { style: `width:${all ? ((100 * flops) / all).toFixed(1) : 0}%` });
      say(value, flops ? `${formatScaled(flops)}FLOP`.trim() : "–");
      say(last, [plural(fed, "row"), took ? clockText(took) : ""].filter(Boolean).join(", "));
    });
    const spent = looked[1] + read[1], kept = read[2] && read[0] ? (read[2] * (whole[0] - read[0])) / read[0] : 0;
    const clock = kept && looked[2] ? ` By the clock looking took ${formatTime(looked[2])}, and what was left out would`
      + ` have taken ${formatTime(kept)} at the speed of the reading.` : "";
    say(note, (whole[1] && spent
      ? `By operations looking and reading are ${percent(spent / whole[1])} of reading all.` : "") + clock);
  }
  function draw(store) {
    const given = store.head?.shortened;
    see(element, given);
    if (!given) return;
    if (given !== one) begin(given);
    const read = one.reason.filter((x) => x !== OUTSIDE && x <= SETTLED).length;
    sums.tell([[formatCount(one.texts.length), " tokens"], [formatCount(read), " read"],
      [percent(1 - read / one.texts.length), " left out"]]);
  }
  return { element, draw };
}

bring("prompt_compression", { compressionView });
