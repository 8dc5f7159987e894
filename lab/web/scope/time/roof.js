/* The roofline: the limits of the machine, and the passes of the step below them. */
import { grid, h, inks, say, see, set, sheet, toggle } from "../shared/elements.js";
import { PREFIXES, formatCount, formatTime } from "../shared/numbers.js";

/** A number with its prefix, two digits if it is small: 2.6 G. */
export function formatScaled(x) {
  for (const [limit, unit] of PREFIXES)
    if (x >= limit) return `${(x / limit).toFixed(x / limit >= 99.5 ? 0 : x / limit >= 9.95 ? 1 : 2)} ${unit}`;
  return `${x.toFixed(x >= 10 ? 0 : 2)} `;
}

const PHASES = { prefill: "prompt", draft: "draft", verify: "verify",
  search: "skip set scored", score: "prompt scored", flush: "waiting go on" };
/** The word for a row of passes. */
export const passWord = ({ lane, phase }) =>
  (phase === "catch_up" ? `${lane} reads on`
    : lane === "target" || phase !== "prefill" ? PHASES[phase] ?? phase : `${lane} reads prompt`);
export const passName = (row) =>
  `${passWord(row)}, ${row.n > 1 ? `${row.n} passes, ` : ""}`
    + `${formatCount(row.rows)} ${row.rows === 1 ? "row" : "rows"}`;

/** The same passes by the original model of a row's model, at best: on the roof; s in all. */
function bestBefore(machine, { before, ...row }) {
  const { x, roof } = roofPoint(machine, { ...row, ...before });
  return { ...row, ...before, x, y: roof, s: before.flops / roof };
}

/** A row of passes under a machine's roof: FLOP per byte, FLOP/s, the roof there, and its bound. Weights and cache
 *  that fit into the processor's cache have its bandwidth for a roof. was: for a model made from another. */
export function roofPoint(machine, row) {
  const x = row.flops / row.bytes, y = row.flops / row.s;
  if (!machine) return { ...row, x, y };
  const near = !!machine.cache_bandwidth && row.kept <= machine.cache_bytes,
    bandwidth = near ? machine.cache_bandwidth : machine.bandwidth;
  const roof = Math.min(machine.peak, x * bandwidth);
  return { ...row, x, y, near, roof, share: y / roof, was: row.before ? bestBefore(machine, row) : null,
    bound: x * bandwidth >= machine.peak ? "compute" : near ? "cache bandwidth" : "bandwidth" };
}

const PLOT = { left: 44, top: 8, high: 150, bottom: 30 }; // px

const DECIDES = ["verify", "canvas"]; // as in engine/trace/records/phases.py
/** Whether a row describes passes of the target that decide about tokens. */
export const decides = ({ lane, phase }) => lane === "target" && DECIDES.includes(phase);

function passSentence(row) {
  const words = `${passName(row)}${row.cost || ""}: `
    + `${formatScaled(row.bytes)}B moved, ${formatScaled(row.flops)}FLOP in ${formatTime(row.s)}`;
  const was = row.was && `; by ${row.was.name} ${formatScaled(row.was.bytes)}B, ${formatTime(row.was.s)} at best`;
  return row.roof ? `${words}, ${(100 * row.share).toFixed(0)} % of roof, bound by ${row.bound}${was || ""}` : words;
}

/** The mark of a row of passes; hollow if it was not measured. */
function passMark(c, row, x, y, r, hollow = false) {
  c.beginPath();
  if (row.phase === "prefill")
    c.moveTo(x, y - r * 1.2), c.lineTo(x + r * 1.1, y + r * 0.8), c.lineTo(x - r * 1.1, y + r * 0.8);
  else if (decides(row)) c.arc(x, y, r, 0, 7);
  else c.moveTo(x, y - r * 1.25), c.lineTo(x + r * 1.25, y), c.lineTo(x, y + r * 1.25), c.lineTo(x - r * 1.25, y);
  c.closePath();
  if (hollow) c.stroke();
  else c.fill();
}

/** A dashed line from the hollow mark of the original model, and that mark. */
function beforeMark(c, { was, x, y }, at, to, { ink, bg }) {
  Object.assign(c, { strokeStyle: ink, fillStyle: bg, lineWidth: 1 });
  c.setLineDash([2, 2]);
  c.beginPath(), c.moveTo(at(was.x), to(was.y)), c.lineTo(at(x), to(y)), c.stroke();
  c.setLineDash([]);
  passMark(c, was, at(was.x), to(was.y), 4);
  passMark(c, was, at(was.x), to(was.y), 4, true);
}

/** Lines and numbers of both axes, in powers of ten: at(x) and to(y) are px. */
function roofAxes(c, at, to, { low, high, down, up, span, tall }) {
  for (let k = low; k <= high; k++) {
    c.beginPath(), c.moveTo(at(10 ** k), PLOT.top), c.lineTo(at(10 ** k), PLOT.top + tall), c.stroke();
    c.textAlign = "center";
    c.fillText(k < 0 ? (10 ** k).toFixed(-k) : formatCount(10 ** k), at(10 ** k), PLOT.top + tall + 10);
  }
  c.textAlign = "right";
  c.fillText("FLOP per byte", PLOT.left + span, PLOT.top + tall + 23);
  for (let k = down; k <= up; k++) {
    c.beginPath(), c.moveTo(PLOT.left, to(10 ** k)), c.lineTo(PLOT.left + span, to(10 ** k)), c.stroke();
    c.fillText(formatScaled(10 ** k).replace(/\.0+(?= )/, "").trim(), PLOT.left - 6, to(10 ** k));
  }
}

/** Names next to the marks, where they touch none that was written before; that of `last` first. */
function nameMarks(c, marks, last, { span, tall }) {
  const taken = marks.map(({ x, y }) => [x - 9, y - 7, 18, 14]);
  for (const { row, x, y } of [...marks].sort((a, b) => Number(b.row === last) - Number(a.row === last))) {
    const word = passWord(row), long = c.measureText(word).width;
    for (const [left, middle] of [[x + 13, y + 9], [x + 13, y - 7], [x - 13 - long, y + 9], [x - 13 - long, y - 7]]) {
      const box = [left, middle - 6, long, 12];
      if (left < PLOT.left || left + long > PLOT.left + span || middle + 6 > PLOT.top + tall
        || taken.some(([a, b, w, t]) => left < a + w && left + long > a && box[1] < b + t && box[1] + 12 > b))
        continue;
      taken.push(box);
      c.fillText(word, left, middle);
      break;
    }
  }
}

/** Points: prompt a triangle, draft a diamond, verify a disc, filled since their time was measured. */
export function roofView(context) {
  const canvas = h("canvas", { class: "roof", role: "img" }), reading = h("p", { class: "reading" }),
    note = h("p", { class: "quiet" }), twin = h("div", { class: "twin" });
  const asTable = toggle("Show as table", (on) => ((tabled = on), context.redraw()));
  const name = h("span", { class: "quiet" }),
    element = h("section", { class: "roof-pane" }, h("header", null, h("h2", null, "Roofline"), name), reading, canvas,
      twin, note, h("div", { class: "tools" }, asTable));
  let tabled = false, colours = null, width = 0, drawn = null, drawnAs = "";

  function paint(machine, rows, others, last) {
    colours = colours || inks(element, "line", "edge", "branch", "muted", "ink", "bg", "ring");
    const was = rows.filter((row) => row.was), all = [...rows, ...others, ...was.map((row) => row.was)];
    const wide = Math.max(180, width), span = wide - PLOT.left - 10,
      tall = PLOT.high - PLOT.top - PLOT.bottom;
    const low = Math.floor(Math.log10(Math.min(0.5, ...all.map((r) => r.x)))),
      high = Math.ceil(Math.log10(Math.max(100, (2 * machine.peak) / machine.bandwidth, ...all.map((r) => 1.5 * r.x))));
    const up = Math.ceil(Math.log10(Math.max(1.3 * machine.peak, ...all.map((r) => r.y)))),
      down = Math.floor(Math.log10(Math.min(machine.peak / 100, ...all.map((r) => 0.8 * r.y))));
    const at = (x) => PLOT.left + ((Math.log10(x) - low) / (high - low)) * span,
      to = (y) => PLOT.top + ((up - Math.log10(y)) / (up - down)) * tall;
    const c = sheet(canvas, wide, PLOT.high);
    c.font = colours.less;
    c.fillStyle = colours.muted;
    c.strokeStyle = colours.line;
    c.lineWidth = 1;
    c.textBaseline = "middle";
    roofAxes(c, at, to, { low, high, down, up, span, tall });
    c.save();
    c.beginPath(), c.rect(PLOT.left, PLOT.top, span, tall), c.clip();
    const roof = (bandwidth, dashed) => {
      const ridge = machine.peak / bandwidth, from = 10 ** low;
      c.setLineDash(dashed ? [4, 3] : []);
      c.beginPath(), c.moveTo(at(from), to(from * bandwidth)), c.lineTo(at(ridge), to(machine.peak));
      if (!dashed) c.lineTo(at(10 ** high), to(machine.peak));
      c.stroke();
      c.setLineDash([]);
    };
    c.strokeStyle = colours.ink;
    c.lineWidth = 1.5;
    roof(machine.bandwidth, false);
    if (machine.cache_bandwidth) (c.strokeStyle = colours.muted), roof(machine.cache_bandwidth, true);
    c.restore();
    c.fillStyle = colours.branch;
    for (const row of others) c.fillRect(at(row.x) - 1.25, to(row.y) - 1.25, 2.5, 2.5);
    c.textAlign = "left";
    for (const row of was) beforeMark(c, row, at, to, colours);
    for (const row of rows) {
      const x = at(row.x), y = to(row.y);
      c.fillStyle = colours.ink;
      passMark(c, row, x, y, 4);
      if (row !== last) continue;
      c.strokeStyle = colours.ring;
      c.lineWidth = 2;
      c.beginPath(), c.arc(x, y, 8.5, 0, 7), c.stroke();
    }
    c.font = "600 " + colours.less;
    nameMarks(c, rows.map((row) => ({ row, x: at(row.x), y: to(row.y) })), last, { span, tall });
    set(canvas, { "aria-label": `roofline of ${machine.name}: ${rows.map(passSentence).join("; ")}` });
  }
  function table(machine, rows) {
    const cells = (row) => [passName(row), row.x.toFixed(2), `${formatScaled(row.bytes)}B`,
      `${formatScaled(row.flops)}FLOP`,
      (1000 * row.s).toFixed(2), `${formatScaled(row.y)}FLOP/s`,
      ...(machine ? [`${(100 * row.share).toFixed(0)} %`, row.bound] : [])];
    const best = ({ was, ...row }) => [`${passName(row)}, by ${was.name} at best`, was.x.toFixed(2),
      `${formatScaled(was.bytes)}B`, `${formatScaled(was.flops)}FLOP`, (1000 * was.s).toFixed(2),
      `${formatScaled(was.y)}FLOP/s`, "100 %",
      ""];
    twin.replaceChildren(
      grid("The prompt and the passes of this step; bytes and FLOP by the cost model, time by the clock", ["pass",
        "FLOP / byte", "moved", "computed", "ms", "rate", ...(machine ? ["of roof", "bound by"] : [])],
        rows.flatMap((row) => (row.was ? [cells(row), best(row)] : [cells(row)])))
    );
  }
  return {
    element,
    look: () => (width = Math.min(560, element.clientWidth)),
    restyle: () => ((colours = null), (drawn = null)),
    draw(store, i) {
      const step = store.steps[i], passes = step?.passes || [], machine = store.head?.machine || null;
      see(element, step && store.head);
      if (!step || !store.head) return;
      const as = `${i} ${store.count} ${width} ${tabled} ${window.devicePixelRatio}`;
      if (drawn === step && drawnAs === as) return;
      drawn = step;
      drawnAs = as;
      const present = passes.map((row) => roofPoint(machine, row)),
        rows = [...(store.head.passes || []).map((row) => roofPoint(machine, row)), ...present];
      const last = present.filter(decides).at(-1) || present.at(-1) || null;
      say(name,
        machine ? `${machine.name}, ${machine.kind}: ${formatScaled(machine.bandwidth)}B/s, `
          + `${formatScaled(machine.peak)}FLOP/s`
          : "");
      say(reading, last ? passSentence(last)
        : step.passes ? "The record holds no passes of this step that can be priced."
        : context.absent(store, "What the passes moved"));
      const pictured = !!machine && !tabled && rows.length > 0;
      see(canvas, pictured);
      see(twin, tabled && rows.length);
      see(asTable, rows.length);
      const whole = rows.find((row) => row.was)?.was.name;
      say(note, !machine ? "No roof is drawn: peak and bandwidth of the machine that made this run are not recorded."
        : tabled ? "" : [machine.cache_bandwidth && "Dashed: the bandwidth of the processor's cache.",
          whole && `Hollow: the same pass by ${whole}, at best.`].filter(Boolean).join(" "));
      see(note, note.textContent);
      if (tabled) table(machine, rows);
      else if (pictured)
        paint(machine, rows,
          store.near(i).flatMap((x) =>
            (x === step ? [] : (x?.passes || []).filter(decides).map((row) => roofPoint(machine, row)))), last);
    },
  };
}
