/* panes: the pictures of the compared runs under one slider, and the switcher if they do not fit side by side. */
import { button, h } from "../scope.js";
import { pair } from "../scope/pair/pair.js";
import { prefetch } from "../runs/prefetch.js";
import { loads } from "../parts.js";
import { fetchSteps } from "../runs/runs.js";
import { LETTERS } from "./letters.js";

const EMPTY = "No step of this run has come yet.";

/** now: what is compared; its `both` is the joint picture, null if there is none. ways: ratio, why, tools, onSeek,
 *  onMove and onAlign, as `pair` takes them. */
export function panes(now, ways) {
  const element = h("div", { class: "runs" }),
    switcher = h("div", { class: "switcher", role: "group", "aria-label": "pane" });

  /** If the panes do not fit side by side, this one is visible. */
  function front(k) {
    now.both.root.dataset.front = k;
    [...switcher.children].forEach((one, i) => one.setAttribute("aria-pressed", i === k));
  }
  const gap = (run, from, to) => fetchSteps(run, from, to, () => now.runs.includes(run) && run.view);
  const spare = () => ["laws", "passes", ...(now.views.includes("cache") ? [] : ["maps"])];
  const around = prefetch({ panes: () => now.runs, spare, fetch: gap }), moved = () => (around(), ways.onMove());
  const drawn = ({ runs, base, views, way }) =>
    pair(element, { count: runs.length, base, views, align: way, empty: EMPTY, tools: ways.tools, why: ways.why,
      name: (k) => now.runs[k]?.named, ratio: (k) => now.runs[k] && ways.ratio(k), onSeek: ways.onSeek,
      onGap: (k, ...of) => now.runs[k] && gap(now.runs[k], ...of), onMove: moved, onAlign: ways.onAlign,
      onPane: front, spare: spare(), loads });

  return {
    element,
    /** Remove the pictures; returns the place that they showed, null if they followed the newest steps. */
    clear() {
      const { both } = now, place = both && !both.following ? both.at : null;
      both?.destroy();
      now.both = null;
      return place;
    },
    /** Draw the runs at a place, with the steps that have already come. */
    draw(place) {
      const stores = now.runs.map((run) => run.view?.store), both = (now.both = drawn(now));
      both.root.lastElementChild.before(switcher);
      // one speaks for all
      for (const reader of both.root.querySelectorAll(".aloud")) reader.setAttribute("aria-live", "off");
      switcher.replaceChildren(
        ...now.runs.map((run, k) =>
          button(LETTERS[k], () => (front(k), run.view.root.focus({ preventScroll: true })),
            { "aria-pressed": "false" })
        )
      );
      now.runs.forEach((run, k) => {
        run.view = both.views[k];
        for (const message of stores[k] ? [stores[k].head, ...stores[k].steps, stores[k].end] : [])
          if (message) run.view.push(message);
      });
      front(0);
      if (place) both.seek(now.way === "clock" ? { seconds: place.seconds } : { token: place.token });
    },
  };
}
