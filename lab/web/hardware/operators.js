/* operators: bytes and FLOP of the present step by operator, of one lane at a time. */
import { button, formatCount, h, formatScaled } from "../scope.js";
import { row, scrollBox, table } from "./tables.js";

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
  exit_test: "exit test",
  kv_copy: "entries copied",
};

export function operatorsTable() {
  const element = scrollBox("the operators"), note = h("p", { class: "quiet" }),
    lanes = h("span", { class: "lanes", role: "group", "aria-label": "whose passes" });
  let lane = "target", operators = null;
  function draw() {
    const all = operators?.rows || [], names = [...new Set(all.map((x) => x.lane))];
    if (!names.includes(lane)) lane = names[0] || "target";
    const choose = (name) => ((lane = name), draw(), lanes.querySelector("[aria-pressed=true]")?.focus());
    const way = (name) => button(name, () => choose(name), { "aria-pressed": String(name === lane) });
    lanes.replaceChildren(...(names.length > 1 ? names.map(way) : []));
    const rows = all.filter((x) => x.lane === lane), total = (of) => rows.reduce((sum, x) => sum + of(x), 0),
      moved = (x) => x.weights + x.kv + x.act;
    const bytes = total(moved), flops = total((x) => x.flops),
      share = (x) =>
        h("span", { class: "share" }, h("i", { style: `--w: ${(100 * x).toFixed(1)}%` }), `${(100 * x).toFixed(0)} %`);
    note.textContent = operators?.trouble
      || (rows.length
        ? `Step ${operators.step}, all passes of ${lane} together: ${formatScaled(bytes)}B moved, `
          + `${formatScaled(flops)}FLOP.`
        : "Nothing of this step can be priced.");
    element.replaceChildren(
      rows.length
        ? table("Operators of the step", ["operator", "run", "FLOP", "weights", "cache", "activations", "FLOP / byte",
          "of bytes", "of FLOP"],
          rows.map((x) =>
            row(OPS[x.name] ?? x.name.replaceAll("_", " "), [formatCount(x.n), formatScaled(x.flops).trim(),
              x.weights ? `${formatScaled(x.weights)}B` : "–", x.kv ? `${formatScaled(x.kv)}B` : "–",
              `${formatScaled(x.act)}B`,
              (x.flops / moved(x)).toFixed(2), share(moved(x) / bytes), share(x.flops / flops)])
          )) : ""
    );
  }
  return {
    element,
    note,
    lanes,
    /** Draw the server's answer: {step, rows}, or {rows: [], trouble}. */
    show: (answer) => ((operators = answer), draw()),
  };
}
