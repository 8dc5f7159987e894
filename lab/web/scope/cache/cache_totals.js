/* Cache totals: the kept part of each cache, and the map of the target's as a table. */
import { figures, grid, h, pool, say } from "../shared/elements.js";
import { formatRange, formatCount, keptBytes, percent, size } from "../shared/numbers.js";

/** The sums above the map, and a bar for each cache. */
export function cacheSums() {
  const bars = h("div", { class: "held" });
  const bar = pool(bars,
    () =>
      h("div", { class: "bar" }, h("span", { class: "who" }),
        h("span", { class: "track" }, h("span", { class: "fill" })), h("span", { class: "much" })));
  const sums = figures(), shape = h("span", { class: "quiet" });
  function draw(map, { kv }, target) {
    const length = target ? target.read : 0;
    say(shape, map && target
      ? `${map.layers} layers × ${map.heads} ${map.heads === 1 ? "head" : "heads"}, ${formatCount(length)} positions`
      : "");
    const list = target
      ? [[`${formatRange(target.least, target.held)} of ${formatCount(Math.max(target.held, length))}`,
          " kept per head"], [
        (keptBytes(target) < target.full ? `${size(keptBytes(target))} of ` : "") + size(target.full), " kept",
      ]] : [];
    if (target && map?.cut) list.push([`${map.cut.size} of ${map.rows}`, " heads cut"]);
    if (target?.evicted) list.push([formatCount(target.evicted), ` ${map?.went ?? "evicted"} now`]);
    sums.tell(list);
    const most = Math.max(1, ...kv.map((x) => x.full));
    kv.forEach((x, k) => {
      const [who, track, much] = bar.at(k).childNodes;
      say(who, x.lane);
      track.style.width = `calc((100% - 190px) * ${Math.max(x.full, 1) / most})`;
      track.firstChild.style.width = percent(Math.min(1, keptBytes(x) / Math.max(1, x.full)));
      say(much, size(keptBytes(x)));
    });
    bar.trim(kv.length);
  }
  return { shape, sums: sums.element, bars, draw };
}

/** These rows of the map after step i, as a table. at: column -> position. */
export function cacheTable(map, i, rows, at) {
  const span = (list) => {
    const runs = [];
    for (const p of list.map(at)) runs.length && runs.at(-1)[1] === p - 1 ? (runs.at(-1)[1] = p) : runs.push([p, p]);
    return runs.map(([a, b]) => (a === b ? a : `${a}–${b}`)).join(", ") || "–";
  };
  const positions = [...Array(map.length(i)).keys()];
  return grid(`KV cache after step ${i}, by original position`,
    ["layer", "head", "kept", "positions kept", `${map.went} now`],
    rows.map((k) => {
      const kept = positions.filter((p) => map.kept(k, p, i));
      return [Math.floor(k / map.heads), k % map.heads, kept.length, span(kept),
        span(positions.filter((p) => map.left(k, p, i) === i))];
    }));
}
