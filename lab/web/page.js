/* page: what the app's page does around the drawing: a run, or two side by side, their streams, buttons, refusals.
 * Each export is handed the element of one part of the page; the parts share this module, so they share the run. */
import { h, icon, mount } from "./scope.js";

const panes = []; // what is shown: one run, or two; the first one is the page's own
let places = null; // the element that holds their pictures
let listed = []; // the recorded examples, first the one that the page opens on
const listeners = new Set(); // of status
const PACE = 900; // ms a step when a run is shown again
const THEME = "decodescope-theme";
const KEPT = "decodescope-settings";
const tell = () => listeners.forEach((listener) => listener());
const ended = (pane) => !pane || ["", "done", "cancelled", "failed"].includes(pane.status);
const over = () => panes.every(ended);
/** The run that works, or will: the one that the buttons are for. */
const active = () => panes.find((pane) => !ended(pane)) || panes[0];
const place = (element) => element.firstElementChild || element;

async function ask(path, options) {
  const answer = await fetch(path, options);
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.error || `The server answered ${answer.status}.`);
  return body;
}

// ---- the run -------------------------------------------------------------------------------------------------------

const ALONE = ["strip", "tree", "card", "text", "cache", "time"];
const BESIDE = ["strip", "tree", "text", "time"];

/** Show a run from its beginning and follow it, and another beside it; `quiet`: the address does not name them. */
function open(id, { quiet = false, other = null } = {}) {
  replay.stop();
  for (const pane of panes.splice(0)) close(pane);
  for (const run of other ? [id, other] : [id]) panes.push(pane(run, other ? BESIDE : ALONE));
  places.classList.toggle("two", !!other);
  places.replaceChildren(...panes.map((x) => x.host));
  if (!quiet) history.replaceState(null, "", `#run=${id}` + (other ? `&with=${other}` : ""));
  panes.forEach(connect);
  tell();
}

function pane(id, views) {
  const made = { id, host: h("div"), status: id ? "queued" : "", last: -1, source: null };
  const empty = "Choose a method and press Run: every step is shown here while the model decodes.";
  const label = views === BESIDE && panes.length ? "the second run" : "the run";
  made.view = mount(made.host, { views, label, empty, onGap: (from, to) => fill(made, from, to), onSeek: (i) => sought(made, i) });
  return made;
}

function close(pane) {
  pane.source?.close();
  pane.view.destroy();
}

function connect(pane) {
  const { id, view } = pane;
  const source = (pane.source = new EventSource(`/ds/run/${id}/events?after=${pane.last}`));
  source.addEventListener("head", (event) => view.push(JSON.parse(event.data)));
  source.addEventListener("step", (event) => {
    const step = JSON.parse(event.data);
    pane.last = Math.max(pane.last, step.i);
    view.note("");
    view.push(step);
    if (step.i === 0 && example(id)) replay.show(0);
  });
  source.addEventListener("state", (event) => {
    const state = JSON.parse(event.data);
    pane.status = state.status;
    view.note(state.status === "queued" && state.ahead ? `${state.ahead} ${state.ahead === 1 ? "run" : "runs"} before ${panes[0] === pane ? "yours" : "this one"}` : "");
    tell();
  });
  source.addEventListener("end", (event) => {
    source.close();
    if (!ended(pane)) pane.status = "done";
    view.note("");
    view.push(JSON.parse(event.data));
    tell();
    if (example(id)) fill(pane, 0, view.store.count).then(() => panes[0] === pane && !matchMedia("(prefers-reduced-motion: reduce)").matches && replay.start());
  });
  source.onerror = () => {
    if (!panes.includes(pane) || ended(pane)) return;
    view.note(pane.last < 0 ? "reconnecting…" : `reconnecting, last step ${pane.last}`);
    if (source.readyState === EventSource.CLOSED) reopen(pane, 1000);
  };
}

/** The stream was refused: ask whether the run is still there, and go on with it. */
async function reopen(pane, wait) {
  try {
    await ask(`/ds/run/${pane.id}`);
    if (panes.includes(pane)) connect(pane);
  } catch (error) {
    if (!panes.includes(pane)) return;
    if (error instanceof TypeError) return setTimeout(() => reopen(pane, Math.min(2 * wait, 15000)), wait); // no server
    pane.status = "";
    pane.id = null;
    history.replaceState(null, "", location.pathname);
    pane.view.note(String(error.message));
    tell();
  }
}

async function fill(pane, from, to) {
  try {
    while (from < to && panes.includes(pane)) {
      const part = await ask(`/ds/run/${pane.id}/range?from=${from}&to=${to}`);
      for (const step of part.steps) pane.view.push(step);
      if (part.next <= from) break;
      from = part.next;
    }
  } catch {
    setTimeout(() => panes.includes(pane) && pane.view.retry(), 2000);
  }
}

// ---- two runs, one place in the text ---------------------------------------------------------------------------------

let linking = false;

/** A reader went to a step of one run: the other goes to the step that wrote the same token. */
function sought(pane, i) {
  if (pane === panes[0]) replay.sought();
  const other = panes.find((x) => x !== pane);
  if (!other || linking || !other.view.store.count) return;
  linking = true;
  other.view.seek(writer(other.view.store, written(pane.view.store, i)));
  linking = false;
}

/** How many tokens the text has after step i. */
export function written(store, i) {
  let n = 0;
  for (let k = 0; k <= i; k++) n += store.steps[k]?.made.length || 0;
  return n;
}

/** The step that wrote token number n, counted from 1; the last one if none did. */
export function writer(store, n) {
  for (let k = 0, sum = 0; k < store.count; k++) if ((sum += store.steps[k]?.made.length || 0) >= n) return k;
  return store.count - 1;
}

/** Where two texts part, in a sentence. */
function compared() {
  if (panes.length < 2) return "";
  const [a, b] = panes.map((x) => x.view.store.steps.flatMap((step) => (step ? step.made.map(([id]) => id) : [])));
  const n = Math.min(a.length, b.length), first = a.findIndex((id, k) => k < n && id !== b[k]);
  const joined = "Steps are joined by the token they wrote.";
  if (first === 0) return "The texts part at their first token. " + joined;
  if (first > 0) return `The texts part after ${first} equal ${first === 1 ? "token" : "tokens"}. ${joined}`;
  return over() && a.length === b.length ? `Both wrote the same ${n} tokens. ${joined}` : joined;
}

const example = (id) => listed.find((x) => x.run === id);

/** An example, played at a reading pace until somebody goes to a step. */
const replay = {
  timer: 0,
  own: false, // whether it is we who seek
  show(i) {
    this.own = true;
    panes[0].view.seek(i);
    this.own = false;
  },
  start() {
    clearInterval(this.timer);
    this.timer = setInterval(() => {
      const { view } = panes[0];
      if (view.at < view.store.count - 1) this.show(view.at + 1);
      else this.stop();
    }, PACE);
  },
  stop() {
    clearInterval(this.timer);
    this.timer = 0;
  },
  sought() {
    if (!this.own && this.timer) this.stop();
  },
};

// ---- the parts of the page -------------------------------------------------------------------------------------------

let frame = null; // what stands left: the line that says what is shown, and the picture

/** Draw before the page around it is ready. */
export function early() {
  paint();
  if (frame) return;
  const waiting = h("div", { id: "ds-early" });
  document.body.prepend(waiting);
  waiting.append(begin());
}

/** The picture, in its place. */
export function view(element) {
  place(element).replaceChildren(frame || begin());
  document.getElementById("ds-early")?.remove();
}

function begin() {
  places = h("div", { class: "ds-places" });
  panes.push(pane(null, ALONE));
  places.append(panes[0].host);
  frame = h("div", null, shown(), places);
  window.addEventListener("hashchange", remembered);
  remembered();
  ask("/ds/examples").then((rows) => {
    listed = rows;
    if (!panes[0].id && rows.length) open(rows[0].run, { quiet: true });
    else tell();
  }, () => {});
  return frame;
}

function remembered() {
  const [id, other] = ["run", "with"].map((name) => new RegExp(`(?:^#|&)${name}=([0-9a-f]{16})(?:&|$)`).exec(location.hash)?.[1]);
  if (id && (id !== panes[0].id || (other || null) !== (panes[1]?.id || null))) open(id, { other });
}

/** The examples, and what can be taken from the run that is shown. */
function shown() {
  const chooser = h("select", { "aria-label": "recorded example" });
  const about = h("span", { class: "about" });
  const html = h("a", { class: "html", download: "" }, "HTML");
  const trace = h("a", { class: "trace", download: "" }, "trace");
  const save = h("span", { class: "save" }, "Save as ", html, trace);
  chooser.addEventListener("change", () => chooser.value && open(chooser.value));
  let filled = null;
  const draw = () => {
    if (filled !== listed) {
      filled = listed;
      chooser.replaceChildren(h("option", { value: "" }, "Your run"), ...listed.map((x) => h("option", { value: x.run }, "Example: " + x.title)));
    }
    chooser.style.display = listed.length ? "" : "none";
    const run = panes[0]?.id;
    chooser.value = example(run)?.run || "";
    about.textContent = example(run)?.about || compared();
    save.style.display = run && ended(panes[0]) ? "" : "none";
    html.href = `/ds/run/${run}/export.html`;
    trace.href = `/ds/run/${run}/trace`;
  };
  listeners.add(draw);
  draw();
  return h("div", { class: "ds-shown" }, chooser, about, save);
}

/** Run's answer: an id to follow, or the sentence why not. */
export function answer(element, value) {
  const host = place(element);
  const sentence = value?.refused || "";
  host.className = sentence ? "ds-refusal" : "";
  host.setAttribute("role", "alert");
  host.textContent = sentence;
  if (value?.keep) keep(value.keep);
  if (value?.run && value.run !== panes[0]?.id) open(value.run, { other: value.with });
}

function keep(text) {
  try {
    localStorage.setItem(KEPT, text);
  } catch {} // full, or forbidden: then they are not kept
}

/** The settings to begin with, as text: those of the link that was opened, else those of the last visit. */
export function settings() {
  const found = /(?:^#|&)set=([^&]*)/.exec(location.hash);
  if (!found) return localStorage.getItem(KEPT) || "";
  const rest = location.hash.replace(found[0], "").replace(/^&/, "#");
  history.replaceState(null, "", location.pathname + (rest.length > 1 ? rest : ""));
  return found[1] || "?";
}

/** Text of the present settings, on its way to the clipboard; it stands here too, to be selected. */
export function copied(element, value) {
  const host = place(element);
  host.setAttribute("role", "status");
  if (!value) return host.replaceChildren();
  host.className = value.refused ? "ds-refusal" : "ds-copied";
  if (value.refused) return void (host.textContent = value.refused);
  const text = value.way === "link" ? location.origin + location.pathname + value.text : value.text;
  const said = h("small", null, "Select it and press Ctrl+C.");
  const box = h("textarea", { readonly: "", rows: Math.min(8, Math.ceil(text.length / 44) + text.split("\n").length - 1), "aria-label": value.way, spellcheck: "false" });
  box.value = text;
  host.replaceChildren(box, said);
  navigator.clipboard?.writeText(text).then(() => (said.textContent = "Copied."), () => box.select());
}

/** Stop, Pause and Step, for the run that is shown. */
export function transport(element) {
  const post = (action, pane = active()) => pane?.id && ask(`/ds/run/${pane.id}/${action}`, { method: "POST" }).catch(() => {});
  const button = (name, word, act) => {
    const made = h("button", { type: "button", class: "ds-button " + name }, icon(name), h("span", null, word));
    made.addEventListener("click", act);
    return made;
  };
  const stop = button("stop", "Stop", () => ((stop.lastChild.textContent = "Stopping…"), panes.filter((x) => !ended(x)).forEach((x) => post("stop", x))));
  const pause = button("pause", "Pause", () => post(active()?.status === "paused" ? "resume" : "pause"));
  const step = button("step", "Step", () => post("step"));
  place(element).replaceChildren(stop, pause, step);
  const draw = () => {
    stop.disabled = over();
    pause.disabled = step.disabled = over();
    if (over()) stop.lastChild.textContent = "Stop";
    const status = active()?.status, paused = status === "paused";
    pause.lastChild.textContent = paused ? "Go on" : "Pause";
    pause.replaceChild(icon(paused ? "play" : "pause"), pause.firstChild);
    document.documentElement.dataset.dsRun = status || "none";
  };
  listeners.add(draw);
  draw();
}

const short = (n) => (n >= 1e9 ? (n / 1e9).toFixed(1) + " G" : n >= 1e6 ? (n / 1e6).toFixed(1) + " M" : n >= 1e3 ? (n / 1e3).toFixed(0) + " k" : String(n));

/** Which models are there, or how far the loading has come; `value` is what choosing others was answered. */
export async function models(element, value) {
  const host = place(element);
  const mine = (models.turn = (models.turn || 0) + 1);
  while (mine === models.turn) {
    let state;
    try {
      state = await ask("/ds/state");
    } catch {
      await new Promise((done) => setTimeout(done, 2000));
      continue;
    }
    const rows = state.models.map((m) => h("span", null, h("small", null, m.role), h("b", null, m.name), `${short(m.params)} parameters, ${short(m.bytes)}B`));
    if (state.phase) rows.push(h("span", { class: "quiet" }, `${state.phase}, ${Math.round(state.seconds || 0)} s`));
    else if (!state.ready && !state.error) rows.push(h("span", { class: "quiet" }, "waiting"));
    const trouble = value?.refused || state.error;
    if (trouble && !state.phase) rows.push(h("span", { class: "ds-refusal" }, trouble));
    host.className = "ds-models";
    host.replaceChildren(...rows);
    if (!state.phase && (state.ready || state.error)) return;
    await new Promise((done) => setTimeout(done, 400));
  }
}

/** Light or dark, as it was chosen, or as the system has it. */
function paint() {
  const kept = localStorage.getItem(THEME);
  document.body.classList.toggle("dark", kept ? kept === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
}

/** Name of the page and the switch between light and dark. */
export function top(element) {
  const ns = "http://www.w3.org/2000/svg";
  const logo = document.createElementNS(ns, "svg");
  const draw = (tag, props) => {
    const node = document.createElementNS(ns, tag);
    for (const [name, value] of Object.entries(props)) node.setAttribute(name, value);
    logo.append(node);
  };
  for (const [name, value] of Object.entries({ viewBox: "0 0 30 22", width: 30, height: 22, class: "ds-logo", "aria-hidden": "true" })) logo.setAttribute(name, value);
  draw("path", { class: "off", d: "M4,6H24" });
  draw("path", { class: "on", d: "M4,6H9Q12,6 12,9V14Q12,17 15,17H25" });
  draw("rect", { class: "root", x: 1, y: 3, width: 6, height: 6 });
  draw("circle", { class: "no", cx: 24, cy: 6, r: 3.5 });
  draw("circle", { class: "yes", cx: 25, cy: 17, r: 3.5 });
  const theme = h("button", { type: "button", class: "bare", title: "light or dark", "aria-label": "light or dark" }, icon("moon"));
  if (localStorage.getItem(THEME)) paint();
  theme.addEventListener("click", () => {
    const dark = !document.body.classList.contains("dark");
    localStorage.setItem(THEME, dark ? "dark" : "light");
    paint();
  });
  const host = place(element);
  host.className = "ds-top";
  host.replaceChildren(h("span", { class: "brand" }, logo, "DecodeScope"), h("nav", { "aria-label": "Pages" }, h("span", { "aria-current": "page" }, "Lab")), h("span", { class: "right" }, theme));
}
