/* Scale: rows as bars on one axis, with a threshold line through all of them, and the cost of each model's passes. */
import { button, figures, h, pool, say, see, set } from "../shared/elements.js";
import { bring } from "../shared/extras.js";
import { tokenOf } from "../shared/marks.js";
import { percent, plural } from "../shared/numbers.js";
import { formatScaled } from "../time/roof.js";
import { visibleText } from "../shared/tokens.js";

const SUMS = ["by-small", "by-large"]; // the looks of the lanes' bars; of further ones as of the last

/** The cost of each lane's passes up to step i: [{rows, flops, passes}, ...]; `lacks`: steps without their passes
 *  here. */
export function branches(store, i, lanes) {
  const sums = new Map(lanes.map((lane) => [lane, { rows: 0, flops: 0, passes: 0 }]));
  let lacks = 0;
  for (const all of [store.head?.passes ?? [], ...store.steps.slice(0, i + 1).map((step) => step?.passes)]) {
    if (!all) lacks++;
    for (const { lane, rows, flops, n } of all ?? []) {
      const sum = sums.get(lane);
      if (sum) (sum.rows += rows), (sum.flops += flops), (sum.passes += n);
    }
  }
  return { sums: [...sums.values()], lacks };
}

/** The rows of one axis, with the threshold line, and below them the price of each model. Shown if a step has such
 *  rows. */
export function scaleView(context) {
  const sums = figures(), body = h("tbody"), axis = h("th", { scope: "col", class: "axis" });
  const number = h("th", { scope: "col" }), first = h("th", { scope: "col" }),
    caption = h("caption", { class: "unsaid" });
  const table = h("table", { class: "answers" }, caption,
    h("thead", null, h("tr", null, first, axis, number, h("th", { scope: "col" }, ""))), body);
  const rows = pool(body, () => h("tr", null, h("th", { scope: "row" }),
    h("td", { class: "axis" }, h("span", { class: "fill" }), h("i", { class: "tau" })), h("td", { class: "n" }),
    h("td")));
  const said = h("p", { class: "took" }), rule = h("p", { class: "quiet" }), note = h("p", { class: "quiet" });
  const costs = h("tbody"), priced = pool(costs, () => h("tr", null, h("th", { scope: "row" }),
    h("td", { class: "axis" }, h("span", { class: "fill" })), h("td", { class: "n" }), h("td")));
  const heads = ["model", "operations", "", "rows and passes"].map((x) => h("th", { scope: "col" }, x));
  const priceTitle = h("caption"), prices = h("table", { class: "answers prices" }, priceTitle,
    h("thead", { class: "unsaid" }, h("tr", null, heads)), costs);
  const title = h("h2"), says = h("span", { class: "quiet" });
  const element = h("section", { class: "scale-pane" }, h("header", null, title, says, sums.element), table, said, rule,
    prices, note);

  /** A text as the name of its row; pressed, it is explained on the card. */
  const pressed = (step, k, word, text) => ({ of: `${step} ${k} ${text}`, element: () => button(tokenOf(text, 60),
    () => context.ring({ step, node: k + 1 }),
    { class: "answer", "aria-label": `${word} ${k + 1}: ${visibleText(text)}` }) });
  /** One row: its name, its bar from 0 to 1 of the axis, the number, and words. */
  function row(line, cls, name, share, figure, words) {
    const [head, bar, value, last] = line.childNodes;
    set(line, { class: cls || null });
    if (typeof name === "string") say(head, name), delete head.dataset.of;
    else if (head.dataset.of !== name.of) head.replaceChildren(name.element()), (head.dataset.of = name.of);
    set(bar.firstChild, { style: `width:${(100 * Math.max(0, Math.min(1, share ?? 0))).toFixed(1)}%` });
    see(bar.firstChild, share !== null);
    say(value, figure);
    say(last, words);
  }
  /** The prices of the lanes up to step i, and their sentences. */
  function price(store, i, one, form) {
    see(prices, form);
    see(note, form);
    if (!form) return;
    say(priceTitle, form.title);
    const { sums: each, lacks } = branches(store, i, form.lanes.map(([lane]) => lane));
    const all = each.reduce((sum, x) => ({ rows: sum.rows + x.rows, flops: sum.flops + x.flops,
      passes: sum.passes + x.passes }), { rows: 0, flops: 0, passes: 0 });
    const cost = ({ flops, rows, passes }) => [all.flops ? flops / all.flops : null,
      flops ? `${formatScaled(flops)}FLOP`.trim() : "–",
      rows ? `${plural(rows, "row")} in ${plural(passes, "pass").replace("passs", "passes")}` : "not asked"];
    const model = (lane) => (lane === "target" ? store.head.model.name : store.head.lanes[lane]?.name) ?? lane;
    form.lanes.forEach(([lane, word], k) => row(priced.at(k), SUMS[Math.min(k, SUMS.length - 1)],
      `${word}, ${model(lane)}`, ...cost(each[k])));
    row(priced.at(form.lanes.length), "by-sum", form.together, ...cost(all));
    priced.trim(form.lanes.length + 1);
    const share = each[0].flops / all.flops, compared = all.flops && each.slice(1).some(({ flops }) => flops);
    say(note, `${i < store.count - 1 || !store.end ? `Up to step ${i}. ` : ""}`
      + `${lacks ? `The passes of ${plural(lacks, "step")} are not here. ` : ""}`
      + (compared ? one.part.map((x) => x ?? percent(share)).join("") : ""));
  }
  function draw(store, i) {
    const at = store.steps.findIndex((step) => step?.scale), one = store.steps[at]?.scale,
      form = store.head?.views?.[one?.of]?.scale;
    see(element, form);
    if (!form) return;
    set(element, { "aria-label": form.title.toLowerCase() });
    [[title, form.title], [says, form.says], [caption, form.caption], [first, form.row], [number, form.number],
      [axis, one.axis]].forEach(([node, words]) => say(node, words));
    const known = one.rows ?? [];
    const most = 1.08 * Math.max(one.bar ?? 0, ...known.map(([, , , x]) => x ?? 0), 1e-9);
    element.style.setProperty("--tau", `${((100 * (one.bar ?? 0)) / most).toFixed(1)}%`);
    known.forEach(([cls, text, press, x, figure, words], k) => row(rows.at(k), cls,
      press ? pressed(at, k, form.row, text) : text, x === null ? null : x / most, figure, words));
    rows.trim(known.length);
    say(said, one.rows ? one.ruling : context.absent(store, form.absent));
    say(rule, one.lines.join(" "));
    price(store, i, one, form.prices);
    sums.tell(one.figures.map((words) => /^(\S*)(.*)$/s.exec(words).slice(1)));
  }
  return { element, draw };
}

bring("scale", { scaleView });
