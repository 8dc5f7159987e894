/* Picture: the cells of a picture as they fill in, in grey, and a map of the pass in which each of them came. */
import { figures, h, pool, say, see, set } from "../shared/elements.js";
import { bring } from "../shared/extras.js";
import { settledAt } from "./fills.js";
import { sayAll } from "../details/formulas.js";
import { tokenOf } from "../shared/marks.js";
import { plural } from "../shared/numbers.js";
import { nodesOf } from "../store.js";

const WIDEST = 26, NARROWEST = 4, NUMBERED = 18; // px of a cell, and the size from which it has room for a number

/** The existing cells after step i: cell -> {token, step}; -1 is the prompt. */
export function cellsAt({ head, steps }, i) {
  const { begin, known } = head.picture, at = new Map(known.map((token, cell) => [cell, { token, step: -1 }]));
  if (steps[i]?.canvas) {
    for (const [place, { token, step }] of settledAt({ steps }, i)) at.set(place - begin, { token, step });
    return at;
  }
  for (let k = 0; k <= i; k++)
    steps[k]?.made.forEach(([token], m) => at.set(steps[k].n + m - begin, { token, step: k }));
  return at;
}

/** The trials of a step: cell -> {refused: [text, ...]} of tokens that were drafted there and rejected. */
function refusedIn(step, begin) {
  const at = new Map();
  if (!step?.nodes || !step.drafted) return at;
  const depth = new Map([[0, 0]]);
  for (const { id, parent, status, text } of nodesOf(step)) {
    depth.set(id, parent === null || id === 0 ? 0 : (depth.get(parent) ?? 0) + 1);
    const cell = step.n - begin + depth.get(id) - 1;
    if (status === "reject") at.set(cell, [...(at.get(cell) ?? []), text]);
  }
  return at;
}

/** The picture and the passes in which its cells came; a click on a cell goes to its pass. Shown if a model writes
 *  pictures. */
export function pictureView(context) {
  const sums = figures(), key = h("p", { class: "quiet" }), status = h("p", { class: "took", role: "status" });
  const boards = ["grey levels", "pass in which each cell came"].map((label) => {
    const list = h("div", { class: "cells", role: "group", "aria-label": label });
    return { list, cells: pool(list, () => h("button", { type: "button" })),
      element: h("figure", null, list, h("figcaption", { class: "quiet" }, label)) };
  });
  const element = h("section", { class: "picture-pane", "aria-label": "picture" },
    h("header", null, h("h2", null, "Picture"), sums.element),
    h("div", { class: "boards" }, boards.map((board) => board.element)), status, key);
  let shape = null, came = new Map(), here = 0, first = 0;
  element.addEventListener("click", ({ target }) => {
    const cell = Number(target.dataset?.cell ?? NaN), step = came.get(cell)?.step ?? -1;
    if (Number.isNaN(cell)) return;
    here = cell;
    if (step < 0) return context.redraw();
    if (context.at !== step) context.seek(step);
    if (first) context.ring({ step, node: cell + shape.begin - first + 1 });
    context.redraw();
  });
  // arrows go from cell to cell while one of them has the focus
  element.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -shape?.width, ArrowDown: shape?.width }[event.key];
    if (!way || event.shiftKey || event.target.dataset.cell === undefined) return;
    const next = Number(event.target.dataset.cell) + way, list = event.target.parentElement;
    event.preventDefault();
    event.stopPropagation();
    if (next < 0 || next >= shape.width * shape.height) return;
    here = next;
    for (const { list: one } of boards)
      for (const old of one.children) set(old, { tabindex: Number(old.dataset.cell) === here ? 0 : -1 });
    list.children[next].focus();
  });

  /** The look and the words of a cell: {class, title}. */
  function cellOf(cell, now, standing, refused) {
    const one = came.get(cell), { width, levels } = shape, level = one ? levels.indexOf(one.token) : -1;
    const words = [`row ${Math.floor(cell / width) + 1}, column ${(cell % width) + 1}`], kinds = [];
    if (one) {
      words.push(level < 0 ? "no grey level" : `level ${level} of ${levels.length - 1}`,
        one.step < 0 ? "given by the prompt" : `came in pass ${one.step}`);
      if (level < 0) kinds.push("odd");
      if (one.step < 0) kinds.push("given");
      if (now) kinds.push("now");
    } else {
      kinds.push("open");
      words.push("open");
    }
    if (standing) {
      kinds.push("standin");
      words.push(`${tokenOf(standing)} was fed here as a stand-in`);
    }
    if (refused) {
      kinds.push("refused");
      words.push(`refused: ${refused.map((text) => tokenOf(text)).join(", ")}`);
    }
    return { kind: kinds.join(" ") || null, title: words.join(", "), level };
  }
  return {
    element,
    draw(store, i, across) {
      shape = store.head?.picture ?? null;
      see(element, shape && i >= 0);
      if (!shape || i < 0) return;
      const { width, height, levels, begin } = shape, step = store.steps[i], fill = step?.canvas;
      came = cellsAt(store, i);
      first = fill ? fill.at[0] : 0;
      const two = across >= 2 * width * 14 + 24 ? 2 : 1, room = Math.floor((across / two - 24) / width);
      const size = Math.max(NARROWEST, Math.min(WIDEST, room)), last = Math.max(1, store.count - 1);
      const fed = (k) => store.steps[k]?.canvas?.standins ?? [], standing = new Map(); // those that still wait
      for (let k = 0; k <= i; k++)
        for (const [place, , text] of fed(k)) if (!came.has(place - begin)) standing.set(place - begin, text);
      const refused = refusedIn(step, begin), rows = new Set();
      const fresh = [...came].filter(([, one]) => one.step === i).map(([cell]) => cell);
      for (const [k, { list, cells }] of boards.entries()) {
        set(list, { style: `--cell:${size}px;--columns:${width}` });
        for (let cell = 0; cell < width * height; cell++) {
          const one = came.get(cell), node = cells.at(cell), now = one?.step === i;
          const { kind, title, level } = cellOf(cell, now, standing.get(cell), refused.get(cell));
          const share = k ? (one?.step ?? 0) / last : level / (levels.length - 1);
          const word = k && one && one.step >= 0 && size >= NUMBERED ? String(one.step) : "";
          if (now) rows.add(Math.floor(cell / width) + 1);
          set(node, { "data-cell": cell, title, "aria-label": title, tabindex: cell === here ? 0 : -1,
            class: `${k ? "heat" : "grey"}${kind ? ` ${kind}` : ""}${k && share > 0.45 ? " deep" : ""}`,
            style: one && (k || level >= 0) ? `--p:${Math.round(100 * Math.max(0, share))}%` : null });
          say(node, kind?.includes("refused") ? "×" : kind?.includes("standin") ? "▹" : word);
        }
        cells.trim(width * height);
      }
      sums.tell([[`${came.size}`, ` of ${width * height} cells`], [`${i + 1}`, ` of ${store.count} passes`]]);
      const listed = [...rows].sort((a, b) => a - b).join(", "), form = fill?.form;
      const stand = fed(i).map(([place]) => `row ${Math.floor((place - begin) / width) + 1}`).join(", ");
      say(status, `Pass ${i}: ${plural(fresh.length, "cell")}`
        + sayAll(form?.cells ?? [], (name) => ({ rows: rows.size, listed })[name] ?? null, String)
        + (stand ? `; a stand-in for the last of ${stand}` : "")
        + (refused.size ? `; refused in ${plural(refused.size, "cell")}` : "") + ".");
      const marks = ["Framed: came in this pass.", "Dotted: open.", form?.standins,
      step?.drafted ? "× drafted and refused." : ""];
      say(key, marks.filter(Boolean).join(" "));
    },
  };
}

bring("picture", { pictureView });
