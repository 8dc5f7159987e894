/* Alternatives: the views shown instead of a draft's tree, by the records of a step; all of them are drawn by
 * parts. */
import { see } from "../shared/elements.js";
import { lateView } from "../shared/extras.js";

/** The views that replace the tree, by the record of a step that they draw. */
export function alternativeViews(context) {
  const choose = (k) => context.select(k + 1);
  const views = {
    branches: [lateView("trees", (given) => given.branchesView(context))],
    threads: [lateView("threads", ({ threadsView }) => threadsView(choose))],
    canvas: [lateView("canvas", ({ canvasView }) => canvasView(context))],
    tree: [lateView("trees", (given) => given.searchTreeView(context))],
    survey: [lateView("survey", ({ surveyView }) => surveyView(context))],
  };
  const of = (step) => Object.entries(views).filter(([name]) => step?.[name]);
  return {
    get elements() {
      return Object.values(views).flat().map(({ element }) => element);
    },
    /** The view of a canvas; null while it is not loaded. */
    get canvas() {
      return views.canvas[0].view;
    },
    /** Whether a view of a step is being loaded. */
    away: (step) => of(step).some(([, list]) => list.some(({ view }) => !view)),
    show(step, tabled) {
      for (const [name, list] of Object.entries(views))
        for (const { element } of list) see(element, step?.[name] && !(name === "canvas" && tabled));
    },
    restyle: () => Object.values(views).flat().forEach((view) => view.restyle()),
    /** Draws step i, and returns its nodes for the keys: [{id, parent}], or nothing if the keys work differently. */
    draw(store, i, chosen, width) {
      const step = store.steps[i], side = step.branches?.open ?? step.threads, held = {};
      for (const [name, list] of of(step))
        for (const view of list) held[name] = view.draw(store, i, side ? chosen - 1 : chosen, width);
      if (step.canvas) return null;
      if (step.tree) return held.tree ?? [];
      return (side ? side.tokens : step.tally?.rows ?? []).map((_, k) => ({ id: k + 1, parent: -1 }));
    },
  };
}
