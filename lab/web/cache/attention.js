/* attention: the rows of attention of a step's tokens in one layer and head; if none are recorded, a way to record
 * them. */
import { h, plural, visibleText, toggle } from "../scope.js";
import { ask, open } from "../runs/runs.js";
import { grid } from "./grids.js";
import { statusLine, canvas, quiet, refuse, section, share, table, token } from "./parts.js";
import { question } from "./question.js";

const LISTED = 24; // rows in the table

/** Record the run again with attention: a sentence why, the layers, the button. */
function recorder(shared) {
  const layers = h("input", { type: "text", value: "0", "aria-label": "layers, with commas", size: 8,
    spellcheck: "false", autocomplete: "off" });
  const why = statusLine("alert"), said = h("p");
  const form = h("form", { class: "row" }, h("label", null, "layers ", layers),
    h("button", { type: "submit", class: "ds-button" }, "Record again with attention"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    refuse(why);
    const wanted = layers.value.split(/[\s,]+/).filter(Boolean).map(Number);
    try {
      if (!wanted.length || wanted.some((x) => !Number.isInteger(x)))
        throw new Error("Give numbers of layers with commas between them, such as 0,3.");
      const { run } = await ask(`${shared.base()}/attention`,
        { method: "POST", body: JSON.stringify({ layers: wanted }) });
      shared.at.position = null;
      open(run, { own: true });
    } catch (error) {
      refuse(why, String(error.message));
    }
  });
  function tell(trouble) {
    const levels = shared.store()?.head?.levels || [];
    said.textContent = trouble || (levels.includes("full")
      ? "This step holds no attention: of a step at most 524,288 weights are kept; record fewer layers."
      : `This run has level “${levels.at(-1) ?? "summary"}” and holds no attention. Record it with --trace-level full `
        + `--layers 0,3 on the command line, with level="full", layers=[0, 3] in Python, or here:`);
  }
  return { element: h("div", { hidden: "" }, said, form, why), tell };
}

export function attentionView(shared) {
  const layer = h("select", { "aria-label": "layer" }), head = h("select", { "aria-label": "head" }), said = h("p"),
    picture = canvas("img", "rows of attention"), note = quiet(), twin = h("div", { hidden: "" }),
    box = h("div", { class: "picture" }, picture), lack = recorder(shared);
  const asTable = toggle("Show as table", (on) => ((twin.hidden = !on), (box.hidden = on), draw()));
  const choices = h("span", { class: "row" }, h("label", null, "layer ", layer), h("label", null, "head ", head),
    asTable);
  const element = section("seen", [h("h2", null, "Attention of this step"), choices], lack.element, said, box, twin,
    note);
  let seen = null, wanted = { layer: null, head: 0 };

  const asked = question(
    () => (shared.looked()
      ? shared.query("/attention", { step: shared.now(), ...(wanted.layer === null ? {} : { layer: wanted.layer }),
        head: wanted.head }) : null),
    (answer, trouble) => ((seen = answer), draw(trouble))
  );
  layer.addEventListener("change", () => ((wanted.layer = Number(layer.value)), shared.load()));
  head.addEventListener("change", () => ((wanted.head = Number(head.value)), shared.load()));
  const offer = (select, values) =>
    select.childElementCount === values.length
    || select.replaceChildren(...values.map((x) => h("option", { value: x }, String(x))));

  function draw(trouble) {
    const some = !!seen?.layers?.length;
    for (const part of [choices, said, note]) part.hidden = !some;
    box.hidden = !some || !twin.hidden;
    lack.element.hidden = some || (!seen && !trouble);
    if (!some) return lack.tell(trouble);
    offer(layer, seen.layers);
    offer(head, [...Array(shared.map?.heads ?? 1).keys()]);
    layer.value = String(seen.layer);
    head.value = String(seen.head);
    const rows = seen.weights.flatMap((lines, g) => lines.map((line, r) => ({ g, r, line }))),
      peak = Math.max(1e-9, ...rows.map(({ line }) => Math.max(...line)));
    [said.textContent, note.textContent] = sentences(seen, peak);
    if (!box.hidden && shared.wide()) paint(rows, peak);
    if (!twin.hidden) list(rows);
  }
  function paint(rows, peak) {
    const score = seen.positions.map((_, c) => rows.reduce((sum, { line }) => sum + line[c], 0)),
      bound = [...score].sort((a, b) => b - a)[Math.min(score.length - 1, 30)] ?? 0;
    const query = (g) => `q${seen.head * seen.weights.length + g}`;
    grid(picture, shared.colours(), {
      wide: shared.wide(),
      rows: rows.length,
      columns: seen.positions.length,
      group: seen.queries.length,
      left: 74,
      most: 22,
      tall: rows.length > 48 ? 4 : rows.length > 16 ? 8 : 14,
      cell: (row, c) => [1, Math.sqrt(rows[row].line[c] / peak), 0],
      label: (row) => {
        const { g, r } = rows[row];
        if (rows.length > 48) return r ? "" : query(g);
        return `${query(g)} ${visibleText(seen.queries[r][1]).slice(0, 6)}`;
      },
      over: score.flatMap((x, c) =>
        x >= bound && x > 0 ? [[c, visibleText(seen.texts[c]).slice(0, 12).replace(/^␣/, "") || "␣"]] : []),
    });
    picture.setAttribute("aria-label",
      `attention of step ${seen.step}, layer ${seen.layer}, head ${seen.head}. ${said.textContent}`);
  }
  function list(rows) {
    const shown = rows.slice(0, LISTED), { positions, ends, queries } = seen;
    const name = ({ g, r }) => `query head ${seen.head * seen.weights.length + g}`
      + (queries.length > 1 ? `, position ${queries[r][0]}` : "");
    twin.replaceChildren(
      table(`Attention of step ${seen.step}, layer ${seen.layer}, head ${seen.head}`,
        [seen.bin > 1 ? "positions" : "position", "token", ...shown.map(name)],
        positions.map((p, c) => [p === ends[c] ? String(p) : `${p}–${ends[c]}`, token(seen.texts[c]),
          ...shown.map(({ line }) => line[c].toFixed(4))])),
      rows.length > LISTED ? h("p", { class: "quiet" }, `The first ${LISTED} of ${rows.length} rows.`) : ""
    );
  }
  return { element, question: asked, draw, reset: () => ((seen = null), (wanted = { layer: null, head: 0 })) };
}

/** The largest attention weights, and how to read the picture. */
function sentences(seen, peak) {
  const [early, late, rest] = seen.shares, tokens = seen.queries.length;
  return [
    `Of what this step's ${plural(tokens, "token")} gave in layer ${seen.layer}, head ${seen.head}, ${share(early)} `
    + `went to the first ${seen.first === 1 ? "position" : `${seen.first} positions`}, ${share(late)} to the `
    + `${seen.newest} newest, ${share(rest)} to those between.`,
    `One row per query head${tokens > 1 ? " and token" : ""} of the group (${seen.weights.length} share this KV head), `
    + `one column per ${seen.bin > 1 ? `${seen.bin} positions, their weights added` : "position that was held"}; `
    + `stronger: more weight, by its root, the strongest ${share(peak)}.`,
  ];
}
