/* scope: draws a decoding run, in the page, in notebooks and in exported files. No dependency, no build step.
 *
 *   const view = mount(element, {onGap, onSeek,
 *     views: ["strip", "tree", "card", "depth", "text", "cache", "notes", "model", "time", "roof"]});
 *   view.push(message)        a head, a step or an end, as lab/wire/wire.py makes them
 *   view.seek(i)  view.follow(true)  view.play(true)  view.select({step, node})  view.theme("auto")  view.destroy()
 *
 *   const both = pair(element, {views: ["tree", "text"], align: "token", onGap})    two runs under one scrubber
 *   both.views[0].push(message)  both.seek({token: 12})  both.align("clock")
 *
 * The other files of this folder are its modules; lab/views/bundle.py joins them into one script. Text of a
 * model or a file enters the page as text nodes; nothing is read as markup. */
import { mount } from "./scope/mount.js";
import { extra } from "./scope/shared/extras.js";

export { button, grid, h, icon, rgb, s, toggle } from "./scope/shared/elements.js";
export { decision, firstOf } from "./scope/card/decision.js";
export { draws, glyph, tokenOf, statusWord, WORDS } from "./scope/shared/marks.js";
export { isWaiting } from "./scope/shared/frame.js";
export { mount } from "./scope/mount.js";
export {
  formatRange, formatCount, keptBytes, formatTime, plural, prob, size, formatFixed
} from "./scope/shared/numbers.js";
export { extra } from "./scope/shared/extras.js";
export { passesView } from "./scope/canvas/passes.js";
export { decides, passName, passWord, roofPoint, formatScaled } from "./scope/time/roof.js";
export { rederives, tellingOf } from "./scope/card/judge.js";
export { addTerm, tips } from "./scope/shared/terms.js";
export { visibleText } from "./scope/shared/tokens.js";

/** Listen to the model's messages and to changes of its traits; the returned function stops that. */
function listenTo(model, message, changes) {
  const all = [["msg:custom", message], ...Object.entries(changes).map(([name, act]) => ["change:" + name, act])];
  for (const [name, act] of all) model.on(name, act);
  return () => all.forEach(([name, act]) => model.off(name, act));
}

/** One run: steps come as custom messages, a finished trace and the cursor as traits. */
function renderRun({ model, el }) {
  const put = (name, value) => (model.set(name, value), model.save_changes());
  const view = mount(el, {
    views: model.get("views") || undefined,
    onGap: (from, to) => model.send({ kind: "gap", from, to }),
    onSeek: (i) => model.get("step") !== i && put("step", i),
    onSelect: (selection) => put("selection", selection),
  });
  const take = () => {
    const all = model.get("messages") || [];
    if (!all.length) return;
    const at = view.following ? -1 : view.at;
    view.clear();
    all.forEach((message) => view.push(message));
    const wanted = at >= 0 ? at : model.get("step");
    if (wanted >= 0) view.seek(wanted);
  };
  const listen = (message) => {
    if (message.kind === "clear") view.clear();
    else if (message.kind === "batch") message.messages.forEach((one) => view.push(one));
    else view.push(message);
  };
  const cursor = () => model.get("step") >= 0 && model.get("step") !== view.at && view.seek(model.get("step"));
  const chosen = () => {
    const { step, node } = model.get("selection") || {};
    if (node !== undefined && (view.selection?.step !== step || view.selection?.node !== node))
      view.select({ step, node });
  };
  take();
  const stop = listenTo(model, listen, { messages: take, step: cursor, selection: chosen });
  return () => (stop(), view.destroy());
}

/** Two finished traces: their messages are in one trait; missing ones are requested by run. */
function renderPair({ model, el }) {
  const both = extra("pair").pair(el, {
    views: model.get("views") || undefined,
    align: model.get("align"),
    onGap: (which, from, to) => model.send({ kind: "gap", which, from, to }),
    onSeek: ({ token }) => (model.set("token", token), model.set("steps", both.at.steps), model.save_changes()),
    onAlign: (way) => (model.set("align", way), model.save_changes()),
  });
  model.get("runs").forEach((messages, which) => messages.forEach((message) => both.views[which].push(message)));
  both.seek({ token: Math.max(1, model.get("token")) });
  const listen = ({ which, messages }) => messages.forEach((message) => both.views[which].push(message));
  const cursor = () => model.get("token") !== both.at.token && both.seek({ token: model.get("token") });
  const way = () => model.get("align") !== both.way && both.align(model.get("align"));
  const stop = listenTo(model, listen, { token: cursor, align: way });
  return () => (stop(), both.destroy());
}

/** Keep plain keys from JupyterLab's shortcuts, which take them before any element hears them, unless the focused
 *  element is marked. Keys with Ctrl, Alt or Meta, and Shift and Enter, stay JupyterLab's. The returned function
 *  stops that. */
function keepKeys(el) {
  const mark = ({ target, key, ctrlKey, altKey, metaKey, shiftKey }) => el.contains(target) && target.toggleAttribute(
    "data-lm-suppress-shortcuts", !(ctrlKey || altKey || metaKey || (shiftKey && key === "Enter")));
  window.addEventListener("keydown", mark, true);
  return () => window.removeEventListener("keydown", mark, true);
}

/** The adapter of a notebook widget. */
export default {
  render(host) {
    const end = host.model.get("runs") ? renderPair(host) : renderRun(host), free = keepKeys(host.el);
    return () => (free(), end());
  },
};
