/* runs: the runs that the page shows, one or two side by side, and their streams. page.js draws everything around
 * them. */
import { button, extra, h, mount } from "../scope.js";
import { current, fragment } from "../shared/address.js";
import { follow } from "../events/follow.js";
import { prefetch } from "./prefetch.js";
import { loads } from "../parts.js";
import { phase } from "./phase.js";

export const panes = []; // what is shown: one run, or two; the first one is the page's own
// the pair of two; the last run of one's own, and all; what puts settings into the controls, once they are there; what
// the controls of this page say, as text, the models that they name: role -> model, and their {dtype, device}
export const shown = { both: null, mine: null, own: [], examples: [], align: "token", put: null, settings: "",
  models: null, place: null };
const listeners = new Set();
const places = h("div", { class: "ds-places" }); // the element that holds their pictures
const ALONE = ["strip", "tree", "card", "depth", "text", "cache", "notes", "model", "time", "roof"];
const BESIDE = ["tree", "text"];
const GOOD = ["stop_token", "max_new_tokens", "picture_full", "stopped_by_user"];
const WAIT = 500; // ms before what did not come is requested again; doubled each time
const READ = 10000; // ms that the first decision of an example is shown
/** The instructions on a page without a run. */
export const NONE = "No run is shown: press Run in the Lab, or open a trace of the Library.";
const EMPTY = "Choose a method and press Run: every step is shown here while the model decodes.";
const COMING = "The first step of this run is drawn here as soon as it is made.";

/** Call a listener whenever something about the runs has changed, and now. */
export function onChange(listener) {
  listeners.add(listener);
  listener();
}
let wanted = {}; // the runs to show, as last requested: the code for two may load after another request
const followers = new Set();
/** Call a listener whenever another step is shown, or has come. */
export const onStep = (follower) => followers.add(follower);
const notifyStep = () => followers.forEach((follower) => follower());
export const notify = () => listeners.forEach((listener) => listener());
export const isOver = (pane) => !pane || ["", "done", "cancelled", "failed"].includes(pane.status);
export const allOver = () => panes.every(isOver);
/** The run that is active, or will be: the one that the buttons control. */
export const activePane = () => panes.find((pane) => !isOver(pane)) || panes[0];
export const exampleOf = (id) => shown.examples.find((x) => x.run === id);
/** Examples whose models come with the package: they can be repeated at once. */
export const shippedExamples = () => shown.examples.filter((x) => !x.model);
/** Whether the run ended in an unwanted way. */
export const hasFailed = (pane) => !!pane?.end && !GOOD.includes(pane.end.reason);
/** The player: the pair, or the single view. */
export const activePlayer = () => shown.both || panes[0]?.view;

/** The title of a run: the new name of its file, else its method and the first words of its prompt.
 *  @param {{title?: string, named?: string, run: string}} row */
export const runTitle = ({ title, named, run }) => title || named || `run ${run.slice(0, 8)}`;
/** The same of a run that is shown. */
export const paneTitle = ({ id, view, named }) =>
  runTitle({ title: exampleOf(id)?.title, named: view?.store.head?.named || named, run: id });

export async function ask(path, options) {
  const answer = await fetch(path, options);
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok)
    throw Object.assign(new Error(body.error || `The server answered ${answer.status}.`),
      { status: answer.status, offer: body.offer });
  return body;
}

/** An address with a query for the models of this page. */
export const withModels = (path) =>
  (shown.models ? `${path}?${new URLSearchParams({ ...shown.models, ...shown.place })}` : path);

/** Whether a request failed because the server is not there, or still starting. */
export const isUnreachable = (error) => error instanceof TypeError || error.status === 503;
/** The error of a request, as a sentence. */
export const errorText = (error) =>
  (error instanceof TypeError ? "The server does not answer: start it again, then open this page once more."
  : String(error.message || error));

/** The text of a page without a step to show: the reason, such as that the run in the address is gone, and what to
 *  do next. */
export const noStepReason = () => (panes[0]?.id ? `This run has made no step${isOver(panes[0]) ? "" : " yet"}.`
  : [panes[0]?.trouble, NONE].filter(Boolean).join(" "));

/** Make the place of the pictures, and open the run in the address, else the first example. */
export function beginRuns() {
  panes.push(createPane(null));
  window.addEventListener("hashchange", openLinkedRuns);
  openLinkedRuns();
  if (!panes[0].id && !wanted.id && /(?:^#|&)run=/.test(location.hash))
    panes[0].trouble =
      "The run of this link cannot be read, it takes a number of 16 digits: copy the link again from the page that "
      + "made it.";
  loadExamples();
  return places;
}

/** The examples; the first of a shipped model is shown if the address names no run. A server that does not answer
 *  yet is asked again. */
async function loadExamples(wait = WAIT) {
  try {
    shown.examples = await ask("ds/examples");
  } catch {
    return setTimeout(loadExamples, wait, Math.min(2 * wait, 15000));
  }
  const free = !panes[0].id && !wanted.id && !panes[0].trouble;
  const [first] = shippedExamples();
  if (free && first) open(first.run, { quiet: true });
  else panes.forEach(rewindExample), notify();
}

/** An example is shown from its beginning, whether its steps or the list of examples came first. */
function rewindExample({ id, view }) {
  if (exampleOf(id) && view.following && view.store.steps[0]) view.seek(0);
}

function openLinkedRuns() {
  const [id, other] = ["run", "with"].map((name) =>
    new RegExp(`(?:^#|&)${name}=([0-9a-f]{16})(?:&|$)`).exec(location.hash)?.[1]
  );
  if (/&align=clock(&|$)/.test(location.hash)) shown.align = "clock";
  if (id && (id !== panes[0].id || (other || null) !== (panes[1]?.id || null))) open(id, { other });
}

/** Name the runs in the address. Other pages' parameters stay, but a step and its node belong to their run. */
function writeAddress() {
  const [id, other] = panes.map((x) => x.id),
    before = location.hash.slice(1).split("&").filter((part) => part.includes("="));
  const same = before.includes(`run=${id}`),
    kept = before.filter((part) => !/^(run|with|align|set)=/.test(part) && (same || !/^(step|node)=/.test(part)));
  history.replaceState(null, "",
    fragment([`run=${id}`, ...(other ? [`with=${other}`] : []),
      ...(other && shown.align === "clock" ? ["align=clock"] : []), ...kept]));
}

/** Show a run from its beginning and follow it, and another next to it; `quiet`: the address does not name them. */
export function open(id, { quiet = false, other = null, own = false } = {}) {
  const wish = (wanted = { id: null });
  if (other && !extra("pair")) {
    wish.id = id;
    const now = () => wanted === wish && open(id, { quiet, other, own });
    return void loads.pair().then(now, () => setTimeout(now, WAIT));
  }
  const focused = places.contains(document.activeElement);
  if (shown.both) shown.both.destroy();
  else panes.forEach((x) => x.view.destroy());
  shown.both = null;
  for (const old of panes.splice(0)) old.leave(), phase(old.view);
  if (own) (shown.mine = { id, other }), shown.own.unshift(...[id, other].filter((x) => x && !shown.own.includes(x)));
  if (other) createPair(id, other);
  else panes.push(createPane(id));
  if (!quiet) writeAddress();
  panes.forEach(connect);
  if (focused) panes[0].view.root.focus({ preventScroll: true }); // the focus was on an element that is gone
  notify();
}

const blankPane = (id) => ({ id, status: id ? "queued" : "", last: -1, leave: () => {}, end: null, trouble: "" });

function createPane(id) {
  const pane = blankPane(id), host = h("div");
  places.replaceChildren(host);
  pane.view = mount(host, { views: ALONE, label: "the run", empty: id ? COMING : EMPTY, pace: "1/s",
    onPlay: notify, onMove: notifyStep, onGap: (from, to) => fetchSteps(pane, from, to), loads });
  return pane;
}

function createPair(...ids) {
  const fresh = ids.map(blankPane), host = h("div");
  const beside = button("Open in Compare",
    () => (location.hash = fragment([`run=${ids[0]}`, `with=${ids[1]}`, `runs=${ids}`,
      ...(shown.align === "clock" ? ["align=clock"] : [])], "compare")));
  places.replaceChildren(beside, host);
  shown.both = extra("pair").pair(host, { views: BESIDE, align: shown.align, onPlay: notify, onMove: notifyStep,
    name: (k) => fresh[k].named, loads,
    onGap: (which, from, to) => fetchSteps(fresh[which], from, to),
    onAlign: (way) => ((shown.align = way), writeAddress()) });
  fresh.forEach((x, k) => (x.view = shown.both.views[k]));
  panes.push(...fresh);
}

function connect(pane) {
  const { id, view } = pane;
  if (!id) return;
  pane.leave = follow(id, pane.last, {
    head: (head) => view.push(head),
    step(step) {
      pane.last = Math.max(pane.last, step.i);
      phase(view);
      view.push(step);
      if (step.i === 0) rewindExample(pane);
    },
    state(state) {
      Object.assign(pane, { status: state.status, broke: state.broke || null, named: state.named });
      view.expect(state.of || 0);
      phase(view, state, panes[0] === pane ? "yours" : "this one");
      shown.both?.against(); // a run that waits has a name
      notify();
    },
    end(end) {
      pane.end = end;
      if (!isOver(pane)) pane.status = "done";
      phase(view);
      view.push(end);
      notify();
      if (exampleOf(id)) fetchSteps(pane, 0, view.store.count).then(() => play(pane));
    },
    lost(text) {
      if (!isOver(pane)) phase(view), view.note(text);
    },
    gone(sentence) {
      Object.assign(pane, { id: null, status: "", trouble: sentence });
      history.replaceState(null, "", location.pathname + (current() === "lab" ? "" : fragment([])));
      phase(view);
      notify();
    },
  });
}

/** An example plays by itself after its first decision was shown, unless somebody does something with it before,
 *  or wants no motion. */
function play(pane) {
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  let touched = false;
  for (const kind of ["pointerdown", "keydown", "wheel", "touchmove"])
    document.addEventListener(kind, () => (touched = true), { once: true, passive: true });
  places.addEventListener("pointermove", () => (touched = true), { once: true }); // the pointer counts as reading
  setTimeout(
    () =>
      panes[0] === pane && current() === "lab" && !still && !touched && !/[#&]step=/.test(location.hash)
      && pane.view.at === 0 && pane.view.play(true),
    READ
  );
}

/** Request steps that are missing or not whole, while somebody wants them. */
export async function fetchSteps(pane, from, to, wanted = () => panes.includes(pane)) {
  try {
    while (from < to && wanted()) {
      const part = await ask(`ds/run/${pane.id}/range?from=${from}&to=${to}`);
      for (const step of part.steps) pane.view.push(step);
      if (part.next <= from) break;
      from = part.next;
    }
  } catch {
    setTimeout(() => wanted() && pane.view.retry(), 2000);
  }
}
onStep(prefetch({ panes: () => panes, fetch: fetchSteps }));
