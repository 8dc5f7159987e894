/* page: what the app's page does around the drawing: one run at a time, its stream, its buttons, its refusals.
 * Each export is handed the element of one part of the page; the parts share this module, so they share the run. */
import { h, icon, mount } from "./scope.js";

let drawing = null; // the view
let run = null; // id of the run that is shown
let status = ""; // queued, running, paused, done, cancelled, failed
let source = null;
let last = -1; // number of the last step that came
let listed = []; // the recorded examples, first the one that the page opens on
const listeners = new Set(); // of status
const PACE = 900; // ms a step when a run is shown again
const KEPT = "decodescope-settings";
const tell = () => listeners.forEach((listener) => listener());
const over = () => ["", "done", "cancelled", "failed"].includes(status);
const place = (element) => element.firstElementChild || element;

async function ask(path, options) {
  const answer = await fetch(path, options);
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.error || `The server answered ${answer.status}.`);
  return body;
}

// ---- the run -------------------------------------------------------------------------------------------------------

/** Show a run from its beginning and follow it; `quiet`: the address does not name it. */
function open(id, quiet = false) {
  source?.close();
  replay.stop();
  run = id;
  last = -1;
  status = "queued";
  if (!quiet) history.replaceState(null, "", "#run=" + id);
  drawing?.clear();
  drawing?.note("");
  if (drawing) connect();
  tell();
}

function connect() {
  const id = run;
  source = new EventSource(`/ds/run/${id}/events?after=${last}`);
  source.addEventListener("head", (event) => drawing.push(JSON.parse(event.data)));
  source.addEventListener("step", (event) => {
    const step = JSON.parse(event.data);
    last = Math.max(last, step.i);
    drawing.note("");
    drawing.push(step);
    if (step.i === 0 && example(id)) replay.show(0);
  });
  source.addEventListener("state", (event) => {
    const state = JSON.parse(event.data);
    status = state.status;
    drawing.note(status === "queued" && state.ahead ? `${state.ahead} ${state.ahead === 1 ? "run" : "runs"} before yours` : "");
    tell();
  });
  source.addEventListener("end", (event) => {
    source.close();
    if (over() === false) status = "done";
    drawing.note("");
    drawing.push(JSON.parse(event.data));
    tell();
    if (example(id)) fill(0, drawing.store.count).then(() => run === id && !matchMedia("(prefers-reduced-motion: reduce)").matches && replay.start());
  });
  source.onerror = () => {
    if (run !== id || over()) return;
    drawing.note(last < 0 ? "reconnecting…" : `reconnecting, last step ${last}`);
    if (source.readyState === EventSource.CLOSED) reopen(id, 1000);
  };
}

/** The stream was refused: ask whether the run is still there, and go on with it. */
async function reopen(id, wait) {
  try {
    await ask(`/ds/run/${id}`);
    if (run === id) connect();
  } catch (error) {
    if (run !== id) return;
    if (error instanceof TypeError) return setTimeout(() => reopen(id, Math.min(2 * wait, 15000)), wait); // no server
    status = "";
    run = null;
    history.replaceState(null, "", location.pathname);
    drawing.note(String(error.message));
    tell();
  }
}

async function fill(from, to) {
  const id = run;
  try {
    while (from < to && run === id) {
      const part = await ask(`/ds/run/${id}/range?from=${from}&to=${to}`);
      for (const step of part.steps) drawing.push(step);
      if (part.next <= from) break;
      from = part.next;
    }
  } catch {
    setTimeout(() => run === id && drawing.retry(), 2000);
  }
}

const example = (id) => listed.find((x) => x.run === id);

/** A finished run, shown again at a reading pace until somebody takes the slider. */
const replay = {
  timer: 0,
  own: false, // whether it is we who seek
  show(i) {
    this.own = true;
    drawing.seek(i);
    this.own = false;
  },
  start() {
    if (drawing.at >= drawing.store.count - 1) this.show(0);
    clearInterval(this.timer);
    this.timer = setInterval(() => (drawing.at < drawing.store.count - 1 ? this.show(drawing.at + 1) : this.stop()), PACE);
    tell();
  },
  stop() {
    if (!this.timer) return;
    clearInterval(this.timer);
    this.timer = 0;
    tell();
  },
  sought() {
    if (!this.own) this.stop();
  },
};

// ---- the parts of the page -------------------------------------------------------------------------------------------

/** The picture, and over it the line that says what is shown. */
export function view(element) {
  const host = h("div");
  if (drawing) drawing.destroy();
  place(element).replaceChildren(shown(), host);
  const empty = "Choose a method and press Run: every step is shown here while the model decodes.";
  drawing = mount(host, { label: "the run", onGap: fill, onSeek: () => replay.sought(), empty });
  window.addEventListener("hashchange", remembered);
  remembered();
  ask("/ds/examples").then((rows) => {
    listed = rows;
    if (!run && rows.length) open(rows[0].run, true);
    else tell();
  }, () => {});
}

function remembered() {
  const found = /(?:^#|&)run=([0-9a-f]{16})(?:&|$)/.exec(location.hash);
  if (!found || found[1] === run) return;
  open(found[1]);
}

/** The examples, the button that shows a run again, and what can be taken from it. */
function shown() {
  const chooser = h("select", { "aria-label": "recorded example" });
  const about = h("span", { class: "about" });
  const again = h("button", { type: "button", class: "ds-button replay" }, icon("play"), h("span", null, "Replay"));
  const html = h("a", { class: "html", download: "" }, "HTML");
  const trace = h("a", { class: "trace", download: "" }, "trace");
  const save = h("span", { class: "save" }, "Save as ", html, trace);
  chooser.addEventListener("change", () => chooser.value && open(chooser.value));
  again.addEventListener("click", () => (replay.timer ? replay.stop() : replay.start()));
  let filled = null;
  const draw = () => {
    if (filled !== listed) {
      filled = listed;
      chooser.replaceChildren(h("option", { value: "" }, "Your run"), ...listed.map((x) => h("option", { value: x.run }, "Example: " + x.title)));
    }
    chooser.style.display = listed.length ? "" : "none";
    chooser.value = example(run)?.run || "";
    about.textContent = example(run)?.about || "";
    const ended = run && over();
    again.style.display = save.style.display = ended ? "" : "none";
    again.lastChild.textContent = replay.timer ? "Hold" : "Replay";
    again.replaceChild(icon(replay.timer ? "pause" : "play"), again.firstChild);
    html.href = `/ds/run/${run}/export.html`;
    trace.href = `/ds/run/${run}/trace`;
  };
  listeners.add(draw);
  draw();
  return h("div", { class: "ds-shown" }, chooser, about, again, save);
}

/** Run's answer: an id to follow, or the sentence why not. */
export function answer(element, value) {
  const host = place(element);
  const sentence = value?.refused || "";
  host.className = sentence ? "ds-refusal" : "";
  host.setAttribute("role", "alert");
  host.textContent = sentence;
  if (value?.keep) keep(value.keep);
  if (value?.run && value.run !== run) open(value.run);
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
  try {
    return decodeURIComponent(found[1]);
  } catch {
    return "?";
  }
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
  const post = (action) => ask(`/ds/run/${run}/${action}`, { method: "POST" }).catch(() => {});
  const button = (name, word, act) => {
    const made = h("button", { type: "button", class: "ds-button " + name }, icon(name), h("span", null, word));
    made.addEventListener("click", act);
    return made;
  };
  const stop = button("stop", "Stop", () => ((stop.lastChild.textContent = "Stopping…"), post("stop")));
  const pause = button("pause", "Pause", () => post(status === "paused" ? "resume" : "pause"));
  const step = button("step", "Step", () => post("step"));
  place(element).replaceChildren(stop, pause, step);
  const draw = () => {
    stop.disabled = over();
    pause.disabled = step.disabled = over();
    if (over()) stop.lastChild.textContent = "Stop";
    const paused = status === "paused";
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
    const rows = state.models.map((m) => h("span", null, h("small", null, m.role), h("b", null, m.name), `${short(m.params)} parameters`));
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
  const paint = (dark) => document.body.classList.toggle("dark", dark);
  const kept = localStorage.getItem("decodescope-theme");
  if (kept) paint(kept === "dark");
  theme.addEventListener("click", () => {
    const dark = !document.body.classList.contains("dark");
    localStorage.setItem("decodescope-theme", dark ? "dark" : "light");
    paint(dark);
  });
  const host = place(element);
  host.className = "ds-top";
  host.replaceChildren(h("span", { class: "brand" }, logo, "DecodeScope"), h("nav", { "aria-label": "Pages" }, h("span", { "aria-current": "page" }, "Lab")), h("span", { class: "right" }, theme));
}
