/* The map of the target's cache. */
import { button, figures, grid, h, inks, pool, rgb, say, see, set, sheet, toggle } from "./elements.js";
import { grouped, keptBytes, percent, plural, size } from "./numbers.js";
import { spoken } from "./tokens.js";

/** The target's cache: rows = layer x KV head, columns = positions. Ticks above: the share of attention where it was
 *  recorded, else in how many rows an entry is kept. */
export function cacheView(context) {
  const bars = h("div", { class: "held" });
  const bar = pool(bars,
    () =>
      h("div", { class: "bar" }, h("span", { class: "who" }),
        h("span", { class: "track" }, h("span", { class: "fill" })), h("span", { class: "much" })));
  const sums = figures();
  const shape = h("span", { class: "quiet" }), note = h("p", { class: "quiet rule" });
  const canvas = h("canvas", { class: "map", tabindex: 0, role: "img" }),
    tip = h("p", { class: "tip", "aria-live": "off" });
  const twin = h("div", { class: "twin" });
  const asTable = toggle("Show as table", (on) => ((tabled = on), (seen = ""), context.redraw()));
  const back = button("all heads", () => open(null), { class: "small" });
  const element = h("section", { class: "cache-pane" },
    h("header", null, h("h2", null, "KV cache"), shape, sums.element), canvas,
    h("div", { class: "tools" }, note, tip, back, asTable), twin, bars);
  let row = null, tabled = false, seen = "", colours = null, geometry = null, cursor = null, last = null, wide = 0;
  const open = (k) => ((row = k), (seen = ""), context.redraw());
  const at = (event) => {
    const g = geometry, box = canvas.getBoundingClientRect();
    return g
      && {
        column: Math.max(0,
          Math.min(g.columns - 1, Math.floor(((event.clientX - box.left - g.left) / (g.wide - g.left)) * g.columns))),
        line: g.lines.findIndex((y) => event.clientY - box.top < y + g.tall + 1),
      };
  };
  canvas.addEventListener("click", (event) => {
    const hit = at(event);
    if (hit && row === null && hit.line >= 0) open(hit.line);
    else if (row !== null) open(null);
  });
  canvas.addEventListener("pointermove", (event) => ((cursor = at(event)?.column ?? null), tell()));
  canvas.addEventListener("pointerleave", () => ((cursor = null), tell()));
  canvas.addEventListener("keydown", (event) => {
    const g = geometry, move = { "[": -1, "]": 1 }[event.key];
    if (!g || event.ctrlKey || event.metaKey || event.altKey) return;
    if (move) cursor = Math.max(0, Math.min(g.columns - 1, (cursor ?? g.columns - 1) + move));
    else if (event.key === "Enter")
      return void (event.preventDefault(), event.stopPropagation(), open(row === null ? 0 : null));
    else if (row !== null && (event.key === "j" || event.key === "k"))
      return void (event.stopPropagation(),
        open(Math.max(0, Math.min(g.rows - 1, row + (event.key === "j" ? 1 : -1)))));
    else return;
    event.stopPropagation();
    event.preventDefault();
    tell();
  });
  function tell() {
    const g = geometry;
    if (!g || !last || cursor === null) return say(tip, "");
    const from = cursor * g.bin, to = Math.min(g.length, from + g.bin) - 1, map = last.store.map,
      texts = last.store.texts();
    const lines = row === null ? [...Array(map.rows).keys()] : [row];
    let kept = 0, all = 0;
    for (const k of lines) for (let p = from; p <= to; p++) (all++, map.kept(k, p, last.i) && kept++);
    const words = g.bin === 1 ? `position ${from}, ${spoken(texts(from))}`
      : `positions ${from} to ${to}, ${spoken(texts(from))} …`;
    const where = all === 1 ? (kept ? "kept" : "evicted")
      : kept === all ? `kept in all ${plural(lines.length, "row")}`
      : kept === 0 ? "evicted everywhere" : `kept in ${kept} of ${all} ${g.bin === 1 ? "rows" : "entries"}`;
    say(tip, `${words}: ${where}`);
  }
  function head(store, step, target) {
    const map = store.map, length = target ? target.read : 0;
    say(shape, map && target
      ? `${map.layers} layers × ${map.heads} ${map.heads === 1 ? "head" : "heads"}, ${grouped(length)} positions`
      : "");
    const list = target
      ? [[`${grouped(target.held)} of ${grouped(Math.max(target.held, length))}`, " kept per head"], [
        target.held < target.read ? `${size(keptBytes(target))} of ${size(target.full)}` : size(target.full), " kept",
      ]] : [];
    if (target?.evicted) list.push([grouped(target.evicted), " evicted now"]);
    sums.tell(list);
    const most = Math.max(1, ...step.kv.map((x) => x.full));
    step.kv.forEach((x, k) => {
      const [who, track, much] = bar.at(k).childNodes;
      say(who, x.lane);
      track.style.width = `calc((100% - 190px) * ${Math.max(x.full, 1) / most})`;
      track.firstChild.style.width = percent(Math.min(1, keptBytes(x) / Math.max(1, x.full)));
      say(much, size(keptBytes(x)));
    });
    bar.trim(step.kv.length);
  }
  function paints() {
    const all = inks(element, "mass-low", "mass-high", "gone", "ink", "bg", "muted", "branch"),
      of = (name) => all[name];
    const pixel = ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r;
    const low = rgb(of("mass-low")), high = rgb(of("mass-high"));
    const ramp = Uint32Array.from({ length: 256 },
      (_, k) => pixel(low.map((x, c) => Math.round(x + ((high[c] - x) * k) / 255))));
    return { gone: pixel(rgb(of("gone"))) >>> 0, now: pixel(rgb(of("ink"))) >>> 0, bg: pixel(rgb(of("bg"))) >>> 0, ramp,
      muted: of("muted"), faint: of("branch"), ink: of("ink"), mono: of("mono"), sans: of("less") };
  }
  function paint(store, i) {
    const map = store.map, c = (colours = colours || paints()), length = map.length(i),
      ratio = window.devicePixelRatio || 1;
    const right = Math.max(160, Math.floor(wide)), left = 34, full = right - left,
      most = Math.min(450, Math.max(40, Math.floor(full / 2)));
    const bin = Math.max(1, Math.ceil(length / most)), columns = Math.max(1, Math.ceil(length / bin)),
      rows = row === null ? [...Array(map.rows).keys()] : [Math.min(row, map.rows - 1)];
    const tall = row !== null ? 40 : map.rows > 64 ? 3 : map.rows > 32 ? 4 : 7, top = 30;
    const lines = [];
    let y = top;
    rows.forEach((k, n) => {
      if (n && k % map.heads === 0) y += 2;
      lines.push(y);
      y += tall + 1;
    });
    const room = Math.min(full, columns * 14), zones = row === null ? zonesOf(store, i, length) : [],
      high = y + (zones.length ? 22 : 2);
    geometry = { left, wide: left + room, columns, bin, lines, tall, length, rows: map.rows };
    const pen = sheet(canvas, right, high), image = pen.createImageData(canvas.width, canvas.height),
      data = new Uint32Array(image.data.buffer);
    data.fill(c.bg);
    const mass = store.massAt(i),
      edges = Array.from({ length: columns + 1 }, (_, k) => Math.round((left + (k * room) / columns) * ratio)),
      gap = room / columns >= 4 ? Math.max(1, Math.round(ratio * 0.75)) : 0;
    const score = new Float64Array(columns), recent = new Int32Array(columns), plain = !mass && !map.any(i),
      across = canvas.width;
    rows.forEach((k, n) => {
      const y0 = Math.round(lines[n] * ratio), y1 = Math.round((lines[n] + tall) * ratio), line = (y1 - 1) * across,
        odd = [];
      // the lowest line of pixels is written and copied upwards; columns that differ from top to bottom are mended
      // after that
      for (let q = 0; q < columns; q++) {
        const from = q * bin, to = Math.min(length, from + bin), all = Math.max(1, to - from);
        let kept = plain ? to - from : 0, now = 0, most = plain ? 0.62 : 0;
        for (let p = plain ? to : from, cell = k * map.room; p < to; p++) {
          const gone = map.at[cell + p];
          if (gone > i) {
            kept++;
            most = Math.max(most, mass ? (mass[k * mass.width + p] - 1) / 254 : 0.62);
          } else if (gone === i) now++;
        }
        score[q] += mass ? most : kept / all;
        recent[q] += now;
        const shade = c.ramp[Math.round(255 * Math.min(1, most))], x0 = edges[q],
          x1 = Math.max(x0 + 1, edges[q + 1] - gap);
        data.fill(kept ? shade : c.gone, line + x0, line + x1);
        if (now || (kept && kept < all)) odd.push({ x0, x1, part: kept / all, now });
      }
      for (let yy = y0; yy < y1 - 1; yy++) data.copyWithin(yy * across, line, line + across);
      for (const { x0, x1, part, now } of odd) {
        // of several positions in a column the strongest is shown, as high as the share that is kept: one of them that
        // is
        // kept, or one that is evicted, is a line of its own at least
        const filled = part === 1 ? y1 - y0
          : part ? Math.min(y1 - y0 - 1, Math.max(1, Math.round((y1 - y0) * part))) : 0;
        if (part) { for (let yy = y0; yy < y1 - filled; yy++) data.fill(c.gone, yy * across + x0, yy * across + x1); }
        if (now) {
          for (const yy of [y0, y1 - 1]) data.fill(c.now, yy * across + x0, yy * across + x1);
          for (let yy = y0; yy < y1; yy++) data[yy * across + x0] = data[yy * across + x1 - 1] = c.now;
        }
      }
    });
    pen.putImageData(image, 0, 0);
    // ticks: how much an entry is worth to all rows together
    const evicts = map.any(i), peak = Math.max(1e-9, ...score);
    if (evicts || mass) {
      pen.fillStyle = c.faint;
      for (let q = 0; q < columns; q++) {
        const tick = score[q] ? Math.max(1, 10 * (score[q] / peak)) : 0;
        if (tick) pen.fillRect(left + (q * room) / columns, top - 2 - tick, Math.max(1, room / columns - 1), tick);
      }
    }
    pen.fillStyle = c.muted;
    pen.font = c.sans;
    pen.textBaseline = "middle";
    const every = Math.max(1, Math.ceil(12 / ((tall + 1) * map.heads + 2)));
    rows.forEach((k, n) => {
      if (row !== null) pen.fillText(`L${Math.floor(k / map.heads)}.${k % map.heads}`, 0, lines[n] + tall / 2);
      else if (k % map.heads === 0 && (k / map.heads) % every === 0)
        pen.fillText(`L${k / map.heads}`, 0, lines[n] + ((tall + 1) * map.heads) / 2);
    });
    // which part of the text the policy keeps for which reason
    for (const [from, to, word, brief] of zones) {
      const x0 = left + (from / bin / columns) * room + 1,
        x1 = left + (Math.min(to, length) / bin / columns) * room - 1;
      pen.strokeStyle = c.faint;
      pen.strokeRect(x0, y + 3, Math.max(0, x1 - x0), 0);
      const text = pen.measureText(word).width <= x1 - x0 ? word : brief;
      if (pen.measureText(text).width <= x1 - x0 + 8)
        pen.fillText(text, (x0 + x1 - pen.measureText(text).width) / 2, y + 14);
    }
    // names over the columns that stand out, from left to right, none touching the last
    pen.fillStyle = c.ink;
    pen.font = c.mono;
    const texts = store.texts(),
      inWords = [...Array(columns).keys()].filter((q) => /[\p{L}\p{N}]{2}/u.test(String(texts(q * bin))));
    let free = left;
    const bound = [...score].sort((a, b) => b - a)[Math.min(columns - 1, 40)];
    for (const q of inWords) {
      const x = left + (q * room) / columns;
      if (x < free || ((evicts || mass) && score[q] < bound)) continue;
      const text = spoken(texts(q * bin)).slice(0, 12).replace(/^␣/, "");
      if (x + pen.measureText(text).width > right) break;
      pen.fillText(text, x, 8);
      free = x + pen.measureText(text).width + (evicts || mass ? 14 : 60);
    }
    const weighs = store.head.parts.policy?.column, lacks = !mass && weighs && store.whole(i);
    const kinds = mass ? "stronger: more attention" : evicts ? "strong: kept" : "";
    say(note,
      [kinds, evicts ? "faint: evicted" : "",
        recent.some(Boolean) ? `outlined: ${bin > 1 ? "some " : ""}evicted in this step` : "",
        evicts && !mass ? "ticks: in how many rows an entry is kept" : mass ? "ticks: share of attention" : "",
        bin > 1 ? `one column is ${bin} positions: as high as the share that is kept, as strong as the largest of them`
          : "", lacks ? `how much ${weighs} an entry drew is not recorded here` : "",
        row === null ? "click a row to enlarge it" : ""].filter(Boolean).join("; "));
    set(canvas, {
      "aria-label": `cache map of step ${i}: ${plural(map.rows, "row")}, ${plural(length, "position")}, `
        + `${map.summary(i)}; [ and ] move along the positions`,
    });
  }
  /** Parts of the text that the policy speaks of: [from, to, words, fewer words]. */
  function zonesOf(store, i, length) {
    const all = store.head.parts.zones, at = (place) => all.filter((zone) => zone[1] === place),
      sum = (list) => list.reduce((n, zone) => n + zone[2], 0);
    if (!store.map.any(i) || !all.length) return [];
    const start = Math.min(sum(at("first")), length), edge = Math.max(start, length - sum(at("newest"))),
      words = (list) => list.map(([word, , n]) => `${word} ${n}`).join(", ");
    const chosen = at("chosen").filter((zone) => zone[2]), zones = [];
    if (start) zones.push([0, start, words(at("first")), ""]);
    if (chosen.length && edge > start)
      zones.push([start, edge, `${words(chosen)} per head, of ${plural(edge - start, "position")}`, chosen[0][0]]);
    if (at("newest").length) zones.push([edge, length, words(at("newest")), ""]);
    return zones;
  }
  function table(store, i) {
    const map = store.map, rows = row === null ? [...Array(map.rows).keys()] : [row], length = map.length(i);
    const span = (list) => {
      const runs = [];
      for (const p of list) runs.length && runs.at(-1)[1] === p - 1 ? (runs.at(-1)[1] = p) : runs.push([p, p]);
      return runs.map(([a, b]) => (a === b ? a : `${a}–${b}`)).join(", ") || "–";
    };
    const positions = [...Array(length).keys()];
    twin.replaceChildren(
      grid(`KV cache after step ${i}, by original position`, ["layer", "head", "kept", "positions kept", "evicted now"],
        rows.map((k) => {
          const kept = positions.filter((p) => map.kept(k, p, i));
          return [Math.floor(k / map.heads), k % map.heads, kept.length, span(kept),
            span(positions.filter((p) => map.at[k * map.room + p] === i))];
        }))
    );
  }
  return {
    element,
    restyle: () => ((colours = null), (seen = "")),
    look: () => (wide = element.clientWidth),
    draw(store, i) {
      const step = store.steps[i];
      see(element, step);
      if (!step) return;
      const target = step.kv.find((x) => x.lane === "target"), map = store.mapped(i);
      head(store, step, target);
      const ready = !!target && !!map && map.upto >= i && !map.untold;
      last = { store, i };
      see(canvas, ready && !tabled);
      see(tip, ready && !tabled);
      see(twin, ready && tabled);
      see(asTable, ready);
      see(back, ready && row !== null);
      see(bars, step.kv.length > 1 || !ready);
      if (!ready)
        return say(note, map?.untold ? "Which entries were evicted was not recorded."
          : target && map
          ? (context.waits ? "The map waits for earlier steps."
            : "Earlier steps were left out here, so what they evicted is not known.") : "");
      const as = `${i} ${wide} ${row} ${tabled} ${map.upto} ${window.devicePixelRatio} ${step.kv[0].mass ? 1 : 0}`;
      if (as === seen) return;
      seen = as;
      if (tabled) table(store, i), say(note, "");
      else paint(store, i);
      tell();
    },
  };
}
