/* Model: the structure of a run's model. A row per layer: its matrices by bytes, shaded by bits per weight,
 * hatched where they were removed; its heads by KV head; and the description of a part when it is pressed. */
import { figures, grid, h, say, see, set, toggle } from "../shared/elements.js";
import { bring } from "../shared/extras.js";
import { bytesBar, headBoxes } from "./layer_rows.js";
import { bitsOf, endsOf, headMarks, matricesOf, SHADES, shadeOf, sumOf } from "./matrices.js";
import { formatCount, formatShort, size } from "../shared/numbers.js";
import { roundsView } from "./rounds.js";

const TORN = 2; // the longest bar of embedding and head, in bars of a layer
const WAYS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** Rows of parts that can be pressed, and walked through by keys: one stop of the Tab key. tell(part) is called
 *  with the chosen one. */
function walkable(body, tell) {
  let parts = [], at = [0, 0];
  const placeOf = (target) => {
    const cell = target.closest("button"), row = parts.findIndex((all) => all.some((x) => x.element === cell));
    return row < 0 ? null : [row, parts[row].findIndex((x) => x.element === cell)];
  };
  const stop = (on) => parts[at[0]]?.[at[1]] && set(parts[at[0]][at[1]].element, { tabindex: on ? 0 : -1 });
  function go(row, k) {
    stop(false);
    at = [row, k];
    stop(true);
    body.querySelector(".now")?.classList.remove("now");
    parts[row][k].element.classList.add("now");
    tell(parts[row][k]);
    parts[row][k].element.focus();
  }
  body.addEventListener("click", ({ target }) => {
    const place = placeOf(target);
    if (place) go(...place);
  });
  body.addEventListener("keydown", (event) => {
    const way = WAYS[event.key], place = way && placeOf(event.target);
    if (!place) return;
    event.preventDefault(), event.stopPropagation(); // elsewhere left and right are the steps
    const row = Math.max(0, Math.min(parts.length - 1, place[0] + way[0]));
    go(row, Math.max(0, Math.min(parts[row].length - 1, place[1] + way[1])));
  });
  return (rows) => {
    parts = rows.filter((row) => row.length);
    at = [0, 0];
    stop(true);
  };
}

/** The meaning of the shades and patterns of some matrices. */
function legendOf(cells, model) {
  const { scores, places } = model.there ? headMarks(model) : {};
  const there = cells.filter((x) => x.bytes), swatch = (cls, words) => h("span", null,
    h("i", { class: `swatch-of ${cls}` }), words);
  const shades = SHADES.map(([, shade, words]) => {
    const own = [...new Set(there.filter((x) => shadeOf(x.bits) === shade).map((x) => bitsOf(x.bits)))];
    return own.length && swatch(`bits-${shade}`, `${own.length < 4 ? own.sort((a, b) => a - b).join(", ") : words} `
      + "bits a weight");
  });
  return [...shades, cells.some((x) => x.gone) && swatch("cut", "gone"), cells.some((x) => x.saved > 0)
    && swatch("spare", "saved by fewer bits"), swatch("kv", "a KV head, query heads in it"),
    scores && swatch("worth", `${scores.word.toLowerCase()}: more of it`),
    places && h("span", null, h("b", null, "1"), ` ${places.word.toLowerCase()}: ${places.what}`)].filter(Boolean);
}

/** All numbers of a model as a table. */
function matrixTable(model) {
  const own = model.findings.filter((x) => x.over === "matrix");
  const values = ({ place: [i, k] }) => own.map((x) => {
    const value = i !== null ? x.values[i][k] : k ? x.values[x.values.length - 1][0] : null;
    return value === null ? "–" : String(Number(value.toPrecision(4)));
  });
  const row = (name, x) => [name, x.name, x.bytes ? `${formatCount(x.rows)} × ${formatCount(x.columns)}` : "gone",
    x.bytes ? bitsOf(x.bits) : "–", size(x.bytes), x.gone ? size(x.gone) : "–", ...values(x)];
  return grid(`Matrices of ${model.name}`, ["layer", "matrix", "rows × columns", "bits", "bytes", "gone",
    ...own.map((x) => x.word.toLowerCase())],
    [...model.layers.flatMap((_, i) => matricesOf(model, i).map((x) => row(i, x))),
      ...endsOf(model).map((x) => row("", x)), ["", "norms and biases", "", "", size(model.rest), ""]]);
}

/** A row: its name, its bar, bytes and bits. */
function layerRow(name, bar, cells, cls) {
  const bytes = sumOf(cells, "bytes"), many = cells.reduce((all, x) => all + x.rows * x.columns, 0);
  return h("div", { class: cls }, h("span", { class: "who" }, name), bar.element, h("span", { class: "much" },
    h("b", null, bytes ? size(bytes) : "gone"), many ? ` ${bitsOf((8 * bytes) / many)} bits` : ""));
}

/** The models of a run, one at a time: the first that was made from another, until another is chosen. */
export function modelView() {
  const sums = figures(), roles = h("span", { class: "switch", role: "group", "aria-label": "model of the run" });
  const legend = h("p", { class: "bits-legend quiet" }), body = h("div", { class: "layers", role: "group",
    "aria-label": "layers of the model; arrow keys go from part to part" });
  const card = h("div", { class: "part-card", role: "status" }), rounds = roundsView();
  const twin = h("div", { class: "twin" }), earlier = h("p", { class: "quiet earlier" });
  const element = h("div", { class: "model" }, h("header", null, roles, sums.element), legend, body, card,
    rounds.element, earlier, h("p", { class: "under" },
      toggle("Enlarge what is there", (on) => ((enlarged = on), build())),
      toggle("Show as table", (on) => ((tabled = on), build()))), twin);
  const parts = walkable(body, ({ says }) => {
    const { title, lines } = says();
    card.replaceChildren(h("h3", null, title), ...lines.map((line) => h("p", { class: "line" }, line)));
  });
  let enlarged = false, tabled = false, models = null, role = "target", width = 0, drawn = 0;

  function build() {
    const model = models[role], rows = model.layers.map((_, i) => matricesOf(model, i)), ends = endsOf(model);
    const long = (list) => sumOf(list, "bytes") + (enlarged ? 0 : sumOf(list, "gone") + sumOf(list, "saved"));
    const layer = Math.max(...rows.map(long));
    const most = Math.max(layer, Math.min(TORN * layer, ...ends.map((x) => long([x]))));
    const all = rows.map((cells, i) => {
      const bar = bytesBar(cells, most, enlarged, model), heads = headBoxes(i, model);
      const line = layerRow(`L${i}`, bar, cells, "layer");
      line.append(heads.element);
      return { line, items: [...bar.items, ...heads.items] };
    });
    for (const one of ends) { // one that is much longer than a layer fills its row, and says so
      const own = long([one]), torn = own > most, bar = bytesBar([one], torn ? own : most, enlarged, model);
      all.push({ line: layerRow(one.name, bar, [one], torn ? "layer end torn" : "layer end"), items: bar.items });
    }
    body.replaceChildren(...all.map((x) => x.line));
    const items = all.flatMap((x) => x.items), room = items.map((x) => x.element.clientWidth); // read before written
    items.forEach((x, k) => say(x.element, x.words.find((words) => 6.5 * words.length + 4 <= room[k]) ?? ""));
    parts(all.map((x) => x.items));
    legend.replaceChildren(...legendOf([...rows.flat(), ...ends], model));
    sums.tell([[formatShort(model.params), " parameters"],
      [size(model.bytes), model.changed ? ` of ${size(model.dense)}` : ""],
      [bitsOf((8 * model.bytes) / model.params), " bits a parameter"]]);
    card.replaceChildren(h("p", { class: "quiet" }, "Press a part, or go there with the arrow keys: what it is, and "
      + "what became of it."));
    rounds.tell(model);
    say(earlier, `Not done again, but read from where an earlier load had left it: ${model.kept.join(", ")}.`);
    see(earlier, model.kept.length);
    see(twin, tabled);
    twin.replaceChildren(...(tabled ? [matrixTable(model)] : []));
  }
  function choose(name) {
    role = name;
    for (const x of roles.children) set(x, { "aria-pressed": String(x.textContent === role) });
    build();
  }
  return {
    element,
    look: () => (width = element.clientWidth),
    restyle: () => (drawn = 0),
    draw(store) {
      const given = store.head.built;
      if ((!width && !(width = element.clientWidth)) || (given === models && drawn === width)) return;
      const fresh = given !== models;
      [models, drawn] = [given, width];
      if (!fresh) return build();
      const names = Object.keys(models);
      roles.replaceChildren(...names.map((name) => h("button", { type: "button" }, name)));
      [...roles.children].forEach((x) => x.addEventListener("click", () => choose(x.textContent)));
      see(roles, names.length > 1);
      choose(names.find((name) => models[name].changed) ?? names[0]);
    },
  };
}

bring("model", { modelView });
