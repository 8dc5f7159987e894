/* details: one method of the catalogue in words: what it does, needs and keeps, its source, and its measurements. */
import { label } from "../shared/exactness.js";
import { copyButton } from "../export/save.js";
import { button, h, formatFixed } from "../scope.js";

/** Fill `about` with the details of `x`, a part or a preset. command: the one that measured; take(x): use it; any:
 *  whether the list contains anything. */
export function describe(about, x, { command, meanings, take, any }) {
  if (!x) return about.replaceChildren(h("p", { class: "quiet" }, any ? "Nothing fits: take a filter away." : ""));
  const rows = [
    ["Made of", x.made],
    ["Run by", x.run && h("code", null, x.run)],
    ["Needs", x.needs.join(", ") || "nothing but the model"],
    ["Exactness", `${label(x.exactness)}: ${meanings[x.exactness]}`],
    ["Source", x.source],
    ["The authors' headline", x.headline],
    ["Measured here",
    x.measured ? `${formatFixed(x.measured.tau)} tokens a pass, × ${formatFixed(x.measured.ratio)} plain decoding`
      : x.kind === "preset" ? "" : "not measured"],
  ];
  const link = x.link ? copyButton("Copy link", () => location.origin + location.pathname + x.link, "ds-button") : null;
  about.replaceChildren(...[
    h("h2", null, x.title || x.name),
    h("p", { class: "quiet" }, `${x.family}, `, h("code", null, x.name)),
    h("p", { class: "idea" }, x.idea),
    h("dl", null,
      rows.filter(([, text]) => text).map(([word, text]) =>
        h("div", null, h("dt", null, word), h("dd", null, text))
      )),
    x.measured
      ? h("p", { class: "quiet" }, "Measured by ", h("code", null, command),
        ", greedy. Headlines are the authors', on their models and machines; recalled: not checked in the paper.")
      : x.headline
      ? h("p", { class: "quiet" },
        "A headline is the authors', on their models and machines; recalled: not checked in the paper.") : null,
    x.why ? h("p", { class: "ds-refusal" }, x.why) : null,
    h("div", { class: "ways" }, x.run ? copyButton("Copy command", () => x.run, "ds-button")
      : button("Use it", () => take(x), { class: "ds-button go" }), link),
  ].filter(Boolean));
}
