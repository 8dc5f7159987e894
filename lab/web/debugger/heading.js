/* heading: the displayed run and its state, and where and why it was stopped. */
import { h } from "../scope.js";
import { paneTitle, noStepReason } from "../runs/runs.js";
import { numberOf } from "./breakpoints/breakpoints.js";

/** nothing: the view's element that is shown while the run has no step. */
export function heading(shared, nothing) {
  const named = h("span", { class: "quiet" }), banner = h("p", { class: "banner", role: "status" });
  function stopped() {
    const { pane, stop, mine } = shared;
    const number = stop ? numberOf(stop.text) : 0, shown = stop && stop.step === mine.at && pane.id;
    banner.hidden = !shown;
    const said = shown
      ? [`Stopped at ${number ? `breakpoint ${number}` : "a breakpoint"}: `, h("code", null, stop.text),
        h("span", null, `, step ${stop.step}. ${stop.why || ""}`)] : [];
    const as = shown ? `${number} ${stop.text} ${stop.step} ${stop.why}` : "";
    if (banner.dataset.as !== as) (banner.dataset.as = as), banner.replaceChildren(...said);
  }
  function draw() {
    const { pane, live } = shared, { head, count } = shared.store(), state = live() ? pane.status : "recorded";
    named.textContent = !pane.id ? ""
      : [paneTitle(pane), ...(head ? [head.model.name] : []), `run ${pane.id.slice(0, 8)}`, state].join(", ");
    nothing.textContent = !pane.id || count || !live() ? noStepReason()
      : state === "paused" ? "The run is paused before its first step: press Continue, or Step."
      : "The run has made no step yet.";
    stopped();
  }
  return { named, banner, draw };
}
