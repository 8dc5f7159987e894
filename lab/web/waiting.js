/* waiting: a run that waits for one that is paused, perhaps on a page that was closed. A paused run keeps its place, so
 * this browser notes which of its runs are paused, and offers to go on with that one, or to stop it. */
import { button, h } from "./scope.js";
import { ask } from "./runs.js";

const KEPT = "decodescope-paused", MOST = 8, LOOK = 2000; // runs that are noted; ms between two looks
const noted = () => {
  try {
    return JSON.parse(localStorage.getItem(KEPT) || "[]").filter((id) => /^[0-9a-f]{16}$/.test(id));
  } catch {
    return []; // forbidden, or no list
  }
};

/** Note a paused run. */
export function note(id) {
  const all = noted();
  if (all[0] === id) return;
  try {
    localStorage.setItem(KEPT, JSON.stringify([id, ...all.filter((one) => one !== id)].slice(0, MOST)));
  } catch {} // full, or forbidden
}

/** The line that stands while one of ours waits. waits(): whether one does; show(id): look at a run */
export function waiting(waits, show) {
  const element = h("section", { class: "ds-trouble", "aria-label": "What this run waits for", role: "status",
    hidden: "" });
  let timer = 0, shown = "";
  function tell(id) {
    element.hidden = !id;
    if (id === shown) return;
    shown = id;
    const post = (action) => ask(`/ds/run/${id}/${action}`, { method: "POST" }).catch(() => {}).then(() => tell(""));
    element.replaceChildren(
      ...(id
        ? [
          h("p", null, `Run ${id.slice(0, 8)} is paused and keeps its place; this one begins when that one has ended.`),
          h("div", { class: "ways" }, button("Go on with it", () => post("resume")),
            button("Stop it", () => post("stop")), button("Show it", () => show(id))),
        ] : [])
    );
  }
  async function find() {
    const all = await Promise.all(
      noted().map((id) => ask(`/ds/run/${id}`).then((run) => (run.status === "paused" ? id : ""), () => ""))
    );
    tell(waits() ? all.find(Boolean) || "" : "");
    timer = waits() ? setTimeout(find, LOOK) : 0;
  }
  return {
    element,
    /** Something about the runs has changed. */
    look() {
      if (!waits()) return tell("");
      timer ||= setTimeout(find, LOOK / 4);
    },
  };
}
