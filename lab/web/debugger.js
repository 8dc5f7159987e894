/* debugger: the run that is shown, stopped where a condition holds: how it was decided there, how it would have been
 * decided otherwise, and forks of it. A recorded run is walked; one that is going pauses. The trace is
 * never changed. */
import { button, firstOf, h, mount } from "./scope.js";
import { NONE, ask, ended, heard, panes, paneTitle, stepped, inWords, without } from "./runs.js";
import { here as address } from "./landing.js";
import { current, fragment } from "./address.js";
import { add, breakpoints, changed, enabled, list, numbered, remove, turn } from "./debugger/breaks.js";
import { otherPath } from "./debugger/otherpath.js";
import { watches } from "./debugger/watches.js";
import { whatif } from "./debugger/whatif.js";

const KEYS = [
  ["F8", "c", "continue to the next breakpoint; with Shift back"],
  ["F10", "n", "next step"],
  ["F11", "d", "next decision; with Shift the one before"],
  ["F9", "b", "breakpoint at this decision"],
];
const SETTLE = 150; // ms without a move after which the address names the step

export function page(element) {
  let pane = null, stop = null, met = null, timer = 0, following = false, written = [];
  const named = h("span", { class: "quiet" }), banner = h("p", { class: "banner", role: "status" });
  const trouble = h("p", { class: "trouble quiet" });
  const on = button("Continue", () => onward(1), { class: "ds-button go", title: "F8, c" }),
    back = button("Back", () => onward(-1), { class: "ds-button back", title: "Shift+F8, C" });
  const step = button("Step", () => next(), { title: "F10, n" }),
    decision = button("Decision", () => decide(1), { title: "F11, d" }),
    before = button("Decision before", () => decide(-1), { class: "ds-button before", title: "Shift+F11, D" }),
    here = button("Break here", () => mark(), { class: "ds-button here", title: "F9, b" });
  const host = h("div", { class: "stage" });
  const keys = h("section", { class: "keys" }, h("header", null, h("h2", null, "Keys")),
    h("dl", null,
      KEYS.map(([key, letter, word]) =>
        h("div", null, h("dt", null, word), h("dd", null, h("kbd", null, key), " ", h("kbd", null, letter)))
      )));
  const points = breakpoints((text) => find([text], 1, true)), looks = watches();
  element.replaceChildren(
    h("header", { class: "head" }, h("h1", null, "Debugger"), named,
      h("div", { class: "ways", role: "group", "aria-label": "walk" }, on, back, step, decision, before, here)),
    h("div", { class: "told" }, banner, trouble),
    h("div", { class: "desk" }, h("div", { class: "left" }, points.element, looks.element, keys), host)
  );

  const mine = mount(host, {
    views: ["tree", "card", "text", "time"],
    label: "the run under the debugger",
    empty: NONE,
    pace: "1/s",
    keys: KEYS.map(([key, letter, word]) => [`${key} ${letter}`, word]),
    onGap: () => {},
    onSeek: sought,
    onSelect: (selection) => following || (theirs()?.select(selection), settle()),
    onMove: draw,
  });
  const card = mine.root.querySelector(".decision"), side = h("div", { class: "side" });
  const tries = whatif(otherPath(mine.root).show), nothing = mine.root.querySelector(".empty");
  card.replaceWith(side);
  side.append(card, tries.element);
  side.after(tries.forks);

  const theirs = () => pane?.view, store = () => mine.store, live = () => !!pane?.id && !ended(pane);
  const chosen = () => (mine.selection?.step === mine.at ? mine.selection.node : firstOf(store().steps[mine.at]));

  // ---- the same run at the same step as in the Lab

  function sought(i) {
    if (following) return;
    if (mine.following) theirs()?.follow(true);
    else theirs()?.seek(i);
    settle();
  }
  /** Take over what has come, and where it is looked at. */
  function follow() {
    if (current() !== "debugger" || !panes[0]) return;
    if (pane !== panes[0]) begin();
    const view = theirs(), { head, end, steps } = view.store;
    following = true;
    if (head && head !== store().head) mine.push(head);
    steps.forEach((one, i) => one !== store().steps[i] && mine.push(one));
    if (end && end !== store().end) mine.push(end);
    if (view.following ? !mine.following : mine.following || mine.at !== view.at)
      view.following ? mine.follow(true) : mine.seek(view.at);
    const { selection } = view, own = mine.selection;
    if (selection && selection.step === view.at && (selection.step !== own?.step || selection.node !== own?.node))
      mine.select(selection);
    following = false;
    halted();
    draw();
  }
  function begin() {
    if (pane?.id && pane.id !== panes[0].id) unname();
    pane = panes[0];
    stop = met = null;
    mine.clear();
    tries.reset();
  }
  /** A run that is going has come to a breakpoint. */
  async function halted() {
    const { broke } = pane, run = pane;
    if (!broke || pane.status !== "paused" || broke.step >= store().count || met === `${broke.step} ${broke.condition}`)
      return;
    met = `${broke.step} ${broke.condition}`; // once: the reader may go elsewhere while it is paused
    const mark = (stop = { step: broke.step, text: broke.condition, why: broke.why });
    const hit = await ask(
      `/ds/run/${run.id}/find?condition=${encodeURIComponent(broke.condition)}&from=${broke.step}&way=1`
    ).catch(() => null);
    if (pane !== run || stop !== mark) return;
    await whole(broke.step).catch(() => null);
    if (pane === run && stop === mark && pane.status === "paused")
      go(broke.step, hit?.step === broke.step ? hit.node : null);
  }

  // ---- the address

  const parts = (without) =>
    location.hash.slice(1).split("&").filter((part) => part.includes("=") && !without.test(part));
  /** Name step and node in the address, when they have been looked at for a moment. */
  function settle() {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (current() !== "debugger" || !pane?.id || mine.at < 0) return;
      const place = address().split("#")[1].split("&");
      written = place.filter((part) => /^(step|node)=/.test(part));
      history.replaceState(null, "", fragment([...place, ...parts(/^(run|with|step|node)=/)]));
    }, SETTLE);
  }
  /** Take them out again when another page or run is looked at: only what we put there. */
  function unname() {
    clearTimeout(timer);
    const all = location.hash.slice(1).split("&"),
      rest = all.filter((part) => part.includes("=") && !written.includes(part));
    if (written.length && written.every((part) => all.includes(part))) history.replaceState(null, "", fragment(rest));
    written = [];
  }

  // ---- walking

  const tell = (sentence) => trouble.textContent !== sentence && (trouble.textContent = sentence);
  function go(i, node) {
    if (node === null || node === undefined) mine.seek(i);
    else mine.select({ step: i, node });
  }
  /** Step i with all that was recorded of it. */
  async function whole(i) {
    const view = theirs();
    if (!view.store.whole(i)) {
      for (const one of (await ask(`/ds/run/${pane.id}/range?from=${i}&to=${i + 1}`)).steps) view.push(one);
    }
    follow();
    return view.store.steps[i];
  }
  const post = (action) =>
    ask(`/ds/run/${pane.id}/${action}`, { method: "POST" }).catch((error) => tell(inWords(error)));

  /** The run goes on from where it has paused. */
  function leave() {
    stop = pane.broke = met = null;
    mine.follow(true);
  }
  async function onward(way) {
    tell("");
    if (!pane?.id) return tell(NONE);
    const texts = enabled().map((one) => one.text);
    if (live() && way > 0 && (mine.following || mine.at >= store().count - 1)) {
      if (pane.status !== "paused")
        return tell(
          texts.length ? "The run is going: it pauses at the next breakpoint."
            : "The run is going, and no breakpoint is on: it goes to its end."
        );
      leave();
      await post("resume");
      return draw();
    }
    if (!texts.length)
      return tell(
        list.length ? "No breakpoint is on: tick one, or add one."
          : "There is no breakpoint yet: write a condition under Breakpoints."
      );
    if (!(await find(texts, way)) && live() && way > 0) mine.follow(true); // the next Continue lets the run go on
  }
  /** Go to the next step (way 1), or the one before, at which one of the conditions holds; `around`: from the end to
   *  the beginning again. Whether there was one. */
  async function find(texts, way, around = false) {
    const run = pane, from = mine.at + way;
    if (!pane?.id) return false;
    tell("");
    try {
      const asked = async (text, first) => {
        const got = await ask(`/ds/run/${run.id}/find?condition=${encodeURIComponent(text)}&from=${first}&way=${way}`);
        return got.step === null && got.more && pane === run ? asked(text, got.next) : { ...got, text };
      };
      const reach = from >= 0 && from < store().count;
      let all = reach ? await Promise.all(texts.map((text) => asked(text, from))) : [];
      if (around && !all.some((one) => one.step !== null)) all = await Promise.all(texts.map((text) => asked(text, 0)));
      if (pane !== run) return false;
      const best = all.filter((one) => one.step !== null).sort((a, b) => way * (a.step - b.step))[0];
      if (!best)
        return void tell(
          `${texts.length === 1 ? `“${texts[0]}” does not hold` : "No breakpoint is met"} `
            + `${way > 0 ? "after" : "before"} step ${mine.at}.`
        );
      stop = { step: best.step, text: best.text, why: best.why };
      await whole(best.step);
      if (pane === run) go(best.step, best.node);
      draw();
      return true;
    } catch (error) {
      tell(inWords(error));
    }
    return false;
  }
  async function next() {
    tell("");
    if (!pane?.id) return tell(NONE);
    if (live() && mine.at >= store().count - 1) {
      if (pane.status !== "paused") return tell("The run is going: pause it first, or let it come to a breakpoint.");
      leave();
      return post("step");
    }
    if (mine.at >= store().count - 1) return tell("This is the last step.");
    mine.seek(mine.at + 1);
  }
  /** Nodes of a step in the order in which they were decided. */
  const decided = (one) => (!one?.verdict ? []
    : [...new Set([...one.verdict.tried, ...(one.verdict.extra ? [one.nodes.length - 1] : [])])]);
  async function decide(way) {
    tell("");
    if (!pane?.id || mine.at < 0) return tell(NONE);
    const run = pane;
    try {
      let i = mine.at;
      const first = decided(await whole(i)), k = first.indexOf(chosen()) + way;
      if (k in first && (way > 0 || first.includes(chosen()))) return go(i, first[k]);
      for (i += way; i >= 0 && i < store().count && pane === run; i += way) {
        const ids = decided(await whole(i));
        if (ids.length) return go(i, way > 0 ? ids[0] : ids.at(-1));
      }
      tell(way > 0 ? "There is no further decision." : "There is no earlier decision.");
    } catch (error) {
      tell(inWords(error));
    }
  }
  /** Set a breakpoint at the decision that is shown, or take it away; on a line of the list: turn that one on
   *  or off. */
  function mark() {
    tell("");
    const held = document.activeElement?.closest?.(".breaks li")?.dataset.text;
    if (held) return turn(held, !list.find((one) => one.text === held)?.on);
    if (mine.at < 0) return tell(NONE);
    const row = store().steps[mine.at]?.nodes?.[chosen()],
      text = `step == ${mine.at}` + (row && row[0] >= 0 ? ` and token in {${row[2]}}` : "");
    if (numbered(text)) remove(text), tell(`The breakpoint at “${text}” is gone.`);
    else add(text), tell(`Breakpoint ${numbered(text)}: ${text}.`);
  }

  element.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey
      || event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]")) return;
    const key = event.shiftKey && /^F\d/.test(event.key) ? "Shift+" + event.key : event.key;
    const act =
      { F8: () => onward(1), c: () => onward(1), "Shift+F8": () => onward(-1), C: () => onward(-1), F10: next, n: next,
        F11: () => decide(1), d: () => decide(1), "Shift+F11": () => decide(-1), D: () => decide(-1), F9: mark,
        b: mark }[key];
    if (!act) return;
    event.preventDefault();
    act();
  });

  // ---- drawn

  function draw() {
    if (!pane || current() !== "debugger") return;
    const { head } = store(), i = mine.at;
    const state = live() ? pane.status : "recorded", begun = store().count || !live();
    named.textContent = !pane.id ? ""
      : [paneTitle(pane), ...(head ? [head.model.name] : []), `run ${pane.id.slice(0, 8)}`, state].join(", ");
    nothing.textContent = !pane.id || begun ? without()
      : state === "paused" ? "The run is paused before its first step: press Continue, or Step."
      : "The run has made no step yet.";
    const number = stop ? numbered(stop.text) : 0, shown = stop && stop.step === i && pane.id;
    banner.hidden = !shown;
    const said = shown
      ? [`Stopped at ${number ? `breakpoint ${number}` : "a breakpoint"}: `, h("code", null, stop.text),
        h("span", null, `, step ${stop.step}. ${stop.why || ""}`)] : [];
    const as = shown ? `${number} ${stop.text} ${stop.step} ${stop.why}` : "";
    if (banner.dataset.as !== as) (banner.dataset.as = as), banner.replaceChildren(...said);
    for (const one of [on, back, step, decision, before, here]) one.setAttribute("aria-disabled", !pane.id);
    points.draw(pane, i);
    looks.draw(pane, i);
    tries.draw({ pane, store: store(), step: store().steps[i], at: i, node: chosen() });
  }

  ask("/ds/conditions").then(
    (conditions) => ([points, looks, tries].forEach((part) => part.known(conditions)), draw()),
    (error) => tell(`Breakpoints cannot be checked: ${error.message}`));
  changed(draw);
  stepped(follow);
  heard(follow);
  return { shown: () => (follow(), tries.look()), hidden: unname };
}
