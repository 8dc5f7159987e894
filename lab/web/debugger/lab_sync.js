/* lab_sync: the Debugger shows the same run at the same step as the Lab: it copies what comes there, and where the
 * reader goes here the Lab goes too. */
import { ask, panes } from "../runs/runs.js";
import { current } from "../shared/address.js";
import { firstHit } from "./search.js";

/** begun(): another run is shown from now on; moved(): the reader has moved; draw(): something has come. */
export function labSync(shared, { begun, moved, draw }) {
  let taking = false; // what changes now comes from the Lab
  const { store, theirs } = shared;

  function sought(i) {
    if (taking) return;
    if (shared.mine.following) theirs()?.follow(true);
    else theirs()?.seek(i);
    moved();
  }
  const selected = (selection) => taking || (theirs()?.select(selection), moved());
  /** Copy the new steps, and the displayed place. */
  function follow() {
    if (current() !== "debugger" || !panes[0]) return;
    if (shared.pane !== panes[0]) begin();
    const { mine } = shared, view = theirs(), { head, end, steps } = view.store;
    taking = true;
    if (head && head !== store().head) mine.push(head);
    steps.forEach((one, i) => one !== store().steps[i] && mine.push(one));
    if (end && end !== store().end) mine.push(end);
    if (view.following ? !mine.following : mine.following || mine.at !== view.at)
      view.following ? mine.follow(true) : mine.seek(view.at);
    const { selection } = view, own = mine.selection;
    if (selection && selection.step === view.at && (selection.step !== own?.step || selection.node !== own?.node))
      mine.select(selection);
    taking = false;
    halted();
    draw();
  }
  function begin() {
    const before = shared.pane;
    Object.assign(shared, { pane: panes[0], stop: null, met: null });
    shared.mine.clear();
    begun(before);
  }
  /** A live run has come to a breakpoint. */
  async function halted() {
    const { pane } = shared, { broke } = pane;
    if (!broke || pane.status !== "paused" || broke.step >= store().count
      || shared.met === `${broke.step} ${broke.condition}`) return;
    shared.met = `${broke.step} ${broke.condition}`; // once: the reader may go elsewhere while it is paused
    const mark = (shared.stop = { step: broke.step, text: broke.condition, why: broke.why });
    const hit = await firstHit(pane, broke.condition, broke.step, 1).catch(() => null);
    if (shared.pane !== pane || shared.stop !== mark) return;
    await whole(broke.step).catch(() => null);
    if (shared.pane === pane && shared.stop === mark && pane.status === "paused")
      go(broke.step, hit?.step === broke.step ? hit.node : null);
  }
  function go(i, node) {
    if (node === null || node === undefined) shared.mine.seek(i);
    else shared.mine.select({ step: i, node });
  }
  /** Step i with its full record. */
  async function whole(i) {
    const view = theirs();
    if (!view.store.whole(i)) {
      for (const one of (await ask(`ds/run/${shared.pane.id}/range?from=${i}&to=${i + 1}`)).steps) view.push(one);
    }
    follow();
    return view.store.steps[i];
  }
  return { sought, selected, follow, go, whole };
}
