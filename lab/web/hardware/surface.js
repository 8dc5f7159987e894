/* surface: the speed relative to one token at a time, by the share of accepted tokens and the length of the draft. */
import { h, formatFixed } from "../scope.js";
import { scrollBox, table } from "./tables.js";

export function surfaceTable() {
  const element = scrollBox("the speed-up"), note = h("p", { class: "quiet" });
  /** one: a machine's prices, or none; error: the error of the model, if they are those of another machine. */
  function draw(one, error) {
    const speeds = one?.surface;
    element.parentElement.hidden = !speeds;
    if (!speeds) return;
    const { point } = speeds,
      nearest = (list, x) => list.reduce((best, y, k) => (Math.abs(y - x) < Math.abs(list[best] - x) ? k : best), 0);
    const at = point && [nearest(speeds.shares, point.share), nearest(speeds.lengths, point.length)],
      most = Math.max(1.01, ...speeds.grid.flat());
    const best = at && speeds.grid[at[0]].indexOf(Math.max(...speeds.grid[at[0]]));
    note.textContent = (`On ${one.name}: a drafted token costs ${formatFixed(speeds.draft)} plain `
      + `steps${speeds.draft ? "" : " (this run has no draft passes)"}. `)
      + (point
        ? `Ringed: this run with the trees that it drafted, × ${formatFixed(one.speedup)}, `
          + `${point.length.toFixed(1)} tokens `
          + `deep. The other places price chains: ${(100 * point.share).toFixed(0)} % of a chain's tokens accepted `
          + `would emit as many per pass (× ${formatFixed(speeds.grid[at[0]][at[1]])} there), and at that share `
          + `${speeds.lengths[best]} would be the fastest length.`
        : "This run drafts nothing, so it has no place here.")
      + (error ? ` ${error}` : "");
    element.replaceChildren(
      table("Speed over plain decoding, by accepted share and length of the draft", ["accepted",
        ...speeds.lengths.map((x) => `${x}`)],
        speeds.shares.map((share, y) =>
          h("tr", null, h("th", { scope: "row" }, `${Math.round(100 * share)} %`), speeds.grid[y].map((chain, k) => {
            const mine = at && at[0] === y && at[1] === k, x = mine ? one.speedup : chain;
            return h("td", { class: [x < 1 ? "slow" : "", mine ? "mine" : ""].join(" ").trim() || null,
              style: x < 1 ? null : `--k: ${Math.min(40, 6 + (34 * Math.log(x)) / Math.log(most)).toFixed(0)}%`,
              "aria-label": `${formatFixed(x)} times${x < 1 ? ", slower" : ""}${mine ? ", this run's trees" : ""}` },
              x.toFixed(x >= 9.95 ? 0 : 1));
          }))
        ), "surface"),
      h("p", { class: "quiet" },
        "Across: tokens drafted per step. Shaded: faster than one token at a time; plain: slower.")
    );
  }
  return { element, note, draw };
}
