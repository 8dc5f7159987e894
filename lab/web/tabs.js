/* tabs: the pages of the app, one at a time. Switching hides and shows and loads nothing again, so each keeps its state.
 * The address names the page: #library, #library&run=...; without a name it is the Lab. */
import { h } from "./scope.js";

/** In the order of the bar. `load` fetches the module of a page when it is first looked at; it exports page(element), which
 *  fills the element and may return {shown(), hidden()}. A sheet NAME.css comes with it. The Lab is the page itself. */
const TABS = [
  { name: "lab", word: "Lab" },
  { name: "compare", word: "Compare", load: () => import("./compare.js") },
  { name: "debugger", word: "Debugger", load: () => import("./debugger.js") },
  { name: "report", word: "Report", load: () => import("./report.js") },
  { name: "cache", word: "Cache", load: () => import("./cache.js") },
  { name: "hardware", word: "Hardware", load: () => import("./hardware.js") },
  { name: "library", word: "Library", load: () => import("./library.js") },
];

const LAB = TABS[0].name;
const WAIT = 500; // ms before a page that did not come is asked for again; twice as long each time
const root = document.documentElement;
const places = {}; // name -> how far down the page was scrolled
const bar = h("div", { class: "ds-tabs", role: "tablist", "aria-label": "Pages" });
let host = null, at = null;

/** The name of the page that is looked at. */
export const current = () => at;
/** The address of the present page with these further parts ("run=..."). */
export const fragment = (parts, name = at) => "#" + (name === LAB && parts.length ? parts : [name, ...parts]).join("&");

/** Look at another page; the way back leads to this one. The focus stays where it is. */
export function go(name) {
  const parts = location.hash.slice(1).split("&").filter((part) => part.includes("="));
  if (name === at) return;
  location.hash = fragment(parts, name);
  follow(); // now, not when the browser has said so: what is on the page can be gone to
}

const named = () => TABS.find(({ name }) => name === /^#([a-z]+)(?:&|$)/.exec(location.hash)?.[1])?.name ?? LAB;

const entitle = ({ name, word }) => (document.title = name === LAB ? "DecodeScope" : `${word} · DecodeScope`);

/** Show the page that the address names. */
function follow() {
  const before = TABS.find(({ name }) => name === at), tab = TABS.find(({ name }) => name === named());
  if (tab === before) return;
  if (before) places[at] = window.scrollY;
  at = root.dataset.dsTab = tab.name;
  entitle(tab);
  for (const { button, name } of TABS) {
    button.setAttribute("aria-selected", name === at);
    button.tabIndex = name === at ? 0 : -1;
  }
  if (bar.contains(document.activeElement)) tab.button.focus();
  tab.button.scrollIntoView?.({ block: "nearest", inline: "nearest" });
  before?.made?.hidden?.();
  fill(tab);
  window.scrollTo(0, places[at] || 0);
}

/** The pages' places; the present one is filled. */
export function pages(element) {
  host = element;
  for (const tab of TABS.slice(1)) tab.panel = h("section", { id: "ds-page-" + tab.name, class: "ds-page", role: "tabpanel", "aria-labelledby": "ds-tab-" + tab.name, tabindex: -1 });
  host.replaceChildren(...TABS.slice(1).map((tab) => tab.panel));
  const tab = TABS.find(({ name }) => name === at);
  entitle(tab); // the page library has put its own title there
  labelled();
  fill(tab);
}

/** The Lab's panel is made by the page library, perhaps later than the others' place. */
function labelled() {
  const grid = document.getElementById("ds-grid");
  if (!grid) return void requestAnimationFrame(labelled);
  grid.setAttribute("role", "tabpanel");
  grid.setAttribute("aria-labelledby", "ds-tab-" + LAB);
}

async function fill(tab) {
  for (const { panel } of TABS) if (panel) panel.hidden = panel !== tab.panel;
  if (!tab.panel) return;
  tab.loading ??= Promise.all([sheet(tab.name), tab.load()]).then(([, module]) => (tab.made = module.page(tab.panel) || {}));
  try {
    await tab.loading;
    if (at === tab.name) tab.made.shown?.();
  } catch (error) {
    tab.loading = null;
    tab.wait = Math.min(2 * (tab.wait || WAIT / 2), 15000);
    setTimeout(() => at === tab.name && !tab.loading && fill(tab), tab.wait); // a server that is starting answers soon
    const again = h("button", { type: "button", class: "ds-button" }, "Try again");
    again.addEventListener("click", () => fill(tab));
    tab.panel.replaceChildren(h("p", { class: "ds-refusal", role: "alert" }, `The page ${tab.word} could not be loaded: ${(await answers()) ? error.message : "the server does not answer. Start it again, and the page comes by itself."}`), again);
  }
}

/** Whether the server is there. */
const answers = () => fetch("/ds/state", { cache: "no-store" }).then((answer) => answer.ok, () => false);

/** Load the sheet of a page behind the others, so that what is drawn has its styles. */
function sheet(name) {
  const link = h("link", { rel: "stylesheet", href: `/ds/web/${name}.css` });
  const done = new Promise((loaded, failed) => (link.addEventListener("load", loaded), link.addEventListener("error", () => (link.remove(), failed(new Error("its styles did not come."))))));
  document.head.append(link);
  return done;
}

/** The bar: arrows, Home and End walk along it and show the page at once. */
function fillBar() {
  for (const tab of TABS) {
    tab.button = h("button", { type: "button", id: "ds-tab-" + tab.name, role: "tab", "aria-controls": tab.name === LAB ? "ds-grid" : "ds-page-" + tab.name }, tab.word);
    tab.button.addEventListener("click", () => go(tab.name));
    bar.append(tab.button);
  }
  bar.addEventListener("keydown", (event) => {
    const i = TABS.findIndex(({ button }) => button === event.target);
    const to = { ArrowLeft: (i + TABS.length - 1) % TABS.length, ArrowRight: (i + 1) % TABS.length, Home: 0, End: TABS.length - 1 }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    TABS[to].button.focus();
    go(TABS[to].name);
  });
}

/** The bar's element. */
export const tabs = () => bar;
/** The place of the present page, to be gone to by those who skip what stands above. */
export const panel = () => TABS.find(({ name }) => name === at).panel;

fillBar();
window.addEventListener("hashchange", follow);
follow();
