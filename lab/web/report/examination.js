/* examination: the draft doctor on the pair of a report, on the prompts of its runs. The server queues it behind the
 * runs that wait; it continues when this page is left. */
import { button, h, plural } from "../scope.js";
import { ask, errorText } from "../runs/runs.js";
import { current } from "../shared/address.js";
import { copyButton } from "../export/save.js";
import { plotBox } from "./speed_chart.js";
import { table } from "./tables.js";

const AGAIN = 500; // ms between two requests for the progress
const HIGH = 340; // px of a panel

const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)}\u00a0%`;

/** The state of an examination: its phase, and how far that is. */
function progressLine(stop) {
  const bar = h("progress", { max: 1, value: 0, "aria-label": "of this phase" }), words = h("p", { role: "status" });
  const element = h("div", { class: "progress", hidden: "" },
    h("div", { class: "line" }, bar, words, button("Stop", stop)));
  return {
    element,
    draw({ over, doing, share }) {
      element.hidden = over;
      bar.value = share;
      if (words.textContent !== doing) words.textContent = doing;
    },
  };
}

/** The result: a sentence, the causes, and the panels. */
function resultView({ result, charts, prompts, of }) {
  const kept = result.tokens_a_pass === null ? ""
    : ` Drafting greedily, it keeps ${result.tokens_a_pass.toFixed(2)} tokens a pass, the target's own included.`;
  const gain = result.distillation, below = gain ? [gain.sentence || gain] : [];
  const causes = table({
    title: "What the doctor says",
    about: `${result.draft} for ${result.target}, at ${plural(result.places, "place")} of `
      + `${plural(result.texts, "text")} (${prompts < of ? `${prompts} of ${of} prompts` : plural(of, "prompt")}), `
      + `temperature 1: overlap (1 - TV) ${percent(result.overlap)}, `
      + `same likeliest token ${percent(result.top1)}, KL ${result.kl.toFixed(3)} nats.${kept}`,
    head: ["cause", "certainty", "evidence", "what to check"],
    rows: result.findings.map((x) => [x.title, percent(x.certainty), x.evidence, x.check]),
    bars: result.findings.map((x) => x.certainty),
    below,
  });
  const panels = charts.map((chart) => {
    const title = chart.light.layout.annotations[0].text;
    const box = plotBox(title, (layout) => ({ ...layout, title: undefined, annotations: [], height: HIGH,
      margin: { l: 48, r: 8, t: 8, b: 52 }, showlegend: chart === charts[0],
      legend: { orientation: "h", y: -0.16, yanchor: "top", x: 0 },
      yaxis: { ...layout.yaxis, automargin: true } }));
    return { chart, box, element: h("figure", null, h("figcaption", null, title), box.element) };
  });
  return {
    elements: [causes, h("div", { class: "panels" }, panels.map((one) => one.element))],
    draw: () => panels.forEach((one) => one.box.show(one.chart)),
  };
}

/** The section below the causes of a report. runs: its ids, as the address has them;  command: the doctor's command
 *  line, "" where there is nothing to examine */
export function draftExamination(runs, command) {
  let id = "";
  const about = h("p", { class: "quiet" }), refused = h("p", { class: "ds-refusal", role: "alert", hidden: "" });
  const out = h("div", { class: "result" });
  const go = button("Examine the draft", begin, { class: "ds-button go" });
  const far = progressLine(() => ask(`ds/examination/${id}/stop`, { method: "POST" }).then(draw, refuse));
  const line = h("div", { class: "command" }, h("code", null, command),
    copyButton("Copy", () => command, "ds-button small"));
  const ways = h("div", { class: "ways" }, go);
  const element = h("section", { class: "examination" }, h("h2", null, "Examine the draft"), about,
    command ? [line, ways] : null, far.element, refused, out);
  about.textContent = command ? "" : "Looking…";

  const busy = (on) => go.setAttribute("aria-disabled", String(on));
  function refuse(error) {
    refused.hidden = !error;
    refused.textContent = error ? errorText(error) : "";
    if (error) busy(false);
  }
  function draw(record) {
    far.draw(record);
    busy(!record.over);
    if (!record.over) return;
    refuse(record.why ? { message: record.why } : null);
    if (record.stopped && !record.why) refuse({ message: "It was stopped, so there is no result." });
    if (!record.result) return;
    const view = resultView(record);
    out.replaceChildren(...view.elements);
    go.textContent = "Examine again";
    view.draw();
  }
  /** Request the progress until it is over, or another report is shown. */
  async function follow(record) {
    id = record.id;
    try {
      for (;;) {
        if (current() === "report") draw(record);
        if (record.over || !element.isConnected) return;
        await new Promise((done) => setTimeout(done, AGAIN));
        if (current() === "report") record = await ask(`ds/examination/${id}`);
      }
    } catch (error) {
      far.element.hidden = true;
      refuse(error);
    }
  }
  async function begin() {
    if (go.getAttribute("aria-disabled") === "true") return;
    busy(true);
    refuse(null);
    try {
      follow(await ask("ds/examination", { method: "POST", body: JSON.stringify({ runs }) }));
    } catch (error) {
      refuse(error);
    }
  }
  /** Ask once the section is in the page: whether there is something to examine, and the last result. */
  async function look() {
    try {
      const { why, most, latest } = await ask(`ds/examination?runs=${runs}`);
      about.textContent = why || "The doctor reads the draft once more, and in other ways, on the target's answers to "
        + `at most ${most} of these prompts, here or with the command below, and names the cause.`;
      ways.hidden = line.hidden = !!why;
      if (latest) follow(latest);
    } catch (error) {
      refuse(error);
    }
  }
  look();
  return { element };
}
