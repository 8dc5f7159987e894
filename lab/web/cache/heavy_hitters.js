/* heavy_hitters: the positions that drew most attention, of one head or over all of them. */
import { button, h, visibleText } from "../scope.js";
import { quiet, share, table } from "./parts.js";
import { question } from "./question.js";

export function heavyHittersView(shared) {
  const choice = h("select", { "aria-label": "heavy hitters of" }), out = h("div"), note = quiet();
  let head = ""; // a row, or all of them

  const asked = question(
    () => (shared.known() ? shared.query("/heavy", { step: shared.now(), row: head }) : null),
    (answer) => draw(answer)
  );
  /** Offer the rows of the map. */
  function fill() {
    const all = shared.map.layers * shared.map.heads;
    if (choice.childElementCount === all + 1) return;
    choice.replaceChildren(h("option", { value: "" }, "all layers and heads"),
      ...[...Array(all).keys()].map((row) => h("option", { value: row }, shared.rowName(row))));
    head = "";
  }
  choice.addEventListener("change", () => ((head = choice.value), shared.load()));
  function draw(answer) {
    out.replaceChildren();
    note.textContent = "";
    if (!answer || !shared.map) return;
    const largest = Math.max(1e-9, ...answer.rows.map((x) => x[2]));
    const rows = answer.rows.map(([p, text, part, kept]) => {
      const to = button(visibleText(text) || "–", () => shared.go(head === "" ? shared.at.row : Number(head), p), {
        class: "bare tok",
        "aria-label": `position ${p}, ${visibleText(text)}`,
      });
      const wide = `--w: ${((100 * part) / largest).toFixed(1)}%`;
      return [h("span", { class: "what" }, to, h("small", null, String(p))),
        h("span", { class: "share" }, h("i", { style: wide }), answer.measured ? share(part) : `${kept}`),
        `${kept} of ${answer.of}`];
    });
    out.append(
      rows.length ? table("Heavy hitters", ["token", answer.measured ? "attention" : "heads", "kept by"], rows) : ""
    );
    note.textContent = sentence(answer, shared.map, head === "" ? ", mean over the heads" : "");
  }
  return { elements: [choice, out, note], question: asked, fill };
}

/** What the figures are, or why there are none. */
function sentence({ rows, measured, recorded }, { heads, held, length, went }, mean) {
  const layers = [...new Set(recorded.map((row) => Math.floor(row / heads)))].join(", ");
  if (!rows.length)
    return measured ? `Attention is recorded of layers ${layers}: choose one of these.`
      : held < length ? "Nothing older than the window is kept."
      : `Nothing was ${went} so far and attention is not recorded: nothing distinguishes the entries.`;
  if (measured === "mass")
    return `Attention: the part that fell on the entry, of what the entries held now have drawn${mean}.`;
  return measured
    ? `Attention of this step alone, recorded of ${layers.includes(",") ? "layers" : "layer"} ${layers}${mean}.`
    : "Attention is not recorded in this step: listed is what is kept although it is old, by the number of heads.";
}
