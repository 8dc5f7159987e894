/* get_model: fetch a model onto the server's machine: an offer in one line, a button next to the list of models, and a
 * dialog with size, licence, room on the disk, progress and cancel. What is fetched is known to the server, so that a
 * page that is loaded again shows how far it is. */
import { ask, errorText, shown } from "../runs/runs.js";
import { button, h, icon } from "../scope.js";

const LOOK = 500; // ms between two looks at a download
const DISMISSED = "decodescope-offer"; // where it is kept that the offer was put away
const ACTIVE = ["running", "stopping"];

const watchers = new Set(); // called with each answer of /ds/models
let latest = null, asking = null, timer = 0;

/** Ask the server, tell all watchers, and ask again while something is being fetched. */
function look() {
  clearTimeout(timer);
  asking ??= ask("ds/models").then((now) => {
    const before = latest?.download.status;
    latest = now;
    if (ACTIVE.includes(before) && now.download.status === "done") shown.relist?.();
    for (const watch of watchers) watch(now);
    if (ACTIVE.includes(now.download.status)) timer = setTimeout(look, LOOK);
  }, () => {
    if (ACTIVE.includes(latest?.download.status)) timer = setTimeout(look, 4 * LOOK);
  }).finally(() => (asking = null));
  return asking;
}
function watch(act) {
  watchers.add(act);
  if (latest) act(latest);
  return look();
}

const megabytes = (bytes) => (bytes >= 1e10 ? `${Math.round(bytes / 1e9)} GB`
  : `${Math.max(1, Math.round(bytes / 1e6))} MB`);
const isHere = (name) => latest?.models.some((x) => x.name === name && x.here);
/** How long the rest takes, in words. */
function timeLeft({ done, total, bytes_per_s }) {
  if (!bytes_per_s) return "";
  const seconds = Math.max(1, Math.round((total - done) / bytes_per_s));
  return seconds < 90 ? `, ${seconds} s left` : `, ${Math.round(seconds / 60)} min left`;
}

/** Start or stop a download, then look how it is. */
async function order(path, body) {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  await ask(path, options);
  await look();
}

/** Put the first question to a model that was fetched into the controls. */
function useModel(model) {
  shown.put?.(model.begin);
  document.querySelector("dialog.ds-get[open]")?.close();
  document.getElementById("ds-run")?.focus();
}

/** How far a download is, with Cancel. */
function progressBar() {
  const bar = h("progress", { max: 1, value: 0, "aria-label": "How much of the model is here" });
  const words = h("span", { class: "quiet" });
  const stop = button("Cancel", () => order("ds/models/stop", {}).catch(() => {}), { class: "ds-button" });
  return {
    element: h("div", { class: "going" }, bar, words, stop),
    show(download) {
      const { phase, done, total, status } = download;
      bar.value = total ? done / total : 0;
      const count = done ? ` ${megabytes(done)} of ${megabytes(total)}` : "";
      words.textContent = status === "stopping" ? "stopping" : `${phase}${count}${timeLeft(download)}`;
      stop.disabled = status === "stopping";
    },
  };
}

/** The offer of a real model in one line, in its place on the page; it can be put away for good. */
export function offerLine(host) {
  const readDismissed = () => {
    try {
      return localStorage.getItem(DISMISSED);
    } catch {
      return null; // forbidden
    }
  };
  let dismissed = readDismissed(), fetchedHere = "";
  const bar = progressBar();
  const dismiss = button("×", () => {
    dismissed = "yes";
    try {
      localStorage.setItem(DISMISSED, dismissed);
    } catch {} // forbidden: then it is back at the next visit
    draw(latest);
  }, { class: "bare", title: "do not offer this again", "aria-label": "do not offer this again" });
  let drawn = "";
  function draw({ models, allowed, download }) {
    const going = ACTIVE.includes(download.status), model = models.find((x) => x.name === download.name) ?? models[0];
    if (going) fetchedHere = download.name;
    if (going) bar.show(download);
    const ready = fetchedHere && isHere(fetchedHere);
    const state = !allowed || !model || (dismissed && !going && !ready) || (model.here && !ready) ? ""
      : going ? "going" : ready ? "ready" : download.status === "failed" ? `failed ${download.error}` : "offer";
    if (state === drawn) return;
    drawn = state;
    host.hidden = !state;
    const get = button(`Get ${model?.title}`, () => openGetModel(model.name, true), { class: "ds-button go" });
    const ask_ = button("Ask it a question", () => (useModel(model), (fetchedHere = ""), draw(latest)),
      { class: "ds-button go" });
    const words = model && `A real model, ${megabytes(model.stored_bytes)}, ${model.licence}, ${model.about}:`;
    const line = { "": [], going: [h("b", null, download.title || download.name), bar.element],
      ready: [h("span", null, `${model?.title} is here.`), ask_, dismiss],
      offer: [h("span", null, words), get, dismiss] };
    host.replaceChildren(...(line[state] ?? [h("span", { class: "ds-refusal" }, download.error), get, dismiss]));
  }
  host.hidden = true;
  host.setAttribute("role", "status");
  watch(draw);
}

/** The button next to the list of models; there is none where visitors may not fetch. */
export function getModelButton() {
  const arrow = icon("get", "M8 3v7M4.5 7L8 10.5 11.5 7M3.5 13h9");
  const one = button([arrow, h("span", null, "Get a model")], () => openGetModel(""), { class: "ds-button get" });
  one.setAttribute("aria-haspopup", "dialog");
  one.hidden = true;
  watch(({ allowed }) => (one.hidden = !allowed));
  return one;
}

let dialog = null;
/** Open the dialog. name: of the model that is wanted; empty: the first of the table; begin: fetch it at once, because
 *  its size and licence were read already */
export async function openGetModel(name, begin = false) {
  dialog ??= buildDialog();
  if (!dialog.element.isConnected) document.body.append(dialog.element);
  dialog.element.showModal();
  await look();
  await dialog.choose(name || latest?.download.name || latest?.models[0]?.name || "");
  if (begin) dialog.begin();
}

function buildDialog() {
  const name = h("input", { type: "text", list: "ds-get-names", autocomplete: "off", spellcheck: "false",
    "aria-label": "Name of a model", maxlength: 200 });
  const names = h("datalist", { id: "ds-get-names" });
  const facts = h("dl", { class: "facts" }), trouble = h("p", { class: "ds-refusal", role: "alert" });
  const bar = progressBar(), done = h("p", { class: "told", role: "status" });
  const get = button("Get it", start, { class: "ds-button go" });
  const close = button("Close", () => element.close(), { class: "ds-button" });
  const check = button("Size and licence", plan, { class: "ds-button" });
  const element = h("dialog", { class: "ds-get", "aria-label": "Get a model" },
    h("header", null, h("h1", null, "Get a model"), close),
    h("p", { class: "quiet" }, "It is fetched to the machine that runs this page, and stays there. Name one of the "
      + "list, or ID or ID:FILE of the Hugging Face hub."),
    h("div", { class: "name" }, name, names, check), facts, trouble, bar.element, done, h("footer", null, get));
  let planned = "", turn = 0;
  const say = (sentence) => (trouble.textContent = sentence);

  /** Show what fetching the named model takes. */
  async function plan() {
    const wanted = name.value.trim(), mine = ++turn;
    planned = "";
    facts.replaceChildren();
    say("");
    draw(latest);
    if (!wanted) return;
    try {
      const known = await ask(`ds/models/plan?${new URLSearchParams({ name: wanted })}`);
      if (mine !== turn) return;
      planned = known.name;
      const row = (word, text) => [h("dt", null, word), h("dd", null, text)];
      facts.replaceChildren(...row("From", known.origin), ...row("Licence", known.licence),
        ...row("To fetch", known.here ? "nothing, it is here" : megabytes(known.download_bytes)),
        ...row("Stays on the disk", megabytes(known.stored_bytes)),
        ...row("Free there", megabytes(known.free_bytes)));
      if (!known.fits) say(`Meanwhile ${megabytes(known.needed_bytes)} are needed on the disk: make room there first.`);
      get.disabled = !known.fits || known.here;
    } catch (error) {
      if (mine === turn) say(errorText(error));
    }
    draw(latest);
  }
  async function start() {
    say("");
    get.disabled = true;
    try {
      await order("ds/models/get", { name: planned });
    } catch (error) {
      say(errorText(error));
      get.disabled = false;
    }
  }
  function draw(now) {
    if (!now) return;
    const { download, models } = now, going = ACTIVE.includes(download.status), mine = download.name === planned;
    bar.element.hidden = !going;
    if (going) bar.show(download);
    get.hidden = going || !planned || (mine && download.status === "done") || isHere(planned);
    get.textContent = mine && download.status === "stopped" ? "Go on" : "Get it";
    if (mine && download.status === "failed" && !going) say(download.error);
    const here = models.find((x) => x.here && x.name === planned);
    const words = { stopped: "Stopped. What was fetched is kept.", done: "It is here, and in the list of models." };
    const use = here ? [" ", button("Ask it a question", () => useModel(here), { class: "ds-button go" })] : [];
    const text = here ? "It is here, and first in the list of models." : (mine && words[download.status]) || "";
    if (done.dataset.text === text + planned) return;
    done.dataset.text = text + planned;
    done.replaceChildren(...(text ? [text, ...use] : []));
  }
  name.addEventListener("change", plan);
  name.addEventListener("keydown", (event) => event.key === "Enter" && plan());
  element.addEventListener("click", (event) => event.target === element && element.close());
  watch((now) => {
    names.replaceChildren(...now.models.map((x) => h("option", { value: x.name }, x.title)));
    if (planned === now.download.name && !ACTIVE.includes(now.download.status)) get.disabled = false;
    draw(now);
  });
  return { element, choose: (wanted) => ((name.value = wanted), plan()),
    begin: () => get.hidden || get.disabled || start() };
}
