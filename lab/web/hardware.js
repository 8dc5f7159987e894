/* hardware: the passes of the shown run under its machine's roof, and the same run priced elsewhere. What was measured
 * is filled, what the cost model says is hollow, and no line joins the two. */
import { button, grouped, h, icon, passName, passWord, placedUnder, scaled, two } from "./scope.js";
import { ask, heard, panes, stepped, inWords, without } from "./runs.js";
import { saving } from "./save.js";
import { current } from "./address.js";
import { drawn, marked, time } from "./hardware/roofline.js";

const WAIT = 150; // ms that the scrubber stands still before operators are asked for
const OPS = {
  attn_norm: "norm before attention",
  q_proj: "queries",
  k_proj: "keys",
  v_proj: "values",
  attention: "attention",
  o_proj: "attention out",
  attn_add: "residual",
  ffn_norm: "norm before MLP",
  gate_proj: "MLP gate",
  up_proj: "MLP up",
  swiglu: "SwiGLU",
  down_proj: "MLP down",
  ffn_add: "residual",
  lm_head: "head",
};
const BOUNDS = { memory: "memory", compute: "compute", launch: "launches", "cache bandwidth": "processor's cache" };

export function page(element) {
  let prices = null, key = "", wanted = { device: "", target: "", draft: "" }, operators = null, opKey = "", timer = 0;

  // ---- the parts

  const title = h("h1"), lead = h("span", { class: "lead" });
  const kind = (phase, measured, word) => h("span", null, marked(phase, measured), word),
    legend = h("span", { class: "legend" }, kind("verify", true, "measured"), kind("other", true, "other steps"),
      kind("verify", false, "modelled"));
  const chart = h("div", { class: "chart" }), note = h("p", { class: "quiet" });
  const passes = h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "the passes" }),
    ops = h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "the operators" }),
    opNote = h("p", { class: "quiet" });
  const surface = h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "the speed-up" }),
    surfaceNote = h("p", { class: "quiet" });
  const lanes = h("span", { class: "lanes", role: "group", "aria-label": "whose passes" });
  const choose = (label, name) => {
    const list = h("select", { "aria-label": label });
    list.addEventListener("change",
      () => ((wanted[name] = list.value), (own.hidden = wanted.device !== "own"), load()));
    return list;
  };
  const device = choose("another device", "device"), target = choose("another target model", "target"),
    draft = choose("another draft model", "draft");
  const figure = (name, word, unit, value) => {
    const box = h("input", { type: "number", min: 0, step: "any", value, "aria-label": `${word}, ${unit}` });
    box.addEventListener("change", () => load());
    own.append(h("label", null, `${word} `, box, ` ${unit}`));
    return [name, box];
  };
  const own = h("div", { class: "own", hidden: "" });
  const figures = Object.fromEntries([figure("bandwidth", "bandwidth", "GB/s", 1000),
    figure("peak", "peak", "TFLOP/s", 80), figure("launch", "launch", "µs", 4)]);
  const why = h("p", { role: "alert" }), bars = h("div", { class: "bars" }), verdict = h("p"), assumed = h("ul");
  const priced = h("div", null, h("h2", null, "Time per token"), bars, verdict, h("h2", null, "What the model assumes"),
    assumed);
  const slider = h("input", { type: "range", min: 0, value: 0, step: 1, "aria-label": "step" }),
    where = h("b", { class: "where" });
  const move = (word, name, by) =>
    button(icon(name), () => seek(view().at + by), { class: "bare", "aria-label": word, title: word });
  const section = (word, beside, ...parts) =>
    h("section", null, h("header", null, h("h2", null, word), beside), ...parts);
  const opened = h("div", { class: "open" },
    h("div", { class: "left" },
      h("section", { class: "roofline" }, h("header", null, title, lead, h("span", { class: "end" }, legend, saving(
        () => [["Roofline", chart, `Roofline ${panes[0].id.slice(0, 8)} step ${view().at}`], ["Passes",
          passes.firstElementChild, `Passes ${panes[0].id.slice(0, 8)}`]],
        () => [],
        "Save"
      ))), chart, note),
      section("Passes", h("span", { class: "quiet" }, "of the whole run, the mean of each kind"), passes),
      section("Bytes and FLOP by operator", lanes, opNote, ops),
      section("When drafting pays", h("span", { class: "quiet" }, "speed over one token at a time, by the model"),
        surfaceNote, surface)),
    h("aside", { "aria-label": "the same run elsewhere" }, h("h2", null, "The same run on"), device, own,
      h("h2", null, "with"), h("label", null, h("span", null, "target"), target),
      h("label", null, h("span", null, "draft"), draft), why, priced),
    h("div", { class: "steps" }, move("previous step", "prev", -1), move("next step", "next", 1), where, slider));
  const nothing = h("p", { class: "nothing", role: "status" });
  element.replaceChildren(h("h1", { class: "unseen" }, "Hardware"), nothing, opened);

  const view = () => panes[0]?.view, store = () => view()?.store;
  const seek = (i) => store()?.count && view().seek(Math.max(0, Math.min(store().count - 1, i)));
  slider.addEventListener("input", () => seek(Number(slider.value)));

  // ---- asked of the server

  ask("/ds/hardware").then(({ devices, models }) => {
    const option = (value, word) => h("option", { value }, word);
    device.replaceChildren(option("", "its own machine"),
      ...devices.map((x) => option(x.key, `${x.name}, ${scaled(x.bandwidth)}B/s, ${scaled(x.peak)}FLOP/s`)),
      option("own", "own figures…"));
    const named = models.map((x) => option(x.key, `${x.name}, ${scaled(x.params).trim()}`));
    target.replaceChildren(option("", "as recorded"), ...named);
    draft.replaceChildren(option("", "as recorded"), ...named.map((x) => x.cloneNode(true)));
  }, (error) => refuse(error));
  const refuse = (error) => {
    why.className = error ? "ds-refusal" : "";
    why.textContent = error ? inWords(error) : "";
  };
  const asked = () => {
    const words = new URLSearchParams(Object.entries(wanted).filter(([, x]) => x));
    if (wanted.device === "own") { for (const [name, box] of Object.entries(figures)) words.set(name, box.value); }
    return words.toString();
  };
  /** Price the shown run anew if anything of the question has changed. */
  async function load() {
    const pane = panes[0],
      as = pane?.id && store()?.head ? `${pane.id} ${!!store().end} ${store().count > 0} ${asked()}` : "";
    if (current() !== "hardware" || as === key) return;
    key = as;
    if (!as || !store().count) return (prices = null), draw();
    try {
      const got = await ask(`/ds/run/${pane.id}/hardware?${asked()}`);
      if (as !== key) return;
      prices = got;
      refuse(null);
    } catch (error) {
      if (as !== key) return;
      prices = prices?.run === pane.id ? { ...prices, there: null } : null;
      refuse(error);
    }
    if (prices) prices.run = pane.id;
    draw();
  }
  /** Ask for the operators of the present step, when it has stood still. */
  function look() {
    const pane = panes[0], as = `${pane?.id} ${view()?.at}`;
    if (current() !== "hardware" || !pane?.id || view().at < 0 || as === opKey) return;
    clearTimeout(timer);
    timer = setTimeout(async () => {
      opKey = as;
      const got = await ask(`/ds/run/${pane.id}/operators?step=${view().at}`).catch((error) => ({ rows: [],
        trouble: error.message })
      );
      if (as === opKey) (operators = got), drawOperators();
    }, WAIT);
  }

  // ---- drawn

  const table = (caption, heads, rows, cls = "") =>
    h("table", { class: cls }, h("caption", { class: "unseen" }, caption),
      h("thead", null, h("tr", null, heads.map((x) => h("th", { scope: "col" }, x)))), h("tbody", null, rows));
  const row = (first, cells, cls) =>
    h("tr", { class: cls }, h("th", { scope: "row" }, first), cells.map((x) => h("td", null, x)));

  let drawnAs = "";
  function draw() {
    if (current() !== "hardware") return;
    const here = store(), i = view()?.at ?? -1, step = here?.steps[i];
    nothing.textContent = step ? "" : without();
    opened.hidden = !step;
    if (!step || !here.head) return;
    const machine = here.head.machine, own = (x) => x.lane === "target" && x.phase === "verify";
    const present = (step.passes || []).map((x) => placedUnder(machine, x)),
      prompt = (here.head.passes || []).map((x) => placedUnder(machine, x));
    const last = present.filter(own).at(-1) || present.at(-1);
    title.textContent = `Step ${i}`;
    lead.replaceChildren(
      ...(last
        ? [h("b", null, `${scaled(last.y)}FLOP/s`),
          ` in ${passName(last)}${last.roof ? `: ${(100 * last.share).toFixed(0)} % of the roof, bound by `
          + `${last.bound}` : ""}`] : ["What its passes moved is not recorded."])
    );
    where.textContent = `step ${i} of ${here.count - 1}`;
    Object.assign(slider, { max: Math.max(0, here.count - 1), value: i });
    slider.setAttribute("aria-valuetext", where.textContent);
    const there = prices?.run === panes[0].id ? prices.there : null,
      home = prices?.run === panes[0].id ? prices.here : null;
    const wide = chart.clientWidth, type = parseFloat(getComputedStyle(element).getPropertyValue("--t-sm")),
      as = JSON.stringify([panes[0].id, i, here.count, wide, type, !!step.passes, !!home, there?.name, there?.token,
        asked()]);
    if (as !== drawnAs && wide) {
      drawnAs = as;
      const others = (prices?.run === panes[0].id ? prices.checks : []).map(([x, y]) => ({ x, y }));
      const hollow = (there?.rows || []).map((x) => ({ ...x, x: x.flops / x.bytes, y: x.flops / x.model }));
      chart.replaceChildren(
        machine || there
          ? drawn({ wide, high: wide < 560 ? 320 : 440, type, machine, there, rows: [...prompt, ...present], others,
            last, hollow }) : ""
      );
    }
    note.textContent = !machine
      ? "Peak and bandwidth of the machine that made this run are not recorded, so its own roof is not drawn; choose "
        + "a device to see the model's."
      : `${machine.name}, ${machine.kind}: ${scaled(machine.bandwidth)}B/s, `
        + `${scaled(machine.peak)}FLOP/s`
        + (machine.cache_bandwidth ? `; dotted: its cache, ${scaled(machine.cache_bandwidth)}B/s` : "") + ". "
        + (there ? `Dashed: ${there.name}, ${scaled(there.bandwidth)}B/s, ${scaled(there.peak)}FLOP/s in `
          + `${there.dtype}, ${there.kind}.` : "");
    drawPriced(home, there);
  }
  let pricedAs = null;
  function drawPriced(home, there) {
    if (pricedAs === prices) return;
    pricedAs = prices;
    const rows = home?.rows || there?.rows || [],
      beside = (x) => there?.rows.find((y) => y.lane === x.lane && y.phase === x.phase);
    const machine = store().head.machine, each = (x, n) => time(x / n);
    const heads = ["pass", "passes", "FLOP / byte", "measured",
      ...(home ? ["model, here", "measured / model", "of roof", "bound here"] : []),
      ...(there ? ["model, there", "bound there"] : [])];
    passes.replaceChildren(table("Passes of the run by kind: measured, and by the cost model", heads, rows.map((x) => {
      const at = placedUnder(machine, { ...x, kept: 0 }), y = beside(x);
      return row(h("span", { class: "what" }, marked(x.lane === "target" ? x.phase : "draft", true), passWord(x)), [
        grouped(x.n),
        (x.flops / x.bytes).toFixed(2),
        h("b", null, each(x.s, x.n)),
        ...(home
          ? [each(x.model, x.n), two(x.s / x.model), at.roof ? `${(100 * at.share).toFixed(0)} %` : "–",
            BOUNDS[x.bound] ?? x.bound] : []),
        ...(there ? [y ? each(y.model, y.n) : "–", y ? BOUNDS[y.bound] ?? y.bound : "–"] : []),
      ]);
    })));
    // time per token
    const groups = [];
    if (home?.token)
      groups.push(["Its own machine", home, [
        ["measured", home.measured, true], ["modelled", home.token, false], ["one by one", home.plain, false],
      ]]);
    if (there?.token)
      groups.push([`${there.name}, modelled`, there, [
        ["this run", there.token, false], ["one by one", there.plain, false],
      ]]);
    bars.replaceChildren(...groups.map(([name, one, list]) => {
      const most = Math.max(...list.map(([, x]) => x));
      return h("div", { class: "group" },
        h("div", { class: "over" }, h("span", null, name), h("b", null, `× ${two(one.speedup)}`)),
        list.map(([word, x, measured]) =>
          h("div", { class: "bar" }, h("span", null, word),
            h("i", { class: measured ? "full" : "hollow", style: `--w: ${((100 * x) / most).toFixed(1)}%` }),
            h("span", { class: "n" }, time(x)))
        ));
    }));
    const bound = (one) => [...one.rows].filter((x) => x.phase !== "prefill").sort((a, b) => b.model - a.model)[0];
    const gain = home && there && home.speedup && there.speedup ? there.speedup / home.speedup : 0,
      most = there && bound(there);
    verdict.textContent = !gain ? ""
      : (`By the model this method gains ${gain > 1.03 ? "more" : gain < 0.97 ? "less" : "as much"} there as `
        + `here${most ? `: most of its time goes to ${passWord(most)}, bound by `
          + `${BOUNDS[most.bound] ?? most.bound}` : ""}.`).replace(/(more|less) there as/, "$1 there than");
    assumed.replaceChildren(...((there || home)?.assumptions || []).map((x) => h("li", null, x)));
    priced.hidden = !groups.length;
    drawSurface(there || home);
  }
  function drawSurface(one) {
    const speeds = one?.surface;
    surface.parentElement.hidden = !speeds;
    if (!speeds) return;
    const { point } = speeds,
      nearest = (list, x) => list.reduce((best, y, k) => (Math.abs(y - x) < Math.abs(list[best] - x) ? k : best), 0);
    const at = point && [nearest(speeds.shares, point.share), nearest(speeds.lengths, point.length)],
      most = Math.max(1.01, ...speeds.grid.flat());
    const best = at && speeds.grid[at[0]].indexOf(Math.max(...speeds.grid[at[0]]));
    surfaceNote.textContent = (`On ${one.name}: a drafted token costs ${two(speeds.draft)} plain `
      + `steps${speeds.draft ? "" : " (this run has no draft passes)"}. `)
      + (point
        ? `Ringed: this run, ${point.length.toFixed(1)} tokens deep; ${(100 * point.share).toFixed(0)} % of a `
          + `chain's tokens accepted would emit as many per pass. At that share ${speeds.lengths[best]} would be the `
          + "fastest length." : "This run drafts nothing, so it has no place here.");
    surface.replaceChildren(
      table("Speed over plain decoding, by accepted share and length of the draft", ["accepted",
        ...speeds.lengths.map((x) => `${x}`)],
        speeds.shares.map((share, y) =>
          h("tr", null, h("th", { scope: "row" }, `${Math.round(100 * share)} %`), speeds.grid[y].map((x, k) => {
            const mine = at && at[0] === y && at[1] === k;
            return h("td", { class: [x < 1 ? "slow" : "", mine ? "mine" : ""].join(" ").trim() || null,
              style: x < 1 ? null : `--k: ${(6 + (34 * Math.log(x)) / Math.log(most)).toFixed(0)}%`,
              "aria-label": `${two(x)} times${x < 1 ? ", slower" : ""}${mine ? ", this run" : ""}` },
              x.toFixed(x >= 9.95 ? 0 : 1));
          }))
        ), "surface"),
      h("p", { class: "quiet" },
        "Across: tokens drafted per step. Shaded: faster than one token at a time; plain: slower.")
    );
  }
  let lane = "target";
  function drawOperators() {
    const all = operators?.rows || [], names = [...new Set(all.map((x) => x.lane))];
    if (!names.includes(lane)) lane = names[0] || "target";
    const choose = (name) => ((lane = name), drawOperators(), lanes.querySelector("[aria-pressed=true]")?.focus());
    const way = (name) => button(name, () => choose(name), { "aria-pressed": String(name === lane) });
    lanes.replaceChildren(...(names.length > 1 ? names.map(way) : []));
    const rows = all.filter((x) => x.lane === lane), total = (of) => rows.reduce((sum, x) => sum + of(x), 0),
      moved = (x) => x.weights + x.kv + x.act;
    const bytes = total(moved), flops = total((x) => x.flops),
      share = (x) =>
        h("span", { class: "share" }, h("i", { style: `--w: ${(100 * x).toFixed(1)}%` }), `${(100 * x).toFixed(0)} %`);
    opNote.textContent = operators?.trouble
      || (rows.length
        ? `Step ${operators.step}, all passes of ${lane} together: ${scaled(bytes)}B moved, ${scaled(flops)}FLOP.`
        : "Nothing of this step can be priced.");
    ops.replaceChildren(
      rows.length
        ? table("Operators of the step", ["operator", "run", "FLOP", "weights", "cache", "activations", "FLOP / byte",
          "of bytes", "of FLOP"],
          rows.map((x) =>
            row(OPS[x.name] ?? x.name.replaceAll("_", " "), [grouped(x.n), scaled(x.flops).trim(),
              x.weights ? `${scaled(x.weights)}B` : "–", x.kv ? `${scaled(x.kv)}B` : "–", `${scaled(x.act)}B`,
              (x.flops / moved(x)).toFixed(2), share(moved(x) / bytes), share(x.flops / flops)])
          )) : ""
    );
  }

  const update = () => (draw(), load(), look());
  heard(update);
  stepped(update);
  new ResizeObserver(draw).observe(chart);
  window.addEventListener("resize", draw); // the type may have another size
  element.addEventListener("keydown", (event) => {
    if (event.target.closest("input, select, button, summary, .scroll") || event.ctrlKey || event.metaKey
      || event.altKey) return;
    const by = { ArrowLeft: -1, ",": -1, ArrowRight: 1, ".": 1 }[event.key];
    if (by) seek(view().at + by);
    else if (event.key === "Home") seek(0);
    else if (event.key === "End") seek(Infinity);
    else return;
    event.preventDefault();
  });
  return { shown: update };
}
