/* debugger: the displayed run, stopped where a condition holds: how it was decided there, what-if, and forks of
 * it. A recorded run is walked through; a live one pauses. The trace is never changed. Each part is a file of
 * debugger/. */
import { h, mount } from "./scope.js";
import { loads } from "./parts.js";
import { NONE, ask, onChange, onStep } from "./runs/runs.js";
import { current } from "./shared/address.js";
import { breakpointList } from "./debugger/breakpoints/breakpoint_list.js";
import { onBreakpoints } from "./debugger/breakpoints/breakpoints.js";
import { labSync } from "./debugger/lab_sync.js";
import { heading } from "./debugger/heading.js";
import { toggleBreakpoint } from "./debugger/breakpoints/breakpoint_toggle.js";
import { whatifPath } from "./debugger/whatif/whatif_path.js";
import { stepAddress } from "./debugger/step_address.js";
import { debuggerState } from "./debugger/state.js";
import { navigation } from "./debugger/navigation.js";
import { watches } from "./debugger/watches/watches.js";
import { keyList, keys, toolbar } from "./debugger/toolbar.js";
import { whatif } from "./debugger/whatif/whatif.js";

export function page(element) {
  const shared = debuggerState(), place = stepAddress(shared);
  const trouble = h("p", { class: "trouble quiet" });
  const tell = (sentence) => trouble.textContent !== sentence && (trouble.textContent = sentence);
  const { sought, selected, follow, go, whole } = labSync(shared, { begun, moved: place.settle, draw });
  const walk = navigation(shared, { go, whole, tell, draw });
  const host = h("div", { class: "stage" });
  shared.mine = mount(host, { views: ["tree", "card", "text", "time"], label: "the run under the debugger", empty: NONE,
    pace: "1/s", keys, onGap: () => {}, onSeek: sought, onSelect: selected, onMove: draw, loads });
  const { root } = shared.mine;

  const points = breakpointList((text) => walk.find([text], 1, true)), looks = watches(),
    tries = whatif(whatifPath(root).show), does = toolbar({ ...walk, mark: () => toggleBreakpoint(shared, tell) }),
    top = heading(shared, root.querySelector(".empty"));
  const card = root.querySelector(".decision"), side = h("div", { class: "side" });
  card.replaceWith(side);
  side.append(card, tries.element);
  side.after(tries.forks);
  element.replaceChildren(
    h("header", { class: "head" }, h("h1", null, "Debugger"), top.named, does.element),
    h("div", { class: "told" }, top.banner, trouble),
    h("div", { class: "desk" }, h("div", { class: "left" }, points.element, looks.element, keyList()), host)
  );
  element.addEventListener("keydown", does.keyed);

  /** Another run is shown; `before` was. */
  function begun(before) {
    if (before?.id && before.id !== shared.pane.id) place.unname();
    tries.reset();
  }
  function draw() {
    const { pane, mine, chosen } = shared;
    if (!pane || current() !== "debugger") return;
    top.draw();
    does.enable(!!pane.id);
    points.draw(pane, mine.at);
    looks.draw(pane, mine.at);
    tries.draw({ pane, store: mine.store, step: mine.store.steps[mine.at], at: mine.at, node: chosen() });
  }

  ask("ds/conditions").then(
    (conditions) => ([points, looks, tries].forEach((part) => part.known(conditions)), draw()),
    (error) => tell(`Breakpoints cannot be checked: ${error.message}`));
  onBreakpoints(draw);
  onStep(follow);
  onChange(follow);
  return { shown: () => (follow(), tries.look()), hidden: place.unname };
}
