/* breakpoint_banner: says that the displayed run is paused at a breakpoint, where and why, and how to go on. */
import { button, h } from "../scope.js";
import { ask, onChange, panes } from "../runs/runs.js";
import { go } from "../shared/address.js";

/** A band over the picture while the run is paused at a breakpoint. */
export function breakpointBanner() {
  const word = h("b", null, "Paused at a breakpoint"), words = h("span");
  const act = (action) => ask(`ds/run/${panes[0].id}/${action}`, { method: "POST" }).catch(() => {});
  const element = h("section", { class: "ds-halted", role: "alert", "aria-label": "breakpoint" }, word, words,
    h("div", { class: "ways" },
      button("Go on", () => act("resume"), { class: "ds-button" }),
      button("Look at it in the Debugger", () => go("debugger"), { class: "ds-button" })));
  onChange(() => {
    const broke = panes[0]?.status === "paused" && panes[0].broke;
    element.hidden = !broke;
    words.textContent = broke ? `${broke.condition}, at step ${broke.step}: ${broke.why}` : "";
  });
  return element;
}
