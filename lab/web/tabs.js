/* tabs: the pages of the app, one at a time. Switching hides and shows and loads nothing again, so each keeps its
 * state. */
import { LAB, PAGES, current, go, onPageChange } from "./shared/address.js";
import { button, h, tips } from "./scope.js";

/** Fetches the module of a page when it is first shown; it exports page(element), which fills the element and may
 *  return {shown(), hidden()}. A sheet NAME.css comes with it. The Lab is the page itself. */
const LOADS = {
  compare: () => import("./compare.js"),
  debugger: () => import("./debugger.js"),
  report: () => import("./report.js"),
  cache: () => import("./cache.js"),
  hardware: () => import("./hardware.js"),
  library: () => import("./library.js"),
};
/** @typedef {{shown?: () => void, hidden?: () => void}} Page */
/** @typedef {{name: string, word: string, load?: () => Promise<any>, loading?: Promise<any>, wait?: number,
 *    button?: HTMLElement, panel?: HTMLElement, module?: Page}} Tab */
/** @type {Tab[]} */
const TABS = Object.entries(PAGES).map(([name, word]) => ({ name, word, load: LOADS[name] }));

const WAIT = 500; // ms before a page that did not load is requested again; doubled each time
const SOON = 300; // ms before a loading page is reported
const root = document.documentElement;
const places = {}; // name -> how far down the page was scrolled
const bar = h("div", { class: "ds-tabs", role: "tablist", "aria-label": "Pages" });
const tabOf = (wanted) => TABS.find(({ name }) => name === wanted);

const entitle = ({ name, word }) => (document.title = name === LAB ? "DecodeScope" : `${word} · DecodeScope`);

/** Show the page `name`, and leave the one before. */
function turn(name, before) {
  if (before) places[before] = window.scrollY;
  const tab = tabOf(name);
  root.dataset.dsTab = name;
  entitle(tab);
  for (const one of TABS) {
    one.button.setAttribute("aria-selected", String(one === tab));
    one.button.tabIndex = one === tab ? 0 : -1;
  }
  if (bar.contains(document.activeElement)) tab.button.focus();
  tab.button.scrollIntoView?.({ block: "nearest", inline: "nearest" });
  tabOf(before)?.module?.hidden?.();
  fill(tab);
  window.scrollTo(0, places[name] || 0);
}

/** The pages' places; the present one is filled. */
export function pages(element) {
  for (const tab of TABS.slice(1)) {
    const said = { role: "tabpanel", "aria-labelledby": "ds-tab-" + tab.name, tabindex: -1 };
    tab.panel = h("section", { id: "ds-page-" + tab.name, class: "ds-page", ...said });
    tips(tab.panel);
  }
  element.replaceChildren(...TABS.slice(1).map((tab) => tab.panel));
  const tab = tabOf(current());
  entitle(tab); // the page library has put its own title there
  labelPanel();
  fill(tab);
}

/** The page library makes the Lab's panel, perhaps later than the place of the others. */
function labelPanel() {
  const grid = document.getElementById("ds-grid");
  if (!grid) return void requestAnimationFrame(labelPanel);
  grid.setAttribute("role", "tabpanel");
  grid.setAttribute("aria-labelledby", "ds-tab-" + LAB);
}

async function fill(tab) {
  for (const { panel } of TABS) if (panel) panel.hidden = panel !== tab.panel;
  if (!tab.panel) return;
  setTimeout(() => tab.panel.firstChild || tab.panel.append(
    h("p", { class: "coming", role: "status" }, `${tab.word} is on its way…`)), SOON);
  tab.loading ??= Promise.all([sheet(tab.name), tab.load()]).then(([, { page }]) =>
    (tab.module = page(tab.panel) || {}));
  try {
    await tab.loading;
    if (current() === tab.name) tab.module.shown?.();
  } catch (error) {
    tab.loading = null;
    tab.wait = Math.min(2 * (tab.wait || WAIT / 2), 15000);
    // a server that is starting answers soon
    setTimeout(() => current() === tab.name && !tab.loading && fill(tab), tab.wait);
    tab.panel.replaceChildren(
      h("p", { class: "ds-refusal", role: "alert" }, `The page ${tab.word} could not be loaded: `
        + `${(await serverAnswers()) ? error.message
          : "the server does not answer. Start it again, and the page comes by "
          + "itself."}`),
      button("Try again", () => fill(tab))
    );
  }
}

/** Whether the server is there. */
const serverAnswers = () => fetch("ds/state", { cache: "no-store" }).then((answer) => answer.ok, () => false);

/** Load the sheet of a page after the others, so that drawn elements have their styles. */
function sheet(name) {
  const link = h("link", { rel: "stylesheet", href: `ds/web/styles/${name}.css` });
  const done = new Promise((loaded, failed) => (link.addEventListener("load", loaded),
      link.addEventListener("error", () => (link.remove(), failed(new Error("its styles did not come.")))))
  );
  document.head.append(link);
  return done;
}

/** The bar: arrows, Home and End walk along it and show the page at once. */
function fillBar() {
  for (const tab of TABS) {
    tab.button = button(tab.word, () => go(tab.name), { class: null, id: "ds-tab-" + tab.name, role: "tab",
      "aria-controls": tab.name === LAB ? "ds-grid" : "ds-page-" + tab.name });
    bar.append(tab.button);
  }
  bar.addEventListener("keydown", (event) => {
    const i = TABS.findIndex(({ button }) => button === event.target);
    const to =
      { ArrowLeft: (i + TABS.length - 1) % TABS.length, ArrowRight: (i + 1) % TABS.length, Home: 0,
        End: TABS.length - 1 }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    TABS[to].button.focus();
    go(TABS[to].name);
  });
}

/** The bar's element. */
export const tabs = () => bar;

fillBar();
onPageChange(turn);
turn(current());
