/* Layer rows: a layer of a model as elements: its bar of bytes, and its heads by KV head. A part that can be
 * pressed is {element, words, says}: its words, long and short, and its description as {title, lines}. */
import { h } from "../shared/elements.js";
import { bitsOf, headMarks, headsOf, findingLines, matrixText, shadeOf, sumOf } from "./matrices.js";
import { plural, size } from "../shared/numbers.js";

const CELLS = 2048; // heads that are drawn one by one; with more, KV heads with their number

const pressable = (cls, style, label, words, says) => ({ words, says, element: h("button", { type: "button",
  class: cls, style, tabindex: -1, "aria-label": label }) });

/** The bar of some matrices, as wide as their bytes; `most` are those of the whole width. `enlarged`: only the
 *  present part. */
export function bytesBar(list, most, enlarged, model) {
  const items = [], width = (bytes) => `width:${((100 * bytes) / most).toFixed(3)}%`;
  for (const one of list) {
    const says = () => matrixText(one, model), label = `${one.name}${one.where}`, bits = bitsOf(one.bits);
    if (one.bytes) items.push(pressable(`piece bits-${shadeOf(one.bits)}`, width(one.bytes),
      `${label}, ${bits} bits a weight, ${size(one.bytes)}`, [`${one.name} ${bits}`, bits], says));
    if (one.gone && !enlarged)
      items.push(pressable("piece cut", width(one.gone), `${label}, ${size(one.gone)} gone`, [], says));
  }
  const saved = enlarged ? 0 : sumOf(list, "saved");
  return { items, element: h("div", { class: "bytes" }, items.map((x) => x.element),
    saved > 0 && h("span", { class: "spare", style: width(saved) })) };
}

/** The heads of layer i if the removed ones are known: each in its KV head, tinted by its score, with its place in
 *  the order of removal. */
function knownBoxes(i, model, known) {
  const { mark, worth, places } = headMarks(model), items = [];
  const boxes = known.map((heads, g) => {
    const left = heads.filter(([, there]) => there).length, own = heads.map(([head, there]) => {
      const share = worth(i, head), place = mark(i, head), title = `Layer ${i}, query head ${head}`;
      const lines = [`It reads KV head ${g}, with ${plural(heads.length - 1, "other")} in the whole model. `
        + (there ? "It is there." : left ? "It is gone: neither stored nor computed."
          : "It is gone, neither stored nor computed, and so is that KV head, with its part of the cache."),
      ...findingLines(model, "head", (values) => values[i][head])];
      return pressable(there ? "head" : "head cut", share === null ? null : `--worth:${Math.round(70 * share)}%`,
        `${title}, ${there ? "there" : "gone"}`, place === null ? [] : [String(place)], () => ({ title, lines }));
    });
    items.push(...own);
    return h("span", { class: left ? "kv" : "kv lost" }, own.map((x) => x.element));
  });
  const broad = items.length <= 16 && places; // room for two digits
  return { items, element: h("div", { class: broad ? "heads broad" : "heads" }, boxes) };
}

/** The heads of layer i, framed by KV head; the removed ones follow, if it is unknown which they were. */
export function headBoxes(i, model) {
  const { groups, usual, loose, lost, known } = headsOf(model, i), items = [], boxes = [];
  if (known) return knownBoxes(i, model, known);
  const single = groups.length * Math.max(1, ...groups) * model.layers.length <= CELLS;
  function box(cls, many, label, title, line) {
    const own = Array.from({ length: single ? many : 1 }, (_, k) => pressable(cls, null, label(k),
      single ? [] : [String(many)], () => ({ title, lines: [line] })));
    items.push(...own);
    boxes.push(h("span", { class: cls === "head" ? "kv" : "kv lost" }, own.map((x) => x.element)));
  }
  groups.forEach((many, g) => box("head", many, (k) => `Layer ${i}, KV head ${g}, query head ${k}`,
    `Layer ${i}, KV head ${g}`, `${plural(many, "query head")}${many < usual ? ` of ${usual} before` : ""} `
      + `read${many === 1 ? "s" : ""} its keys and values.`));
  if (loose) box("head cut", loose, () => `Layer ${i}, gone`, `Layer ${i}, heads that are gone`,
    `${plural(loose, "query head")} ${loose === 1 ? "is" : "are"} gone`
      + `${lost ? `, and ${plural(lost, "KV head")} with ${loose === 1 ? "it" : "them"}` : ""}. Their weights are `
      + "neither stored nor computed, and what is gone has no cache.");
  return { items, element: h("div", { class: "heads" }, boxes) };
}
