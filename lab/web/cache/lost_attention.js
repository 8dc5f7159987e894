/* lost_attention: what the target lost compared with a full cache: the attention that would have fallen on entries
 * which are gone, and how far the next token's distribution has drifted. Compared with the original model only the
 * drift. Shown only for runs with such a reference. */
import { h, toggle } from "../scope.js";
import { chart, room } from "./chart.js";
import { quiet, section, share, table } from "./parts.js";

const ROWS = 60; // of the table
const ROUNDING = 0.0005; // share of all attention: a smaller loss is rounding if every entry is held
const nats = (x) => (x > 0 && x < 0.0005 ? "< 0.001" : x.toFixed(3));

/** series(): the answer of the section on budget and bytes, which contains these lines too. */
export function lostAttentionView(shared, series) {
  const said = h("p"), charts = h("div", { class: "charts" }), twin = h("div", { hidden: "" }), note = quiet();
  const asTable = toggle("Show as table", (on) => ((twin.hidden = !on), (charts.hidden = on), draw()));
  const title = h("h2"), element = section("missed", [title, h("span", { class: "row end" }, asTable)],
    said, charts, twin, note);
  element.hidden = true;
  const ofModel = "The model that this one was made of read the same text, with a cache that held every entry. Drift: "
    + "how far the next token's distribution is from its own (KL divergence, in nats); 0 is the same distribution. The "
    + "text of the run is tinted by it, and a token says what it would have been.";
  const ofCache = "The run also kept a second cache that held every entry and read the same text. Lost "
    + "mass: the share of its attention that fell on entries which this cache no longer held; 0 % is nothing missed. "
    + "Drift: how far the next token's distribution is from the one of the full cache (KL divergence, in nats); 0 is "
    + "the same distribution. A cache can lose much that changed little: then the drift stays low.";
  function draw() {
    const all = series();
    element.hidden = !all?.drift;
    if (element.hidden || !shared.looked()) return;
    const i = shared.now(), now = shared.map?.step === i ? shared.map.missed : null;
    title.textContent = all.lost ? "Compared with a full cache" : "Compared with the original weights";
    note.textContent = all.lost ? ofCache : ofModel;
    said.textContent = sentence(now, i);
    const wide = room(charts);
    const last = all.step.length - 1, thin = Math.ceil(all.step.length / ROWS);
    charts.replaceChildren(...[
      all.lost && chart({ word: "lost mass, of the full cache's attention", wide, steps: all.step, i, unit: share,
        least: 0.01, present: now && [now.lost, now.worst],
        lines: [["mean", all.lost, "full"], ["worst head", all.worst, "dashed"]] }),
      chart({ word: "drift of the next token's distribution, in nats", wide, steps: all.step, i, unit: nats,
        least: 0.001, present: now && [now.drift], lines: [["drift", all.drift, "full"]] })].filter(Boolean));
    const of = (value, unit) => (value === null ? "–" : unit(value));
    const heads = [...(all.lost ? ["lost mass", "of the worst head"] : []), "drift, nats"];
    const masses = (k) => (all.lost ? [of(all.lost[k], share), of(all.worst[k], share)] : []);
    twin.replaceChildren(table(`${all.lost ? "Lost mass and drift" : "Drift"} over the steps`,
      [`after step${all.every[0] > 1 ? `, mean of ${all.every[0]}` : ""}`, ...heads],
      [...all.step.keys()].filter((k) => last < ROWS || k % thin === 0 || k === last)
        .map((k) => [String(all.step[k]), ...masses(k), of(all.drift[k], nats)])));
  }
  return { element, draw };
}

/** The reference's result for the present step. */
function sentence(now, i) {
  if (!now) return "";
  if (now.head === null) return `In step ${i} the distribution drifted by ${nats(now.drift)} nats.`;
  const [layer, head] = now.head;
  const lost = now.worst >= ROUNDING
    ? `${share(now.lost)} of the full cache's attention fell on entries that were gone (${share(now.worst)} in layer `
      + `${layer}, head ${head}, which lost most)` : "nothing that the full cache attended to was gone";
  const cut = now.cut === null || now.cut === 0 ? ""
    : ` Of the newest token's attention ${share(now.cut)} fell on what left in this step.`;
  return `In step ${i}, ${lost}, and the distribution drifted by ${nats(now.drift)} nats.${cut}`;
}
