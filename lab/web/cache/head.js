/* head: the positions of one layer and head, one cell each, and why each is kept or gone. */
import { button, formatCount, h, visibleText, toggle } from "../scope.js";
import { isAbsent, quiet, section, share, table, token } from "./parts.js";
import { question } from "./question.js";

export function headView(shared) {
  const choice = h("select", { "aria-label": "layer and head" }), said = h("span", { class: "quiet" }),
    cells = h("div", { class: "cells", role: "listbox", "aria-orientation": "horizontal" }),
    twin = h("div", { hidden: "" }), note = quiet();
  const asTable = toggle("Show as table", (on) => ((twin.hidden = !on), (cells.hidden = on), draw()));
  const back = button("earlier", () => turn(-1)), on = button("later", () => turn(1));
  const element = section("one",
    [h("h2", null, "One head"), choice, said, h("span", { class: "row end" }, back, on, asTable)], cells, twin, note);
  let strip = null, begin = 0;

  const from = () => Math.max(0, Math.min(begin, Math.max(0, (shared.map?.length ?? 0) - shared.many())));
  const asked = question(
    () => (shared.known()
      ? shared.query("/head", { step: shared.now(), row: shared.at.row, from: from(), many: shared.many() }) : null),
    (answer) => ((strip = answer), draw())
  );
  /** Keep the cursor inside the stretch that is shown. */
  function follow() {
    const { position } = shared.at, many = shared.many();
    if (position !== null && (position < from() || position >= from() + many))
      begin = Math.max(0, position - Math.floor(many / 3));
    choice.value = String(shared.at.row);
  }
  function turn(by) {
    const many = shared.many();
    begin = Math.max(0, Math.min(Math.max(0, shared.map.length - many), from() + by * many));
    shared.load();
  }
  /** Offer the rows of the map. */
  function fill() {
    const all = shared.map.layers * shared.map.heads;
    if (choice.childElementCount === all) return;
    choice.replaceChildren(...[...Array(all).keys()].map((row) => h("option", { value: row }, shared.rowName(row))));
    shared.at.row = Math.min(shared.at.row, all - 1);
  }
  choice.addEventListener("change", () => shared.choose(Number(choice.value)));

  function cell([p, text, letter, left, part], tabbed, largest, marked) {
    const hit = marked && p >= marked[0] && p <= marked[1], { map, at } = shared;
    const there = left === null && !isAbsent(letter);
    const kinds = ["cell", there ? "held" : "gone", left === shared.now() ? "now" : "", hit ? "hit" : ""];
    const words = `position ${p}, ${visibleText(text)}: ${map.words[letter]}`
      + (left === null ? "" : `, in ${left < 0 ? "the prompt's reading" : `step ${left}`}`)
      + (part ? `; ${share(part)} of this head's attention` : "") + (hit ? "; found" : "");
    const high = part === null || !there ? 0 : Math.max(1, (100 * part) / largest).toFixed(1);
    return button(
      [h("span", { class: "bar" }, h("i", { style: `height: ${high}%` })), h("b", null, letter), token(text),
        h("small", null, String(p))],
      () => shared.go(strip.row, p),
      { role: "option", "aria-selected": String(p === at.position), tabindex: p === tabbed ? 0 : -1,
        class: kinds.join(" ").trim(), "data-p": p, "aria-label": words }
    );
  }
  function draw() {
    const { map, at } = shared;
    if (!strip || !map) return void cells.replaceChildren();
    const largest = Math.max(1e-9, ...strip.entries.map((x) => x[4] ?? 0)),
      measured = strip.entries.some((x) => x[4] !== null), last = strip.from + strip.entries.length - 1;
    const focused = cells.contains(document.activeElement);
    said.textContent = `${formatCount(strip.held)} of ${formatCount(strip.length)} kept; `
      + `positions ${strip.from} to ${last}`;
    back.setAttribute("aria-disabled", String(strip.from === 0));
    on.setAttribute("aria-disabled", String(last + 1 >= strip.length));
    const inside = at.position !== null && at.position >= strip.from && at.position <= last,
      tabbed = inside ? at.position : strip.from, marked = shared.marked();
    cells.setAttribute("aria-label", `positions ${strip.from} to ${last} of ${shared.rowName(strip.row)}`);
    cells.replaceChildren(...strip.entries.map((entry) => cell(entry, tabbed, largest, marked)));
    if (focused) cells.querySelector("[tabindex='0']")?.focus({ preventScroll: true });
    const letters = [...new Set(strip.entries.map((x) => x[2]))];
    const bars = measured
      ? `bars: part of the attention that this head's entries have drawn, the highest ${share(largest)}`
      : "bars need the attention, which is not recorded in this step";
    note.textContent = [...letters.map((x) => `${x} ${map.words[x]}`), bars].join("; ") + ".";
    if (!twin.hidden) list();
  }
  function list() {
    const rows = strip.entries.map(([p, text, letter, left, part]) => [String(p), token(text),
      `${letter}, ${shared.map.words[letter]}`, left === null ? "–" : left < 0 ? "prompt" : `step ${left}`,
      part === null || left !== null ? "–" : share(part)]);
    twin.replaceChildren(table(`Entries of ${shared.rowName(strip.row)} after step ${strip.step}`,
      ["position", "token", "state", "left", "attention"], rows));
  }
  cells.addEventListener("keydown", (event) => {
    const { at } = shared;
    if (event.ctrlKey || event.metaKey || event.altKey || !strip) return;
    const p = Number(event.target.dataset?.p),
      columns = { ArrowLeft: p - 1, ArrowRight: p + 1, Home: strip.from, End: strip.from + strip.entries.length - 1 },
      to = columns[event.key];
    const row = { ArrowUp: at.row - 1, ArrowDown: at.row + 1 }[event.key];
    if (Number.isNaN(p) || (to === undefined && row === undefined)) return;
    event.preventDefault();
    event.stopPropagation();
    shared.go(row ?? at.row, to ?? p);
    cells.querySelector(`[data-p="${shared.at.position}"]`)?.focus({ preventScroll: true });
  });
  const reset = () => ((begin = 0), (strip = null), cells.replaceChildren());
  return { element, question: asked, follow, fill, draw, reset };
}
