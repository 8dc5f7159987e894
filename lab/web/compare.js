/* compare: two to four runs beside each other, as they go or as they were recorded: one scrubber, one clock,
 * one table. */
import { button, grouped, h, milli, pair } from "./scope.js";
import { ask, ended, example, fill, inWords, open, paneTitle, panes as inLab, shown } from "./runs.js";
import { current, go } from "./address.js";
import { against } from "./compare/against.js";
import { read, write } from "./compare/link.js";
import { lineup } from "./compare/lineup.js";
import { picker } from "./compare/picker.js";
import { setTable } from "./compare/sets.js";
import { standings } from "./compare/standings.js";
import { stream } from "./compare/stream.js";
import { toolsOf } from "./compare/tools.js";
import { going } from "./going.js";

const FEWEST = 2, MOST = 4, LETTERS = "ABCD";
const FRESH = 3000; // ms between two looks at the figures of runs that go on
const VIEWS = [
  ["tree, text", ["tree", "text"]],
  ["tree, text, cache", ["tree", "text", "cache"]],
  ["cache, text", ["cache", "text"]],
  ["text", ["text"]],
];
const EMPTY = "No step of this run has come yet.";

/** Two examples of one prompt, seed and sampling, so that their speeds and texts say something about each other. */
function alike() {
  const all = shown.examples,
    as = (x) => (({ prompt, seed, names }) => JSON.stringify([prompt, seed, names?.sampler]))(JSON.parse(x.settings));
  const first = all.find((x) => all.some((y) => y !== x && as(x) === as(y))) || all[0],
    second = all.find((y) => y !== first && as(y) === as(first)) || all.find((y) => y !== first);
  return [first, second].filter(Boolean);
}

const blank = (id) => ({ id, status: "queued", last: -1, end: null, view: null, head: null });

/** What these runs wait for: those that are not among them. */
const busy = (runs) =>
  going({
    said: "What these runs wait for:",
    wanted: () => runs().some((run) => run.status === "queued" && !run.end),
    show: (id) => (open(id), go("lab")),
    those: ({ run, status }) => status === "running" && !runs().some((one) => one.id === run),
  });

export function page(element) {
  let runs = [], both = null, base = 0, way = "token", views = VIEWS[0][1], named = false, summary = null;

  // ---- what stands on the page

  const baseline = h("select", { "aria-label": "baseline" }),
    seen = h("select", { "aria-label": "what each pane shows" },
      VIEWS.map(([word], i) => h("option", { value: i }, word)));
  const notice = h("p", { class: "told", role: "status" }), aloud = h("p", { class: "unseen", "aria-live": "polite" });
  const chips = h("ul", { class: "chips" }),
    examples = button("Compare two examples", () => choose(alike().map((x) => x.run)), { class: "ds-button go" });
  const none = h("section", { class: "none" }, h("h2", null, "Two to four runs beside each other."),
    h("p", { class: "quiet" },
      "Live runs, recorded ones and examples in any mixture: one slider moves all of them, by token or by clock. The "
        + "examples need no model."), chips, examples);
  const host = h("div", { class: "runs" }),
    switcher = h("div", { class: "switcher", role: "group", "aria-label": "pane" });
  const adding = picker({ add: (id) => choose([...runs.map((x) => x.id), id]),
    letter: (id) => LETTERS[runs.findIndex((x) => x.id === id)], full: () => runs.length >= MOST });
  const starting = lineup({ begin: ({ runs: ids }) => choose(ids), refuse: (error) => refuse(error) }),
    asking = lineup({ many: true, refuse: (error) => refuse(error),
      begin: (record) => (say(""), show(null), overPrompts.follow(record)) });
  const overPrompts = setTable({ refuse: (error) => refuse(error), changed: () => address(),
    open: (ids) => (choose(ids), element.scrollIntoView()) });
  const table = standings({ refuse: (error) => refuse(error), apart: (k) => apart(k),
    changed: () => (both?.against(), figures(), address()) });
  const { apart, ratio, why } = against({ runs: () => runs, base: () => base, pairs: () => summary?.pairs,
    repeated: table.repeats.ratio });
  const { tools, origins } = toolsOf({ runs: () => runs, root: () => both.root, choose: (ids) => choose(ids),
    refuse: (error) => refuse(error) });
  const opens = (word, panel) => {
    const one = button(word, () => show(panel.element.hidden ? panel : null), { "aria-expanded": "false" });
    panel.button = one;
    panel.element.hidden = true;
    panel.element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      show(null);
      one.focus();
    });
    return one;
  };
  /** Open one of the two panels, or none. */
  function show(panel, focus = true) {
    for (const one of [adding, starting, asking]) {
      one.element.hidden = one !== panel;
      one.button.setAttribute("aria-expanded", one === panel);
    }
    panel?.shown(focus);
  }
  const queue = busy(() => runs);
  const measured = h("label", null, h("span", { class: "quiet" }, "baseline"), baseline),
    showing = h("label", null, h("span", { class: "quiet" }, "show"), seen);
  element.replaceChildren(
    h("header", { class: "bar" }, h("h1", null, "Compare"), measured, showing,
      h("span", { class: "ways" }, opens("Add a run", adding), opens(starting.title, starting),
        opens(asking.title, asking))),
    notice,
    none,
    adding.element,
    starting.element,
    asking.element,
    queue.element,
    host,
    table.element,
    overPrompts.element,
    aloud
  );
  baseline.addEventListener("change",
    () => ((base = Number(baseline.value)), both?.against(base), figures(), address()));
  seen.addEventListener("change", () => ((views = VIEWS[Number(seen.value)][1]), build(runs.map((x) => x.id))));

  const refuse = (error) => ((notice.className = "told ds-refusal"), notice.replaceChildren(inWords(error)));
  const say = (words) => ((notice.className = "told"), notice.replaceChildren(words));

  // ---- which runs

  /** Whether nothing else is asked or told here. */
  const idle = () => starting.element.hidden && asking.element.hidden && !overPrompts.id();
  /** Compare these from now on; the address names them. */
  function choose(ids) {
    named = true;
    say("");
    build(ids);
    if (runs.length >= FEWEST) show(null), both.root.focus({ preventScroll: true });
    address();
  }
  function build(ids) {
    const kept = new Map(runs.map((run) => [run.id, run])), place = both && !both.following ? both.at : null;
    events.close();
    runs = [...new Set(ids)].slice(0, MOST).map((id) => kept.get(id) || blank(id));
    const stores = runs.map((run) => run.view?.store);
    both?.destroy();
    both = null;
    base = Math.min(base, Math.max(0, runs.length - 1));
    baseline.replaceChildren(...runs.map((run, k) => h("option", { value: k }, LETTERS[k])));
    baseline.value = base;
    const enough = runs.length >= FEWEST;
    host.hidden = table.element.hidden = measured.hidden = showing.hidden = !(none.hidden = enough);
    chips.replaceChildren(
      ...(enough ? [] : runs).map((run, k) =>
        h("li", null, h("b", null, LETTERS[k]), ` ${paneTitle(run)} `,
          button("Remove", () => choose([]), { "aria-label": `remove run ${LETTERS[k]}` }))
      )
    );
    adding.drawn();
    if (!enough) return runs.forEach((run) => (run.view = null)), idle() && show(adding, false);
    both = pair(host, { count: runs.length, base, views, align: way, empty: EMPTY, tools, why,
      name: (k) => runs[k]?.named, ratio: (k) => runs[k] && ratio(k), onSeek: moved,
      onGap: (k, ...of) => runs[k] && gap(runs[k], ...of), onMove: figures,
      onAlign: (to) => ((way = to), address()), onPane: front });
    both.root.lastElementChild.before(switcher);
    // one speaks for all
    for (const reader of both.root.querySelectorAll(".aloud")) reader.setAttribute("aria-live", "off");
    switcher.replaceChildren(
      ...runs.map((run, k) =>
        button(LETTERS[k], () => (front(k), run.view.root.focus({ preventScroll: true })), { "aria-pressed": "false" })
      )
    );
    runs.forEach((run, k) => {
      run.view = both.views[k];
      for (const message of stores[k] ? [stores[k].head, ...stores[k].steps, stores[k].end] : [])
        if (message) run.view.push(message);
    });
    front(0);
    if (place) both.seek(way === "clock" ? { seconds: place.seconds } : { token: place.token });
    table.runs(runs, base);
    events.connect();
    figures();
  }
  /** Of panes that do not fit beside each other this one is seen. */
  function front(k) {
    both.root.dataset.front = k;
    [...switcher.children].forEach((one, i) => one.setAttribute("aria-pressed", i === k));
  }

  // ---- the figures

  let asked = "", timer = 0, soon = false, last = -Infinity, spoken = 0;
  /** Ask for the figures when steps have come: at once when all is there, else now and then. */
  function figures() {
    if (!both || current() !== "compare") return;
    origins();
    const over = runs.every((run) => run.end),
      as = runs.map((run) => `${run.id} ${run.view.store.count} ${run.status}`).join();
    speak();
    if (timer && over && !soon) timer = clearTimeout(timer) || 0; // all is there now
    if (as === asked || timer) return table.draw(summary, base);
    soon = over;
    timer = setTimeout(async () => {
      timer = 0;
      last = performance.now();
      const ids = runs.map((run) => run.id).join();
      asked = runs.map((run) => `${run.id} ${run.view?.store.count} ${run.status}`).join();
      try {
        const answer = await ask(`/ds/compare/summary?runs=${ids}`);
        if (ids !== runs.map((run) => run.id).join() || !both) return;
        summary = answer;
        both.against();
      } catch (error) {
        if (both) refuse(error);
      }
      figures();
    }, over ? 50 : Math.max(50, FRESH - (performance.now() - last)));
  }
  /** Say where all stand, not more than once a second. */
  function speak() {
    const time = performance.now();
    if (time - spoken < 1000) return;
    spoken = time;
    const { token, seconds, steps } = both.at;
    aloud.textContent = `${way === "token" ? `token ${grouped(token)}` : milli(seconds)}: `
      + `${steps.map((i, k) => `${LETTERS[k]} ${i < 0 ? "no step" : `step ${i}`}`).join(", ")}`;
  }

  // ---- their steps

  const gap = (run, from, to) => fill(run, from, to, () => runs.includes(run) && run.view);
  const events = stream({
    runs: () => runs,
    changed: () => (queue.look(), both?.against(base), table.runs(runs, base)),
    over: () => (table.runs(runs, base), figures()),
    lost(kept, errors) {
      build(kept.map((run) => run.id));
      refuse(errors.flatMap((error, k) => (error ? [`Run ${LETTERS[k]}: ${error.message}`] : [])).join(" "));
      address();
    },
  });

  // ---- the address

  let writing = 0;
  function moved() {
    speak();
    writing = writing || setTimeout(() => ((writing = 0), address()), 400);
  }
  function address() {
    if (current() !== "compare") return;
    const at = both && !both.following ? (way === "clock" ? both.at.seconds : both.at.token) : null;
    write({ runs: named ? runs.map((run) => run.id) : [], base, way, at, repeat: table.repeats.id(),
      set: overPrompts.id() });
  }
  /** Show what the address names; without runs there those of the Lab, if none was chosen before. */
  function remembered() {
    if (current() !== "compare") return;
    const asks = read(), { runs: ids, at, repeat, set } = asks;
    if (set) overPrompts.restore(set);
    if (ids === null) return runs.length ? address() : build(inLab.map((x) => x.id).filter(Boolean));
    if (!ids)
      return build(runs.map((x) => x.id)), refuse(
        "The runs of this address cannot be read: it takes two to four numbers of 16 digits, with commas between "
          + "them."
      );
    named = true;
    base = Math.min(ids.length - 1, asks.base);
    way = asks.way;
    if (ids.join() === runs.map((x) => x.id).join()) both?.against(base), (baseline.value = base), both?.align(way);
    else build(ids);
    if (repeat) table.repeats.restore(repeat);
    if (both && at !== null) both.seek(way === "clock" ? { seconds: at } : { token: Math.max(1, Math.round(at)) });
  }
  window.addEventListener("hashchange", remembered);
  return {
    shown() {
      remembered();
      figures();
    },
    hidden() {
      write({ runs: [] });
    },
  };
}
