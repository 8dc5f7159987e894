/* branches: the run that this one was forked from, and the forks of it. */
import { button, h } from "../../scope.js";
import { ask, open } from "../../runs/runs.js";
import { current } from "../../shared/address.js";
import { forcedText, settingsText } from "./changes.js";

const AGAIN = 1200; // ms between two requests for live forks

const runName = (one) => one.name || `run ${one.run.slice(0, 8)}`;

/** Show runs side by side. */
export const compare = (...runs) => (location.hash = "#compare&runs=" + runs.join(","));

/** run(): the id of the displayed run, or nothing. */
export function branchList(run) {
  let family = null, timer = 0, drawnAs = "";
  const origin = h("p", { class: "origin" }), list = h("ul", { class: "list", "aria-label": "forks of this run" });
  /** Ask which forks the run has; again, while one of them is live. */
  async function look() {
    const id = run();
    clearTimeout(timer);
    if (!id || current() !== "debugger") return;
    try {
      const got = await ask(`ds/run/${id}/branches`);
      if (id !== run()) return;
      family = got;
      if (got.branches.some((one) => ["queued", "running"].includes(one.status))) timer = setTimeout(look, AGAIN);
    } catch {
      family = null; // it is requested again with the next run, or when the page is shown again
    }
    draw();
  }
  const ways = (one, ...runs) => [
    button("Open", () => (open(one.run), list.closest(".ds").focus({ preventScroll: true })),
      { "aria-label": `open ${runName(one)}` }),
    button("Compare", () => compare(...runs), { "aria-label": `compare with ${runName(one)}` }),
  ];
  function draw() {
    const { of: parent = null, branches = [] } = family || {}, as = JSON.stringify([parent, branches]);
    if (as === drawnAs) return;
    drawnAs = as;
    origin.replaceChildren(
      ...(parent
        ? [h("span", null, `This run is a fork of ${runName(parent)}, from its step ${parent.step}.`),
          ...ways(parent, parent.run, run())] : [])
    );
    list.replaceChildren(
      ...branches.map((one) =>
        h("li", null,
          h("div", null, h("b", null, runName(one)),
            h("span", { class: "quiet" },
              [`step ${one.step}`, settingsText(one.change), forcedText(one.forced || []), one.status]
                .filter(Boolean).join(
                ", "
              ))), ways(one, run(), one.run))
      )
    );
  }
  return {
    elements: [origin, list],
    look,
    /** Another run is shown. */
    reset: () => ((family = null), draw(), look()),
  };
}
