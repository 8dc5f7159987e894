/* hardware: the passes of the displayed run under its machine's roof, and the same run priced elsewhere. Measured
 * values are filled, modelled ones hollow, and no line joins the two. */
import { button, decides, h, icon, passName, roofPoint, formatScaled } from "./scope.js";
import { ask, onChange, panes, paneTitle, onStep, errorText, noStepReason } from "./runs/runs.js";
import { saveMenu } from "./export/save.js";
import { current } from "./shared/address.js";
import { operatorsTable } from "./hardware/operators.js";
import { errorOf, passesTable, threadsOf, tokenBars, verdictOf, workedOf } from "./hardware/prices.js";
import { drawRoofline, phaseIcon } from "./hardware/roofline.js";
import { surfaceTable } from "./hardware/surface.js";
import { scrollBox } from "./hardware/tables.js";

const WAIT = 150; // ms that the scrubber must rest before operators are requested

/** Where the run is priced: lists of devices and models, and the user's own figures; changed() when one is chosen. */
function wantedPlace(changed) {
  const wanted = { device: "", target: "", draft: "" };
  const choose = (label, name) => {
    const list = h("select", { "aria-label": label });
    list.addEventListener("change",
      () => ((wanted[name] = list.value), (own.hidden = wanted.device !== "own"), changed()));
    return list;
  };
  const device = choose("another device", "device"), target = choose("another target model", "target"),
    draft = choose("another draft model", "draft");
  const figure = (name, word, unit, value) => {
    const box = h("input", { type: "number", min: 0, step: "any", value, "aria-label": `${word}, ${unit}` });
    box.addEventListener("change", changed);
    own.append(h("label", null, `${word} `, box, ` ${unit}`));
    return [name, box];
  };
  const own = h("div", { class: "own", hidden: "" });
  const figures = Object.fromEntries([figure("bandwidth", "bandwidth", "GB/s", 1000),
    figure("peak", "peak", "TFLOP/s", 80), figure("launch", "launch", "µs", 4)]);
  function fill({ devices, models }) {
    const option = (value, word, title = null) => h("option", { value, title }, word);
    device.replaceChildren(option("", "its own machine"),
      ...devices.map((x) => option(x.key, `${x.name}, ${formatScaled(x.bandwidth)}B/s, ${formatScaled(x.peak)}FLOP/s`,
        `${x.kind}: ${x.source}`)),
      option("own", "own figures…"));
    const named = models.map((x) => option(x.key, `${x.name}, ${formatScaled(x.params).trim()}`));
    target.replaceChildren(option("", "as recorded"), ...named);
    draft.replaceChildren(option("", "as recorded"), ...named.map((x) => x.cloneNode(true)));
  }
  /** The choice, as a question to the server. */
  const asked = () => {
    const words = new URLSearchParams(Object.entries(wanted).filter(([, x]) => x));
    if (wanted.device === "own") { for (const [name, box] of Object.entries(figures)) words.set(name, box.value); }
    return words.toString();
  };
  return { device, target, draft, own, fill, asked };
}

/** The performance of a step's last pass, as parts of a sentence. */
const reachText = (last) => (last
  ? [h("b", null, `${formatScaled(last.y)}FLOP/s`), ` in ${passName(last)}${last.roof
    ? `: ${(100 * last.share).toFixed(0)} % of the roof, bound by ${last.bound}` : ""}`]
  : ["What its passes moved is not recorded."]);

/** The machines with the roofs that the passes are compared with. */
function machines(machine, there) {
  if (!machine)
    return "Peak and bandwidth of the machine that made this run are not recorded, so its own roof is not drawn; "
      + "choose a device to see the model's.";
  const cached = machine.cache_bandwidth ? `; dotted: its cache, ${formatScaled(machine.cache_bandwidth)}B/s` : "";
  return `${machine.name}, ${machine.kind}: ${formatScaled(machine.bandwidth)}B/s, `
    + `${formatScaled(machine.peak)}FLOP/s${cached}. `
    + (there ? `Dashed: ${there.name}, ${formatScaled(there.bandwidth)}B/s, `
      + `${formatScaled(there.peak)}FLOP/s in ${there.dtype}, `
      + `${there.kind}.` : "");
}

/** The keys that go from step to step: seek(i), at(): the present step. */
function stepKeys(element, seek, at) {
  element.addEventListener("keydown", (event) => {
    if (event.target.closest("input, select, button, summary, .scroll") || event.ctrlKey || event.metaKey
      || event.altKey) return;
    const by = { ArrowLeft: -1, ",": -1, ArrowRight: 1, ".": 1 }[event.key];
    if (by) seek(at() + by);
    else if (event.key === "Home") seek(0);
    else if (event.key === "End") seek(Infinity);
    else return;
    event.preventDefault();
  });
}

/** The parts of the page in their places; steps: the control that moves the step, at(): the displayed step. */
function pageLayout({ title, lead, legend, chart, note, passes, useful, surface, operators, elsewhere, why, priced },
  steps, at) {
  const section = (word, beside, ...parts) =>
    h("section", null, h("header", null, h("h2", null, word), beside), ...parts);
  return h("div", { class: "open" },
    h("div", { class: "left" },
      h("section", { class: "roofline" }, h("header", null, title, lead, h("span", { class: "end" }, legend, saveMenu(
        () => [["Roofline", chart, `Roofline ${paneTitle(panes[0])} step ${at()}`], ["Passes",
          passes.firstElementChild, `Passes ${paneTitle(panes[0])}`]],
        () => [],
        "Save"
      ))), chart, note),
      section("Passes", h("span", { class: "quiet" }, "of the whole run, the mean of each kind"), passes, useful),
      section("Bytes and FLOP by operator", operators.lanes, operators.note, operators.element),
      section("When drafting pays", h("span", { class: "quiet" }, "speed over one token at a time, by the model"),
        surface.note, surface.element)),
    h("aside", { "aria-label": "the same run elsewhere" }, h("h2", null, "The same run on"), elsewhere.device,
      elsewhere.own, h("h2", null, "with"), h("label", null, h("span", null, "target"), elsewhere.target),
      h("label", null, h("span", null, "draft"), elsewhere.draft), why, priced),
    h("div", { class: "steps" }, steps));
}

/** The page in its element. */
export function page(element) {
  let prices = null, key = "", opKey = "", timer = 0;

  // ---- the parts

  const title = h("h1"), lead = h("span", { class: "lead" });
  const kind = (phase, measured, word) => h("span", null, phaseIcon(phase, measured), word);
  const chart = h("div", { class: "chart" }), note = h("p", { class: "quiet" });
  const passes = scrollBox("the passes"), useful = h("p", { class: "quiet" }),
    surface = surfaceTable(), operators = operatorsTable();
  const elsewhere = wantedPlace(() => load()), { asked } = elsewhere;
  const why = h("p", { role: "alert" }), bars = h("div", { class: "bars" }), verdict = h("p"), assumed = h("ul");
  const priced = h("div", null, h("h2", null, "Time per token"), bars, verdict, h("h2", null, "What the model assumes"),
    assumed);
  const slider = h("input", { type: "range", min: 0, value: 0, step: 1, "aria-label": "step" }),
    where = h("b", { class: "where" });
  const move = (word, name, by) =>
    button(icon(name), () => seek(view().at + by), { class: "bare", "aria-label": word, title: word });
  const legend = h("span", { class: "legend" }, kind("verify", true, "measured"), kind("other", true, "other steps"),
    kind("verify", false, "modelled"));
  const opened = pageLayout({ title, lead, legend, chart, note, passes, useful, surface, operators, elsewhere, why,
    priced }, [move("previous step", "prev", -1), move("next step", "next", 1), where, slider], () => view().at);
  const nothing = h("p", { class: "nothing", role: "status" });
  element.replaceChildren(h("h1", { class: "unseen" }, "Hardware"), nothing, opened);

  const view = () => panes[0]?.view, store = () => view()?.store;
  const seek = (i) => store()?.count && view().seek(Math.max(0, Math.min(store().count - 1, i)));
  slider.addEventListener("input", () => seek(Number(slider.value)));

  // ---- requests to the server

  ask("ds/hardware").then(elsewhere.fill, (error) => refuse(error));
  const refuse = (error) => {
    why.className = error ? "ds-refusal" : "";
    why.textContent = error ? errorText(error) : "";
  };
  /** Price the displayed run again if anything of the question has changed. */
  async function load() {
    const pane = panes[0],
      as = pane?.id && store()?.head ? `${pane.id} ${!!store().end} ${store().count > 0} ${asked()}` : "";
    if (current() !== "hardware" || as === key) return;
    key = as;
    if (!as || !store().count) return (prices = null), draw();
    try {
      const got = await ask(`ds/run/${pane.id}/hardware?${asked()}`);
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
  /** Request the operators of the present step, when it has rested. */
  function look() {
    const pane = panes[0], as = `${pane?.id} ${view()?.at}`;
    if (current() !== "hardware" || !pane?.id || view().at < 0 || as === opKey) return;
    clearTimeout(timer);
    timer = setTimeout(async () => {
      opKey = as;
      const answer = await ask(`ds/run/${pane.id}/operators?step=${view().at}`)
        .catch((error) => ({ rows: [], trouble: error.message }));
      if (as === opKey) operators.show(answer);
    }, WAIT);
  }

  // ---- drawn

  let drawnAs = "";
  function draw() {
    if (current() !== "hardware") return;
    const here = store(), i = view()?.at ?? -1, step = here?.steps[i];
    nothing.textContent = step ? "" : noStepReason();
    opened.hidden = !step;
    if (!step || !here.head) return;
    const machine = here.head.machine;
    const present = (step.passes || []).map((x) => roofPoint(machine, x)),
      prompt = (here.head.passes || []).map((x) => roofPoint(machine, x));
    const last = present.filter(decides).at(-1) || present.at(-1);
    title.textContent = `Step ${i}`;
    lead.replaceChildren(...reachText(last));
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
          ? drawRoofline({ wide, high: wide < 560 ? 320 : 440, type, machine, there, rows: [...prompt, ...present],
            others, last, hollow }) : ""
      );
    }
    const whole = [...present, ...prompt].find((x) => x.was)?.was.name;
    note.textContent = machines(machine, there) + threadsOf(prices?.threads)
      + (whole ? ` Hollow, with a dashed way: the same pass by ${whole}, at best here.` : "");
    drawPriced(home, there);
  }
  let pricedAs = null;
  function drawPriced(home, there) {
    if (pricedAs === prices) return;
    pricedAs = prices;
    const worked = prices?.run === panes[0].id ? prices.worked : null;
    passes.replaceChildren(passesTable(store().head.machine, home, there, worked));
    useful.textContent = workedOf(worked?.steps);
    const groups = tokenBars(home, there);
    bars.replaceChildren(...groups, h("p", { class: "off" }, prices?.run === panes[0].id && prices.off));
    verdict.textContent = verdictOf(home, there);
    assumed.replaceChildren(...((there || home)?.assumptions || []).map((x) => h("li", null, x)));
    priced.hidden = !groups.length;
    surface.draw(there || home, there && errorOf(home));
  }

  const update = () => (draw(), load(), look());
  onChange(update);
  onStep(update);
  new ResizeObserver(draw).observe(chart);
  window.addEventListener("resize", draw); // the type may have another size
  stepKeys(element, seek, () => view().at);
  return { shown: update };
}
