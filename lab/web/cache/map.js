/* map: which positions each layer and head keeps after the step, as a picture to walk through, and as a table. */
import { formatRange, formatCount, h, plural, size, visibleText, toggle } from "../scope.js";
import { panes } from "../runs/runs.js";
import { grid, unpackBytes } from "./grids.js";
import { positionTable } from "./position_table.js";
import { statusLine, canvas, quiet, refuse, section, share } from "./parts.js";
import { question } from "./question.js";

const NAMED = 3; // extra entries that are listed by name
export const PLAIN = 0.62; // strength of held entries where attention is not recorded

/** drawn(): called when the server has answered; enter(): show the life of the chosen entry. */
export function mapView(shared, { drawn, enter }) {
  const title = h("h1"), lead = h("span", { class: "lead" }), legend = h("span", { class: "legend" });
  const picture = canvas("application", "map of the cache"), tip = h("p", { class: "tip", role: "status" }),
    rule = quiet(), why = statusLine("alert"), twin = positionTable(shared, why);
  const box = h("div", { class: "picture" }, picture);
  const asTable = toggle("Show as table",
    (on) => ((twin.element.hidden = !on), (box.hidden = on), on && twin.fill()));
  const element = section("map", [title, lead, legend], why, box, h("div", { class: "tools" }, tip, asTable),
    twin.element, rule);
  let spots = null; // positions of the cells of the picture
  shared.box = box;

  const columns = () => Math.max(40, Math.min(450, Math.floor((shared.wide() - 34) / 2)));
  const asked = question(
    () => (shared.looked() && shared.wide() ? shared.query("", { step: shared.now(), columns: columns() }) : null),
    (answer, trouble) => {
      shared.map = answer && { ...answer, run: panes[0].id, kept: unpackBytes(answer.kept),
        now: unpackBytes(answer.now),
        mass: answer.mass && unpackBytes(answer.mass), merged: answer.merged && unpackBytes(answer.merged),
        read: answer.read && unpackBytes(answer.read) };
      refuse(why, trouble);
      drawn();
    }
  );

  /** The text above the picture. fits: whether the map belongs to the displayed run and step. */
  function caption(fits) {
    const { map } = shared;
    title.textContent = `Step ${shared.now()}`;
    box.hidden = !fits || map.untold || !twin.element.hidden;
    lead.replaceChildren();
    if (!fits) return;
    lead.append(h("b", null, `${formatRange(map.least, map.held)} of ${formatCount(map.length)}`),
      " positions kept per head, ",
      h("b", null, size(map.kept_bytes)), map.kept_bytes < map.full ? ` of ${size(map.full)}` : " kept",
      map.evicted ? h("span", null, ", ", h("b", null, formatCount(map.evicted)), ` ${map.went} now`) : "");
    legend.replaceChildren(...legendOf(map));
    asTable.hidden = map.untold;
    if (!map.untold) return;
    rule.textContent = `${map.unlisted[0].toUpperCase()}${map.unlisted.slice(1)}.`;
    tip.textContent = "";
  }
  /** Per column, the score that selects its words: the attention that it drew, or how often it is kept. */
  function scores() {
    const { map } = shared, score = new Float64Array(map.columns);
    for (let row = 0; row < map.layers * map.heads; row++)
      for (let c = 0; c < map.columns; c++)
        score[c] += map.mass ? Math.max(0, map.mass[row * map.columns + c] - 1) : map.kept[row * map.columns + c];
    return score;
  }
  function draw() {
    const { map, at } = shared;
    if (!map || map.untold || box.hidden || !shared.wide()) return;
    const rows = map.layers * map.heads, marked = shared.marked(), score = scores();
    const bound = [...score].sort((a, b) => b - a)[Math.min(map.columns - 1, 40)] ?? 0,
      words = [...score.keys()].filter((c) =>
        score[c] >= bound && score[c] > 0 && /[\p{L}\p{N}]{2}/u.test(String(map.texts[c]))
      );
    spots = grid(picture, shared.colours(), {
      wide: shared.wide(),
      rows,
      columns: map.columns,
      group: map.heads,
      most: 22,
      tall: rows > 128 ? 3 : rows > 64 ? 4 : rows > 32 ? 7 : 12,
      cell: (row, c) => {
        const k = row * map.columns + c;
        const worth = map.mass ? Math.max(0, map.mass[k] - 1) / 254 : PLAIN;
        return [map.kept[k] / 255, worth * opacity(map, k), map.now[k], map.merged?.[k]];
      },
      label: (row) => (row % map.heads ? "" : `L${row / map.heads}`),
      under: map.packed / map.bin,
      beside: map.beside.map((x) => x.at / map.bin),
      over: words.map((c) => [c, visibleText(map.texts[c]).slice(0, 12).replace(/^␣/, "")]),
      marked: marked && ((c) => marked[1] >= c * map.bin && marked[0] < (c + 1) * map.bin),
      cursor: at.position === null ? null : { row: at.row, column: shared.columnOf(at.position) },
    });
    picture.setAttribute("aria-label",
      `cache after step ${map.step}: ${plural(rows, "row")} of layers and heads, ${plural(map.length, "position")}, `
        + `${formatRange(map.least, map.held)} ${map.held === 1 ? "entry" : "entries"} kept per head; `
        + "the arrow keys move");
    rule.textContent = mapCaption(map, marked);
    say();
  }
  /** Describe the cell under the cursor, or under the pointer. */
  function say(row = shared.at.row, column = shared.at.position === null ? null
    : shared.columnOf(shared.at.position)) {
    const { map, at, columnOf } = shared;
    if (!map || column === null || column >= map.columns)
      return void (tip.textContent = "The arrow keys walk in the map; Enter goes to the life of the entry.");
    const k = row * map.columns + column, first = column * map.bin, last = Math.min(map.length, first + map.bin) - 1,
      part = map.kept[k] / 255;
    const what = map.bin === 1 ? (part ? "kept" : map.went)
      : part === 1 ? "all kept"
      : part ? `${Math.round(part * (last - first + 1))} of ${last - first + 1} kept` : `all ${map.went}`;
    const mass = map.mass && part
      ? `, attention drawn: ${share((Math.max(0, map.mass[k] - 1) / 254) ** 2)} of its layer's largest` : "";
    const position = at.position !== null && columnOf(at.position) === column && row === at.row ? at.position : first;
    const place = map.bin === 1 ? `position ${first} ${visibleText(map.texts[column])}`
      : `positions ${first} to ${last}${position !== first ? `, at ${position}` : ""}`;
    const became = map.merged?.[k] ? (map.bin === 1 ? ", merged into another entry" : ", some merged into others") : "",
      packed = first < map.packed ? `, packed in ${bitsOf(map)}` : "";
    tip.textContent = `${shared.rowName(row)}, ${place}: ${what}`
      + `${map.now[k] ? `, ${map.went} in this step` : ""}${became}${packed}${part ? readText(map, k) : ""}${mass}`;
  }

  picture.addEventListener("click", (event) => {
    const hit = spots?.at(event);
    if (hit) shared.go(hit.row, hit.column * shared.map.bin);
  });
  picture.addEventListener("pointermove", (event) => {
    const hit = spots?.at(event);
    if (hit?.inside) say(hit.row, hit.column);
  });
  picture.addEventListener("pointerleave", () => say());
  picture.addEventListener("keydown", (event) => walk(shared, event, enter));
  return {
    element,
    question: asked,
    caption,
    draw,
    /** The table, where it is shown instead of the picture. */
    list: () => twin.element.hidden || twin.fill(),
    reset: twin.reset,
    reveal: () => (picture.scrollIntoView({ block: "nearest" }), picture.focus({ preventScroll: true })),
  };
}

/** The meaning of the picture's marks. */
const legendOf = (map) => [
  h("i", { class: "held" }), map.mass ? "stronger: more attention" : "kept",
  h("i", { class: "gone" }), map.went, h("i", { class: "now" }), `${map.went} in this step`,
  ...(map.read ? [h("i", { class: "unread" }), "kept, not read in this step"] : []),
  ...(map.merged ? [h("i", { class: "merged" }), "merged into another entry"] : []),
  ...(map.packed ? [h("i", { class: "packed" }), `packed, ${bitsOf(map)}`] : []),
  ...(map.beside.length ? [h("i", { class: "beside" }), extrasText(map.beside)] : []),
];

const bitsOf = ({ bits }) => (bits ? `${Number(bits.toFixed(2))} bits a number` : "fewer bits");

const FORMS = { soft: ["soft entry", "soft entries"], latent: ["latent entry", "latent entries"] };

/** Describe an extra entry, which belongs to no token of the text. */
function extraText({ form, at, entries }) {
  const [one, many] = FORMS[form] ?? ["entry", "entries"];
  const what = !entries ? "a trained state" : `${formatCount(entries)} ${entries === 1 ? one : many}`;
  return `${what} ${at ? `behind position ${at - 1}` : "before the text"}`;
}

/** The same for all of them, the first by name. */
function extrasText(beside) {
  const more = beside.length - NAMED;
  return beside.slice(0, NAMED).map(extraText).join(", ") + (more > 0 ? ` and ${formatCount(more)} more` : "");
}

/** The remaining strength of a cell if not all of it was read. */
const opacity = (map, k) => (map.read ? 0.1 + 0.9 * (map.read[k] / 255) : 1);

const readText = ({ read }, k) => !read ? "" : read[k] === 255 ? ", read in this step"
  : read[k] ? ", some read in this step" : ", not read in this step";

/** How to read the picture: its columns, the policy's knobs, what is marked and what is missing. */
function mapCaption(map, marked) {
  const kinds = [map.sinks ? `the first ${map.sinks} (S) never leave` : "",
    map.once ? `the prompt's last ${map.near ?? 0} and all that was written (W) stay`
      : map.near !== null && map.near !== undefined ? `the newest ${map.near} (W) stay` : "",
    map.heavy ? `of those between each head keeps the ${map.heavy} that are worth most (H)` : ""].filter(Boolean);
  return [
    map.bin > 1
      ? `One column is ${map.bin} positions: filled as high as the share of them that is kept, as strong as the `
        + "strongest."
      : "",
    kinds.length ? `By the policy's knobs ${kinds.join(", ")}.` : "",
    map.loaded ? `The entries of the first ${plural(map.loaded, "position")} came from a saved cache; no pass of `
      + "this run has read them in." : "",
    map.beside.length ? `A band: ${extrasText(map.beside)}, without tokens; every head attends `
      + "to that too, and nothing evicts it." : "",
    marked ? "Triangles below: the text that was found." : "",
    map.mass ? "" : "How much attention an entry drew is not recorded in this step.",
    map.thinned ? `The map of attention was thinned: ${map.thinned}.` : "",
  ].filter(Boolean).join(" ");
}

/** A key on the map: one row or column on, ten, or to the end of the row. */
function walk({ map, at, columnOf, go }, event, enter) {
  if (!map || event.ctrlKey || event.metaKey || event.altKey) return;
  const p = at.position ?? 0, by = map.bin, key = event.key;
  if (at.position === null && /^(Arrow|Page|Home|End)/.test(key)) go(at.row, key === "End" ? map.length - 1 : 0);
  else if (key === "ArrowLeft") go(at.row, columnOf(p) * by - by);
  else if (key === "ArrowRight") go(at.row, columnOf(p) * by + by);
  else if (key === "ArrowUp") go(at.row - 1, p);
  else if (key === "ArrowDown") go(at.row + 1, p);
  else if (key === "PageUp") go(at.row, p - 10 * by);
  else if (key === "PageDown") go(at.row, p + 10 * by);
  else if (key === "Home") go(at.row, 0);
  else if (key === "End") go(at.row, map.length - 1);
  else if (key === "Enter" && at.position !== null) enter();
  else return;
  event.preventDefault();
  event.stopPropagation();
}
