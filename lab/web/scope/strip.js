/* The method as a row of stations. */
import { h, pool, say, see, set } from "./shared/elements.js";
import { formatTime, formatShort } from "./shared/numbers.js";
import { nodesOf } from "./store.js";

const STATIONS = [
  ["drafter", "Draft", "draft"],
  ["schedule", "Schedule", null],
  ["acceptance", "Rule", "verify"],
  ["prompt_compression", "Prompt", null],
  ["policy", "Cache", "cache"],
  ["kv_compression", "KV compression", null],
  ["adaptive_depth", "Depth", null],
  ["unmasking", "Unmasking", null],
  ["router", "Router", null],
  ["guidance", "Guidance", null],
  ["sampler", "Sampler", null],
];
// not shown if they are the default ones
const QUIET = ["schedule", "prompt_compression", "kv_compression", "guidance"];
export const spaced = (word) => String(word).replaceAll("_", " ");
const LONGEST = 32; // characters of a knob's text, such as a grammar, that a station has room for
function value(v) {
  const text = String(typeof v === "number" ? +v.toFixed(3) : v);
  return text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text;
}
function knobs(part) {
  return Object.entries(part || {}).filter(([k]) => k !== "name" && k !== "stages")
    .map(([k, v]) => `${spaced(k)} ${value(v)}`).join(", ");
}

const ACTED = { accept: "Rule", reject: "Rule", unreached: "Draft", bonus: "Sampler", resample: "Sampler",
  target: "Sampler", draft: "Sampler" };
/** The method as a row of stations, with the time of each in the step; the lit one made the selected token. */
export function stripView(context) {
  const mark = h("p", { class: "whose" }), element = h("div", { class: "stations" }, mark); // the exactness of the run
  const stations = pool(element,
    () =>
      h("div", { class: "station" }, h("span", { class: "dot" }), h("span", { class: "what" }), h("b"),
        h("span", { class: "knobs" })));
  return {
    element,
    draw(store, i) {
      const head = store.head, step = store.steps[i];
      see(element, head);
      if (!head) return;
      const m = head.method, parts = head.parts, uses = parts.strategy?.uses, shown = [];
      if (m.strategy && !parts.strategy.usual)
        shown.push(["Strategy", spaced(m.strategy.name), knobs(m.strategy), null]);
      for (const [kind, title, clock] of STATIONS) {
        if (!m[kind] || (uses && !uses.includes(kind))) continue;
        if (QUIET.includes(kind) && parts[kind]?.usual) continue;
        if (kind === "acceptance" && parts.drafter.drafts === false) continue; // nothing to test
        const stages = m[kind].stages || [m[kind]];
        // a model that drafts by itself is shown instead of its drafter
        const lane = head.lanes[parts[kind].speaks]?.name;
        shown.push([title, lane || stages.map((x) => spaced(x.name)).join(" → "),
          stages.map(knobs).filter(Boolean).join("; "), clock ? step?.dt[clock] : null]);
        if (kind === "drafter")
          shown.push(["Verify", head.model.name,
            head.model.params ? `${formatShort(head.model.params)} parameters` : "",
            step?.dt.verify]);
      }
      say(mark, (head.text ?? []).filter(Boolean).join(", "));
      mark.classList.toggle("lossy", head.exactness !== "lossless");
      const at = context.chosen(store, i);
      const all = step?.canvas || step?.chain || step?.branches || step?.threads
        || step?.tally || step?.tree; // one part made all of the step
      const whole = !all ? null : step.canvas?.form.part === "unmasking" ? "Unmasking" : "Strategy";
      const chosen = step?.nodes && !whole ? nodesOf(step).find((n) => n.id === at) : null;
      const acted = whole ?? (chosen ? ACTED[chosen.status] : null);
      const acts = acted && !shown.some(([title]) => title === acted) ? "Strategy" : acted;
      shown.forEach(([title, name, under, time], k) => {
        const lit = title === acts;
        stations.at(k).classList.toggle("lit", lit);
        set(stations.at(k), { title: lit ? "this part made what is selected" : null });
        const [, what, bold, line] = stations.at(k).childNodes;
        say(what, title + (time > 5e-5 && title !== "Rule" ? "  " + formatTime(time) : ""));
        say(bold, name);
        say(line, under);
      });
      stations.trim(shown.length);
      const share = ([, name, under]) => Math.min(22, Math.max(11, name.length, under.length / 2.2));
      element.style.setProperty("--columns", shown.map((x) => `minmax(0, ${share(x)}fr)`).join(" "));
    },
  };
}
