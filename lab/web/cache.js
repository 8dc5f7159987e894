/* cache: the target's cache entry by entry: what each layer and head keeps, how long an entry lived and why it
 * left, where a piece of the text was lost, what two runs both keep, and what a step attended to. The server
 * counts; this draws. Each section is a file of cache/. */
import { button, h, icon } from "./scope.js";
import { onChange, panes, onStep, noStepReason } from "./runs/runs.js";
import { current, fragment } from "./shared/address.js";
import { attentionView } from "./cache/attention.js";
import { overlapView } from "./cache/overlap.js";
import { headView } from "./cache/head.js";
import { headsView } from "./cache/heads.js";
import { heavyHittersView } from "./cache/heavy_hitters.js";
import { lifeView } from "./cache/entry_life.js";
import { mapView } from "./cache/map.js";
import { lostAttentionView } from "./cache/lost_attention.js";
import { prefixesView } from "./cache/prefixes.js";
import { searchView } from "./cache/search.js";
import { seriesView } from "./cache/series.js";
import { cacheState } from "./cache/state.js";

/** Put the step into the address, or no step; the step stays there until another page is shown. */
function address(i) {
  const parts = location.hash.slice(1).split("&").filter((part) => part.includes("=")),
    others = parts.filter((part) => !part.startsWith("step="));
  if (i !== null || others.length < parts.length)
    history.replaceState(null, "", fragment([...others, ...(i === null ? [] : [`step=${i}`])]));
}

/** The steps of the run: a slider, and a button for the next eviction. */
function stepper({ view, store, now }) {
  function seek(i) {
    const count = store()?.count;
    if (!count) return;
    view().seek(Math.max(0, Math.min(count - 1, i)));
    address(now());
  }
  const loses = () => {
    const all = store().steps;
    for (let i = now() + 1; i < all.length; i++) if (all[i]?.kv.some((x) => x.lane === "target" && x.evicted)) return i;
    return -1;
  };
  const nextLost = () => loses() >= 0 && seek(loses());
  const slider = h("input", { type: "range", min: 0, value: 0, step: 1, "aria-label": "step" }),
    where = h("b", { class: "where" }), lost = button("next eviction", nextLost);
  slider.addEventListener("input", () => seek(Number(slider.value)));
  const by = (word, name, k) =>
    button(icon(name), () => seek(now() + k), { class: "bare", "aria-label": word, title: word });
  const element = h("div", { class: "steps" }, by("previous step", "prev", -1), by("next step", "next", 1), where,
    slider, lost);
  function draw() {
    where.textContent = `step ${now()} of ${store().count - 1}`;
    Object.assign(slider, { max: Math.max(0, store().count - 1), value: now() });
    slider.setAttribute("aria-valuetext", where.textContent);
  }
  return { element, draw, seek, nextLost, mark: () => lost.setAttribute("aria-disabled", String(loses() < 0)) };
}

export function page(element) {
  const shared = cacheState(element), { now, looked } = shared;
  const steps = stepper(shared), head = headView(shared), life = lifeView(shared), heavy = heavyHittersView(shared),
    both = overlapView(shared), attention = attentionView(shared),
    series = seriesView(shared, () => missed.draw()), missed = lostAttentionView(shared, series.series),
    prefixes = prefixesView(shared), heads = headsView(shared);
  const map = mapView(shared, { drawn: () => draw(), enter: life.reveal });
  const search = searchView(shared, { marked: () => (map.draw(), head.draw()), reveal: map.reveal });
  const opened = h("div", { class: "open" },
    h("div", { class: "left" },
      [map, head, heads, prefixes, life, both, attention, series, missed].map((part) => part.element)),
    h("aside", { "aria-label": "find, and heavy hitters" }, h("h2", null, "Find tokens"), search.elements,
      h("h2", null, "Heavy hitters"), heavy.elements),
    steps.element);
  const nothing = h("p", { class: "nothing", role: "status" });
  element.replaceChildren(h("h1", { class: "unseen" }, "Cache"), nothing, opened);

  const questions = [...[map, head, life, heavy, search, both, attention, series,
    prefixes].map((part) => part.question),
    both.others];
  const load = () => questions.forEach((one) => one.tick());
  function go(row, position) {
    const { map: counted } = shared;
    if (!counted) return;
    shared.at = { row: Math.max(0, Math.min(counted.layers * counted.heads - 1, row)),
      position: Math.max(0, Math.min(counted.length - 1, position)) };
    head.follow();
    map.draw();
    head.draw();
    load();
  }
  const choose = (row) => ((shared.at.row = row), map.draw(), load());
  Object.assign(shared, { load, go, choose });

  function draw() {
    if (current() !== "cache") return;
    const some = looked();
    nothing.textContent = some ? "" : noStepReason();
    opened.hidden = !some;
    if (!some) return;
    steps.draw();
    const fits = !!shared.map && shared.map.run === panes[0].id;
    for (const part of [head, heads, life]) part.element.hidden = !fits || shared.map.untold;
    map.caption(fits);
    missed.draw();
    if (!fits) return;
    steps.mark();
    if (shared.map.untold) return;
    head.fill();
    heavy.fill();
    map.draw();
    heads.draw();
    map.list();
    load();
  }
  let run = null;
  function update() {
    if (current() !== "cache") return;
    if (panes[0]?.id !== run) {
      run = panes[0]?.id ?? null;
      shared.at = { row: 0, position: null };
      shared.map = null;
      for (const part of [map, head, life, search, both, attention, series, prefixes]) part.reset();
      questions.forEach((one) => one.forget());
    }
    draw();
    series.draw();
    load();
  }
  let due = 0;
  /** Steps come faster than anyone can look at them: they are collected until the next picture. */
  const soon = () => (due ||= requestAnimationFrame(() => ((due = 0), update())));
  onChange(soon);
  onStep(soon);
  const redraw = () =>
    (shared.restyle(), draw(), head.draw(), life.draw(), attention.draw(), series.draw(), prefixes.draw(),
      load());
  new ResizeObserver(redraw).observe(map.element);
  new MutationObserver(redraw).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  element.addEventListener("keydown", (event) => looked() && onKey(event, steps, now));
  return {
    shown: () => (both.others.forget(), update()),
    hidden: () => current() === "debugger" || address(null), // there it is read
  };
}

/** A key that walks the steps, if no nearer element takes it. */
function onKey(event, { seek, nextLost }, now) {
  if (event.target.closest("input, select, textarea, summary, .scroll") || event.ctrlKey || event.metaKey
    || event.altKey) return;
  if (event.target.closest("button, canvas") && /^(Arrow|Home|End)/.test(event.key)
    && !event.target.closest(".steps")) return;
  const by = { ArrowLeft: -1, ",": -1, ArrowRight: 1, ".": 1 }[event.key];
  if (by) seek(now() + by);
  else if (event.key === "Home") seek(0);
  else if (event.key === "End") seek(Infinity);
  else if (event.key === "e") nextLost();
  else return;
  event.preventDefault();
}
