/* distribution: the distribution at a place of the text under another temperature, top-k, top-p and min-p, from
 * the record of the displayed run, or of one of two. The sums are in distribution_sums.js. */
import { recorded, reshaped } from "./distribution_sums.js";
import { onChange, panes, paneTitle, onStep } from "../runs/runs.js";
import { button, draws, firstOf, formatCount, h, prob, statusWord, tokenOf } from "../scope.js";

const SAME = 5e-4; // a narrower range is shown as a number
const OWN = ["bonus", "resample", "target"]; // the target added the token itself
const rangeText = ([low, high]) => (high - low < SAME ? prob((low + high) / 2) : `${prob(low)} to ${prob(high)}`);
const percent = (x) => `${(100 * x).toFixed(2)}%`;

/** What the sampler of a step did: divided the logits by `heat`, `cuts` tokens; `given` if the record has both. A
 *  greedy run records the distribution before its sampler. */
function samplerOf(step, head) {
  const says = step.sampler ?? head.parts?.sampler ?? {};
  return says.greedy ? { greedy: true, heat: 1, cuts: false, given: true }
    : { greedy: false, heat: says.heat ?? 1, cuts: says.cuts ?? true, given: says.heat !== undefined };
}

/** The places of a step at which its tokens were written: [{place, node, token, text, status}]. */
function writtenPlaces(step, nodes) {
  const { path } = step.verdict, own = nodes.find((n) => OWN.includes(n.status));
  return step.made.flatMap(([token, text, origin], k) => {
    const node = origin === "accept" ? nodes.find((n) => n.id === path[k + 1]) : own;
    return node && path[k] !== undefined ? [{ place: path[k], node, token, text, status: node.status }] : [];
  });
}

/** A slider with its word and its value in words. */
function slider(word, range, shown, act) {
  const box = h("input", { type: "range", ...range }), value = h("output");
  const tell = () => {
    value.textContent = shown(Number(box.value));
    box.setAttribute("aria-valuetext", value.textContent);
  };
  box.addEventListener("input", () => (tell(), act(Number(box.value))));
  return { element: h("label", null, h("span", null, word), box, value), box,
    put: (x) => ((box.value = x), tell()) };
}

/** Which of the runs shown side by side is followed: pane(). changed(): another one was chosen. */
function chooser(changed) {
  let side = 0;
  const element = h("select", { "aria-label": "Run of the distribution" }), pane = () => panes[side] ?? panes[0];
  element.addEventListener("change", () => ((side = Number(element.value)), changed()));
  function draw() {
    const names = panes.map((one, k) => `${"ABCD"[k]}: ${paneTitle(one)}`);
    element.hidden = names.length < 2;
    if (names.join() !== [...element.options].map((one) => one.text).join())
      element.replaceChildren(...names.map((name, value) => h("option", { value }, name)));
    element.value = String(panes.indexOf(pane()));
  }
  return { element, pane, draw };
}

/** A place of the text, with its distribution where it was recorded.
 *  @typedef {{view: any, i: number, step: any, nodes?: any[], places?: any[], place?: number, drawn?: any,
 *    sampler?: any, tops?: any}} Place */

/** Why there is no distribution. */
function absenceReason({ view, i, step }) {
  const { levels } = view.store.head;
  if (levels && !levels.includes("decisions")) return "This run was recorded without its decisions.";
  if (step.chain || step.branches || step.threads || step.canvas || step.tally || step.tree)
    return "Nothing is drawn here: this method records no distribution of a place.";
  return view.store.whole(i) ? "No distribution is recorded after this token: it was not reached."
    : "fetching this step…";
}

/** Fill `host` with the view; it follows the displayed run, its step, and the chosen node. */
export function showDistribution(host) {
  let setting = {}, base = null, heat = 1, run = null, drawnAs = "", waiting = null, known = 0;
  const change = (part) => ((setting = { ...setting, ...part }), draw());
  const sliders = {
    temperature: slider("temperature", { min: 0, max: 2, step: 0.05 },
      () => (setting.temperature === 0 ? "0, greedy" : String(+setting.temperature.toPrecision(3))),
      (x) => change({ temperature: x })),
    k: slider("top-k", { min: 1, max: 6, step: 1 }, (x) => (x > known ? "all" : String(x)),
      (x) => change({ k: x > known ? Infinity : x })),
    p: slider("top-p", { min: 0.05, max: 1, step: 0.05 }, String, (x) => change({ p: x })),
    share: slider("min-p", { min: 0, max: 1, step: 0.01 }, String, (x) => change({ share: x })),
  };
  for (const [name, one] of Object.entries(sliders)) // their words describe the present setting
    one.box.addEventListener("input", () => one.put(valueOf(name)));
  const valueOf = (name) => (name === "k" ? Math.min(setting.k, known + 1) : setting[name]);
  const which = chooser(() => update()), { pane } = which, where = h("b"), answer = h("p", { role: "status" }),
    tokens = h("div", { class: "tokens", role: "group", "aria-label": "Tokens of this step" }), bars = h("tbody"),
    note = h("p", { class: "quiet" });
  const back = button("‹", () => walk(-1), { "aria-label": "the token before" }),
    on = button("›", () => walk(1), { "aria-label": "the next token" }),
    reset = button("As it was drawn", () => asDrawn());
  const controls = h("div", { class: "sliders" }, Object.values(sliders).map((one) => one.element), reset);
  const table = h("table", null, h("thead", null, h("tr", null, ["token", "", "recorded", "now", ""].map((word) =>
    h("th", { scope: word && "col" }, word)))), bars);
  const parts = h("div", { class: "parts" }, h("div", null, table, note), controls);
  host.replaceChildren(h("header", null, which.element, back, on, where, tokens), answer, parts);

  function asDrawn() {
    const { greedy } = here()?.sampler ?? {};
    setting = { temperature: greedy ? 0 : heat, k: Infinity, p: 1, share: 0 };
    for (const [name, one] of Object.entries(sliders)) one.put(valueOf(name));
    draw();
  }
  /** The displayed place of the run: its step, the chosen place, and the token written there.
   *  @returns {Place} */
  function here() {
    const view = pane()?.view, i = view?.at ?? -1, step = view?.store.steps[i], nodes = view?.store.nodes(i);
    if (!step || !view.store.head) return null;
    if (!nodes) return { view, i, step };
    const places = writtenPlaces(step, nodes),
      chosen = view.selection?.step === i ? view.selection.node : firstOf(step);
    const place = Math.max(0, nodes.find((n) => n.id === chosen)?.parent ?? 0);
    return { view, i, step, nodes, places, place, drawn: places.find((x) => x.place === place),
      sampler: samplerOf(step, view.store.head), tops: (step.tops || []).find(([at]) => at === place) };
  }
  /** Go to the next token of the text (1), or to the one before (-1). */
  function walk(way) {
    const now = here(), k = now?.places?.indexOf(now.drawn) ?? -1, next = k < 0 ? null : now.places[k + way];
    if (next) return now.view.select({ step: now.i, node: next.node.id });
    const to = (now?.i ?? 0) + way;
    if (!now || to < 0 || to >= now.view.store.count) return;
    waiting = { step: to, way };
    now.view.seek(to);
  }
  function update() {
    const now = here();
    host.classList.toggle("none", !now);
    if (!now) return;
    if (waiting && waiting.step === now.i && now.view.store.whole(now.i)) {
      const one = now.places?.at(waiting.way > 0 ? 0 : -1);
      waiting = null;
      if (one) return void now.view.select({ step: now.i, node: one.node.id });
    }
    const as = [now.view.store.head.run, now.i, now.place, now.tops?.length, now.view.store.whole(now.i)].join();
    if (as === drawnAs) return;
    drawnAs = as;
    const first = now.step.sum.tokens - now.step.made.length, k = now.places?.indexOf(now.drawn) ?? -1;
    where.textContent = k < 0 ? `Step ${now.i}` : `Token ${first + k + 1} of the text, step ${now.i}`;
    tokens.replaceChildren(...(now.places ?? []).map((one) => {
      const chip = button(tokenOf(one.text, 12), () => now.view.select({ step: now.i, node: one.node.id }));
      chip.setAttribute("aria-pressed", one === now.drawn);
      return chip;
    }));
    parts.hidden = !now.tops;
    base = null;
    if (!now.tops) return void (answer.textContent = absenceReason(now));
    begin(now);
  }
  /** Show the distribution of another place.
   *  @param {Place} now */
  function begin({ view, step, sampler, tops, drawn }) {
    const { head } = view.store, [u, low, high] = step.verdict.extra ?? [null, 0, 1];
    const own = drawn && ["bonus", "target"].includes(drawn.status) && u !== null;
    base = recorded(tops, { vocab: head.model.vocab, cuts: sampler.cuts,
      drawn: own ? { token: drawn.token, text: drawn.text, p: high - low } : null });
    known = base.known;
    sliders.k.box.max = known + 1;
    sliders.temperature.box.max = Math.max(2, Math.ceil(sampler.heat));
    const sentences = [
      base.count ? `Recorded are the ${base.rows.length} tokens above, and of the `
        + `${formatCount(base.count)} others their `
        + "sum and the entropy: what these leave open is a range." : "",
      sampler.cuts ? "Tokens that the run's sampler had removed stay removed." : "",
      sampler.greedy ? "A greedy run records the distribution at temperature 1." : "",
      sampler.given ? "" : "The record does not say the temperature: 1 is used instead.",
    ];
    note.textContent = sentences.filter(Boolean).join(" ");
    const other = run !== `${head.run} ${sampler.heat} ${sampler.greedy}`;
    run = `${head.run} ${sampler.heat} ${sampler.greedy}`;
    heat = sampler.heat;
    if (other) asDrawn();
    else draw();
  }
  function draw() {
    const now = here();
    if (!base || !now?.tops) return;
    const after = reshaped(base, setting, heat), mark = markOf(now);
    const rows = base.rows.map((row, i) => ({ ...row, now: after.rows[i], mark: mark(row.token) }));
    const left = Math.max(0, 1 - base.rows.reduce((sum, row) => sum + row.p, 0));
    if (base.count) rows.push({ token: null, p: left, now: after.rest });
    bars.replaceChildren(...rows.map((row) => bar(row, base.count)));
    const one = rows.find((row) => row.mark?.drawn);
    answer.replaceChildren(...(one
      ? [tokenOf(one.text, 16), `, ${one.mark.word}: ${prob(one.p)} recorded, ${rangeText(one.now)} now`]
      : now.drawn ? [tokenOf(now.drawn.text, 16), " was written; it is not among the recorded tokens of this place"]
      : ["No token was written here."]));
  }
  /** token -> its result here: {status, word, drawn}; null if it was not tried.
   *  @param {Place} now */
  function markOf({ view, nodes, place, drawn }) {
    const tried = nodes.filter((n) => n.parent === place && n.status === "reject").map((n) => n.token);
    const word = (status) => statusWord(status, draws(view.store.head));
    return (token) => (drawn?.token === token ? { status: drawn.status, word: word(drawn.status), drawn: true }
      : tried.includes(token) ? { status: "reject", word: word("reject"), drawn: false } : null);
  }
  onChange(() => (which.draw(), update()));
  onStep(update);
}

/** A row of the table: the recorded probability as a frame, the present one as its filling, the undetermined part
 *  between. */
function bar({ token, text, p, now: [low, high], mark }, count) {
  return h("tr", { class: [mark?.drawn ? "drawn" : "", token === null ? "rest" : ""].join(" ").trim() || null },
    h("th", { scope: "row" }, token === null ? `${formatCount(count)} others` : tokenOf(text, 14)),
    h("td", { class: "bar" }, h("span", { class: "open", style: `width:${percent(high)}` }),
      h("span", { class: "now", style: `width:${percent(low)}` }),
      h("span", { class: "frame", style: `width:${percent(p)}` })),
    h("td", null, prob(p)), h("td", null, rangeText([low, high])),
    h("td", { class: mark?.status }, mark?.word));
}
