/* page: everything around the pictures on the app's page: examples, buttons, refusals, models, and errors. Each
 * export gets the element of one part of the page; the parts share the runs of runs.js. */
import { panel } from "./shared/address.js";
import { offerButton } from "./shared/notice.js";
import { keepFocus } from "./shared/focus.js";
import { grid } from "./run_view/grid.js";
import { knobDeclarations, panel as knobPanel, show as showKnobs } from "./run_form/knobs.js";
import { stepLink, followStepLinks } from "./runs/landing.js";
import { checkSettings, copyText, copyButtons, settingsBanner } from "./run_form/settings_diff.js";
import { breakpointBanner } from "./run_view/breakpoint_banner.js";
import { showConversation, showPromptNotes, placePromptNotes } from "./run_form/prompt_notes.js";
import { offerPrompts } from "./run_form/example_prompts.js";
import { copyButton, forms, saveMenu, viewsOf } from "./export/save.js";
import { button, h, icon } from "./scope.js";
import { activePane, activePlayer, allOver, ask, beginRuns, errorText, exampleOf, hasFailed, isOver, notify, onChange,
  open, panes, paneTitle, shippedExamples, shown, withModels } from "./runs/runs.js";
import { pages, tabs } from "./tabs.js";
import { tour } from "./tour/tour.js";
import { activeRuns } from "./runs/active_runs.js";

const THEME = "decodescope-theme";
const SIZE = "decodescope-size";
const KEPT = "decodescope-settings";
const BREAKS = "decodescope-breakpoints"; // where breakpoints.js keeps them
// the icons that only this page has
const PATHS = { stop: "M4.5 4.5h7v7h-7z", step: "M4 3.5v9l5.5-4.5zM12 4v8",
  moon: "M12.5 10A5.5 5.5 0 0 1 6 3.5a5 5 0 1 0 6.5 6.5z" };
const pageIcon = (name) => icon(name, PATHS[name]);
const place = (element) => element.firstElementChild || element;
const readStored = (name) => {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // forbidden
  }
};
const store = (name, text) => {
  try {
    localStorage.setItem(name, text);
  } catch {} // full, or forbidden: then it is not kept
};

let frame = null; // the left column: the line that says what is shown, what went wrong, and the picture

/** Draw before the page around it is ready. */
export function drawEarly() {
  knobDeclarations().catch(() => {}); // so that it is there before the panels are; the panels report errors
  paint();
  keepFocus();
  if (frame) return;
  const waiting = h("div", { id: "ds-early" });
  document.body.prepend(waiting);
  waiting.append(picture());
}

/** The places of the other pages. */
export function showPages(element) {
  pages(place(element));
}

/** The picture, in its place. */
export function showPicture(element) {
  place(element).replaceChildren(frame || picture());
  document.getElementById("ds-early")?.remove();
}

function picture() {
  const places = beginRuns();
  followStepLinks();
  // they act on every live run, whichever page is shown
  if (readStored(BREAKS)) import("./debugger/breakpoints/breakpoints.js");
  const offer = h("div", { class: "ds-offer" });
  withGetModel(({ offerLine }) => offerLine(offer));
  return (frame = h("div", { class: "ds-frame" }, offer, runBar(), breakpointBanner(), tour(), settingsBanner(),
    emptyState(),
    failurePanel(), queueList(), sliders, risks, grid(), places));
}

// other temperatures for the record: filled when it is first requested
const sliders = h("section", { class: "ds-distribution", id: "ds-distribution", "aria-label": "Distribution" });
sliders.hidden = true;
/** The button that shows and hides them. */
function distributionButton() {
  let loading = null;
  const one = button("Distribution", async () => {
    sliders.hidden = !sliders.hidden;
    one.setAttribute("aria-expanded", !sliders.hidden);
    loading ??= import("./run_view/distribution.js").then(({ showDistribution }) => showDistribution(sliders));
    await loading.catch((error) => {
      loading = null;
      sliders.replaceChildren(h("p", { class: "ds-refusal", role: "alert" }, errorText(error)));
    });
  }, { "aria-expanded": "false", "aria-controls": "ds-distribution",
    title: "this place under another temperature, top-k, top-p or min-p" });
  return one;
}

// the risk of the calibrated knobs of the run: filled when it is first requested
const risks = h("div", { class: "ds-risks" });
risks.hidden = true;
/** The calibrated knobs of the displayed run: [{kind, knob, known}]. */
const calibratedKnobs = () => Object.entries(panes[0]?.view.store.head?.parts || {}).flatMap(([kind, part]) =>
  Object.entries(part?.calibrated || {}).map(([knob, known]) => ({ kind, knob, known })));
/** The button that shows and hides their curves. */
function calibrationButton() {
  let views = [], drawn = "";
  async function show() {
    const all = calibratedKnobs(), as = JSON.stringify(all);
    if (risks.hidden || as === drawn) return;
    drawn = as;
    try {
      const { calibration } = await import("./run_form/calibration.js");
      if (as !== drawn) return;
      views = all.map(() => calibration());
      risks.replaceChildren(...views.map((x) => x.element));
      all.forEach(({ known }, k) => views[k].show(known.name, known));
    } catch (error) {
      drawn = "";
      risks.replaceChildren(h("p", { class: "ds-refusal", role: "alert" }, errorText(error)));
    }
  }
  const one = button("Calibration", () => {
    risks.hidden = !risks.hidden;
    one.setAttribute("aria-expanded", !risks.hidden);
    show();
  }, { "aria-expanded": "false", title: "what the calibrated knob of this run risks, and how its value was chosen" });
  onChange(() => {
    const some = calibratedKnobs().length;
    one.style.display = some ? "" : "none";
    if (!some && !risks.hidden) (risks.hidden = true), one.setAttribute("aria-expanded", "false");
    show();
  });
  return one;
}

/** The examples, and the downloads of the displayed run. */
function runBar() {
  const own = h("option", { value: "" }, "Your run");
  const chooser = h("select", { "aria-label": "What is shown" }, own);
  const about = h("span", { class: "about" });
  const save = h("span", { class: "save" }, saveMenu(shownViews, otherForms, "Save")),
    debug = h("a", { class: "debug" }, "Debug"),
    other = distributionButton();
  const lead = () => (debug.href = "#debugger&" + stepLink().split("#")[1]);
  // its keys act at once
  debug.addEventListener("click", () => setTimeout(() => panel()?.focus({ preventScroll: true })));
  // step and node as they are then
  for (const kind of ["focus", "pointerenter", "pointerdown"]) debug.addEventListener(kind, lead);
  chooser.addEventListener("change",
    () => (chooser.value ? choose(exampleOf(chooser.value)) : open(shown.mine.id, shown.mine)));
  let filled = null;
  onChange(() => {
    if (filled !== shown.examples) {
      filled = shown.examples;
      chooser.replaceChildren(own, ...filled.map((x) => h("option", { value: x.run }, "Example: " + x.title)));
    }
    const run = panes[0]?.id;
    own.disabled = !shown.mine && !!exampleOf(run);
    chooser.style.display = filled.length && run ? "" : "none";
    chooser.value = exampleOf(run)?.run || "";
    about.textContent = exampleOf(run)?.about || "";
    save.style.display = run && panes[0].view.store.count ? "" : "none";
    debug.style.display = other.style.display = run ? "" : "none";
    const broke = panes[0]?.status === "paused" && panes[0].broke;
    debug.textContent = broke ? `Debug: paused at ${broke.condition.slice(0, 40)}` : "Debug";
    if (run) lead();
  });
  return h("div", { class: "ds-shown" }, chooser, about, debug, other, calibrationButton(), save);
}

/** The views that are shown, for the menu that saves them. */
function shownViews() {
  const title = (pane) => `${paneTitle(pane)} step ${pane.view.at}`;
  return shown.both
    ? [...viewsOf(shown.both.root, title(panes[0])),
      ...panes.flatMap((pane, k) => viewsOf(pane.view.root, title(pane), "ABCD"[k]))]
    : viewsOf(panes[0].view.root, title(panes[0]));
}

/** Further downloads: the run in other forms, and the address of the displayed place. */
const otherForms =
  () => [h("div", { class: "row" }, h("span", null, "This step"), copyButton("Copy address", stepLink)),
    ...forms(panes[0].id, isOver(panes[0]))];

/** Show an example, and put its settings into the controls: Run repeats it. */
function choose({ run, settings }) {
  open(run);
  shown.put?.(settings);
}

export function connectSettings(set) {
  shown.put = set;
}

/** The suggestions while no run is shown. */
function emptyState() {
  const why = h("p", { class: "ds-refusal" });
  const rows = h("ul");
  const begin = button("Run the example", () => choose(shippedExamples()[0]), { class: "ds-button go" });
  begin.prepend(icon("play"));
  const element = h("section", { class: "ds-none" }, why, h("h2", null, "See a guess refused, and why."),
    h("p", null, "A recorded run opens at once. No model is needed."), begin, rows);
  let filled = null;
  onChange(() => {
    element.style.display = panes[0] && !panes[0].id && shippedExamples().length ? "" : "none";
    why.textContent = panes[0]?.trouble || "";
    if (filled === shown.examples) return;
    filled = shown.examples;
    rows.replaceChildren(
      ...filled.map((x) => h("li", null, button(x.title, () => choose(x), { class: "bare" }), h("span", null, x.about)))
    );
  });
  return element;
}

/** What a run of this page waits for. */
function queueList() {
  const { element, look } = activeRuns({
    said: "This run begins when another is over, or is paused:",
    wanted: () => panes.some((pane) => pane.status === "queued"),
    show: (id) => open(id),
    those: ({ status }) => status === "running",
  });
  onChange(look);
  return element;
}

/** Suggestions after a failed run; its steps stay. */
function failurePanel() {
  const element = h("section", { class: "ds-trouble", "aria-label": "What to do next" });
  let offered = null;
  async function offer(pane) {
    const id = pane.id, run = await ask(`ds/run/${id}`).catch(() => ({}));
    if (panes[0]?.id !== id) return;
    const room = run.estimate ? h("p", null, `The estimate before the run was ${run.estimate}.`) : null;
    const report = h("div", { class: "ds-report" });
    const ways = (run.smaller || []).map((x) => button(x.title, () => shown.put?.(x.settings)));
    element.replaceChildren(
      ...[room,
        h("div", { class: "ways" }, ways.length ? h("span", null, "Try instead:") : null, ways,
          button("Copy report", () => give(report, `ds/run/${id}/report`))), report].filter(Boolean)
    );
  }
  async function give(host, path) {
    const text = await fetch(path).then((answer) => answer.text(), (error) => String(error));
    copyText(host, { way: "report", text });
  }
  onChange(() => {
    const pane = panes.find(hasFailed), id = pane?.id || null;
    element.style.display = id ? "" : "none";
    if (id !== offered) (offered = id), element.replaceChildren(), pane && offer(pane);
  });
  return element;
}

// why nothing was started, and why nothing could be; the run of this page that blocks a new one
const refusal = { host: null, run: "", settings: "", going: "", runOffer: "", offer: "", instead: "" };
function refuse(said) {
  Object.assign(refusal, said);
  if (!refusal.host) return;
  const sentence = refusal.run || refusal.settings;
  refusal.host.className = sentence ? "ds-refusal" : "";
  const offer = refusal.run ? refusal.runOffer : refusal.offer;
  const part = refusal.run ? "" : refusal.instead;
  if (refusal.host.firstChild?.textContent === sentence && !refusal.going && !offer && !part) return;
  const stops = button("Stop it and run this", () => replaceRun(refusal.going), { class: "ds-button" });
  const drafts = button("Draft without a second model", () => shown.put?.(`use ${part}`), { class: "ds-button" });
  refusal.host.replaceChildren(...(sentence ? [h("span", null, sentence)] : []),
    ...(refusal.going ? [stops] : []), ...(part ? [" ", drafts] : []), ...offerButton(sentence && offer));
}
const LOOK = 500; // ms between two looks at the blocking run
const isGoing = (id) => ask(`ds/run/${id}`).then((run) => !isOver(run), () => false);
/** Say that a run is in the way while it is. */
async function watchBlockingRun(id) {
  while (refusal.going === id && (await isGoing(id))) await new Promise((done) => setTimeout(done, LOOK));
  if (refusal.going === id) refuse({ run: "", going: "" });
}
/** Stop the blocking run, and press Run again. */
async function replaceRun(id) {
  await ask(`ds/run/${id}/stop`, { method: "POST" }).catch(() => {});
  while (await isGoing(id)) await new Promise((done) => setTimeout(done, LOOK / 4));
  refuse({ run: "", going: "" });
  const run = document.getElementById("ds-run");
  run.focus();
  run.click();
}

/** The server's answer on the settings: to be stored, their memory, and why they cannot run. */
export function showAnswer(element, value) {
  const host = place(element);
  host.setAttribute("role", "alert");
  const input = () => refuse({ run: "", going: "" });
  if (!refusal.host) document.getElementById("ds-right").addEventListener("input", input);
  refuse({ host, settings: value?.refused || "", offer: value?.offer || "",
    instead: value?.instead || "" });
  if (value?.keep) {
    store(KEPT, shown.settings = value.keep);
    setModels(JSON.parse(value.keep));
    checkSettings();
  }
  if (value?.shown) showKnobs(value.shown);
  if (value?.memory) showMemory(value.memory);
  if (value?.prompts) offerPrompts(value.prompts);
  showPromptNotes(value?.given || "", value?.notes || []);
  showConversation(value);
}

/** The notes under the prompt. */
export function showUnderPrompt(element) {
  placePromptNotes(place(element));
}

/** The knobs of the parts of a kind; see knobs.js. */
export function showKnobPanel(element, of, value, set) {
  knobPanel(place(element), of, value, set);
}

/** Run's answer: an id to follow, or the sentence why not. */
export function followRun(value) {
  refuse({ run: value?.refused || "", going: value?.going || "", runOffer: value?.offer || "" });
  if (value?.going) watchBlockingRun(value.going);
  if (value?.run && value.run !== panes[0]?.id) open(value.run, { other: value.with, own: true });
}

/** The initial settings, as text: those of the opened link, else those of the last visit. */
export function readSettings() {
  const match = /(?:^#|&)set=([^&]*)/.exec(location.hash);
  if (!match) return readStored(KEPT) || "";
  const rest = location.hash.replace(match[0], "").replace(/^&/, "#");
  history.replaceState(null, "", location.pathname + (rest.length > 1 ? rest : ""));
  return match[1] || "?";
}

/** What can be copied from the displayed run, and from the next one. */
export function showCopyButtons(element) {
  copyButtons(place(element));
}

/** Stop, Pause and Step, for the active run; if there is none, for the replay. Actions that are impossible now are
 *  marked as disabled and keep the focus: a button that disappears under a finger is lost to the keyboard. */
export function showTransport(element) {
  const post = (action, pane) => pane?.id && ask(`ds/run/${pane.id}/${action}`, { method: "POST" }).catch(() => {});
  const control = (name, word, act) =>
    button([pageIcon(name), h("span", null, word)], act, { class: "ds-button " + name });
  const word = (one, text, mark) => {
    if (one.lastChild.textContent !== text) one.lastChild.textContent = text;
    if (mark && one.dataset.mark !== mark) (one.dataset.mark = mark), one.replaceChild(pageIcon(mark), one.firstChild);
  };
  let stopping = false;
  const stop = control("stop", "Stop",
    () => ((stopping = true), panes.filter((x) => !isOver(x)).forEach((x) => post("stop", x)), notify()));
  const pause = control("pause", "Pause", () => (allOver() ? activePlayer().play(!activePlayer().playing)
    : post(activePane().status === "paused" ? "resume" : "pause", activePane())));
  const step = control("step", "Step",
    () => (allOver() ? panes[0].view.seek(panes[0].view.at + 1) : post("step", activePane())));
  place(element).replaceChildren(stop, pause, step);
  onChange(() => {
    const idle = allOver(), status = activePane()?.status, plays = idle && !!activePlayer()?.playing;
    const some = panes.some((x) => x.view.store.count > 1);
    stopping = stopping && !idle;
    stop.setAttribute("aria-disabled", idle);
    pause.setAttribute("aria-disabled", idle && !some);
    step.setAttribute("aria-disabled", idle && (!some || panes.length > 1));
    word(stop, stopping ? "Stopping…" : status === "queued" ? "Cancel" : "Stop");
    const still = idle ? !plays : status === "paused";
    word(pause, !still ? "Pause" : idle ? "Play" : "Go on", still ? "play" : "pause");
    document.documentElement.dataset.dsRun = status || "none";
  });
}

/** The list of all methods; on a narrow page also the button that shows and hides the less needed inputs. */
export function showMenu(element) {
  const grid = document.getElementById("ds-grid"), said = h("span", { class: "said", role: "status" });
  const one = button("Prompt and settings", () => one.setAttribute("aria-expanded", grid.classList.toggle("all")),
    { class: "ds-more" });
  one.setAttribute("aria-expanded", "false");
  document.getElementById("ds-right").addEventListener("input", () => (said.textContent = ""));
  place(element).className = "ds-browse";
  const browse = button("All methods…",
    () =>
      import("./catalogue.js").then(({ show }) =>
        show((text) => shown.put?.(text), (sentence) => (said.textContent = sentence))
      ), { class: "ds-button browse" });
  browse.setAttribute("aria-haspopup", "dialog");
  place(element).replaceChildren(browse, one, said);
}

let room = ""; // memory of a run of the present settings
/** Show the memory that the present settings need. */
function showMemory(sentence) {
  room = sentence;
  const host = document.querySelector("#ds-models .ds-models");
  const line = host?.querySelector(".room")
    || host?.appendChild(h("span", { class: "room" }, h("small", null, "memory"), ""));
  if (line) line.lastChild.textContent = sentence;
}

const shortNumber = (n) => (n >= 1e9 ? (n / 1e9).toFixed(1) + " G"
  : n >= 1e6 ? (n / 1e6).toFixed(1) + " M" : n >= 1e3 ? (n / 1e3).toFixed(0) + " k" : String(n));

const SOON = 400, LATE = 3000; // ms between two looks at the models: while some are being loaded, and while none are
const rack = { host: null, turn: 0 };
/** The place of this page that shows the models. */
export function showModels(element) {
  rack.host = place(element);
  watchModels();
  withGetModel(({ getModelButton }) => element.append(getModelButton()));
}
/** Fill the lists of models again. */
export function connectModelLists(again) {
  shown.relist = again;
}
/** Call a function with the module that fetches models, once it is here; without it the page has everything else. */
const withGetModel = (act) => import("./run_form/get_model.js").then(act, () => {});
/** Other models were chosen on this page, role -> model, or another type or device for them. */
function setModels({ models = {}, dtype = "", device = "" }) {
  const place = { dtype, device };
  if (JSON.stringify([models, place]) === JSON.stringify([shown.models, shown.place])) return;
  Object.assign(shown, { models, place });
  watchModels();
}
/** Show which models a run of this page reads, and how far the loading is, until all of them are loaded. */
async function watchModels() {
  const mine = ++rack.turn;
  while (rack.host && mine === rack.turn) {
    const state = await ask(withModels("ds/state")).catch(() => null);
    if (mine !== rack.turn) return;
    if (state) drawModels(state);
    if (state?.ready && !state.phase) return;
    await new Promise((done) => setTimeout(done, state?.phase ? SOON : LATE));
  }
}
function drawModels(state) {
  const rows = state.models.map((m) =>
    h("span", null, h("small", null, m.role), h("b", null, m.name),
      `${shortNumber(m.params)} parameters, ${shortNumber(m.bytes)}B in ${m.dtype} on ${m.device}`,
      m.speed ? `, about ${shortNumber(m.speed)} tokens/s` : "",
      m.loaded || m.trouble ? "" : `, ${state.phase ? "being loaded" : "loaded by the run that needs it"}`,
      m.trouble ? h("span", { class: "ds-refusal" }, m.trouble) : "",
      ...(m.remarks || []).map((text) => h("small", { class: "quiet" }, text)))
  );
  if (state.unloads?.length)
    rows.push(h("span", { class: "quiet" }, `To make room, ${state.unloads.join(" and ")} will be unloaded.`));
  if (state.phase)
    rows.push(h("span", { class: "quiet" }, `${state.phase}, ${Math.round(state.seconds || 0)} s`,
      state.share ? h("progress", { max: 1, value: state.share, "aria-label": "loading" }) : ""));
  else if (state.error && !state.models.some((m) => m.trouble === state.error))
    rows.push(h("span", { class: "ds-refusal" }, state.error));
  rack.host.className = "ds-models";
  rack.host.replaceChildren(...rows);
  if (room) showMemory(room);
}

/** Light or dark, as it was chosen, or as the system has it; and the size of the type. */
function paint() {
  const chosen = readStored(THEME);
  document.documentElement.dataset.dsSize = readStored(SIZE) === "projector" ? "projector" : "usual";
  document.body.classList.toggle("dark",
    chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
}

/** Measure again on every page what was measured before the type had this size. It switches the colours back and
 *  forth, because all pages watch them. Nothing is painted between. */
async function remeasure() {
  document.body.classList.toggle("dark");
  await null;
  document.body.classList.toggle("dark");
  window.dispatchEvent(new Event("resize"));
}

/** Name of the page, and the switches between light and dark and between the sizes of type. */
export function showHeader(element) {
  const ns = "http://www.w3.org/2000/svg";
  const logo = document.createElementNS(ns, "svg");
  const draw = (tag, props) => {
    const node = document.createElementNS(ns, tag);
    for (const [name, value] of Object.entries(props)) node.setAttribute(name, String(value));
    logo.append(node);
  };
  for (const [name, value] of Object.entries({ viewBox: "0 0 30 22", width: 30, height: 22, class: "ds-logo",
    "aria-hidden": "true" })) logo.setAttribute(name, String(value));
  draw("path", { class: "off", d: "M4,6H24" });
  draw("path", { class: "on", d: "M4,6H9Q12,6 12,9V14Q12,17 15,17H25" });
  draw("rect", { class: "root", x: 1, y: 3, width: 6, height: 6 });
  draw("circle", { class: "no", cx: 24, cy: 6, r: 3.5 });
  draw("circle", { class: "yes", cx: 25, cy: 17, r: 3.5 });
  const theme = button(pageIcon("moon"), () => {
    const dark = !document.body.classList.contains("dark");
    store(THEME, dark ? "dark" : "light");
    paint();
  }, { class: "bare", title: "light or dark", "aria-label": "light or dark" });
  if (readStored(THEME)) paint();
  const large = () => document.documentElement.dataset.dsSize === "projector";
  const mark = () => size.setAttribute("aria-pressed", large());
  const letter = () => h("span", { "aria-hidden": "true" }, "A");
  const size = button([letter(), letter()], () => {
    store(SIZE, large() ? "usual" : "projector");
    document.documentElement.dataset.dsSize = large() ? "usual" : "projector";
    mark();
    remeasure();
  }, { class: "bare size", title: "larger type, for a projector", "aria-label": "larger type, for a projector" });
  if (!document.documentElement.dataset.dsSize) paint();
  mark();
  const host = place(element);
  host.className = "ds-top";
  const way = (word, find, cls) =>
    button(word, () => (find()?.focus(), find()?.scrollIntoView({ block: "nearest" })), { class: "skip " + cls });
  const ways = [way("Go to the picture", () => panes[0]?.view.root, "lab"),
    way("Go to the controls", () => document.querySelector("#ds-preset input"), "lab"),
    way("Go to the page", panel, "other")];
  host.replaceChildren(...ways, h("span", { class: "brand" }, logo, h("span", null, "DecodeScope")), tabs(),
    h("span", { class: "right" }, document.querySelector("meta[name=ds-signed-in]")
      && h("a", { class: "out", href: "ds/sign-out" }, "Sign out"), size, theme));
}
