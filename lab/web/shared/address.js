/* address: the displayed page, as the address names it, and the way to another. It knows the pages by name alone.
 * The address names the page: #library, #library&run=...; without a name it is the Lab. */

/** name -> word, in the order of the bar. */
export const PAGES = {
  lab: "Lab",
  compare: "Compare",
  debugger: "Debugger",
  report: "Report",
  cache: "Cache",
  hardware: "Hardware",
  library: "Library",
};
/** The page that needs no name. */
export const LAB = "lab";
const pageName = () => {
  const name = /^#([a-z]+)(?:&|$)/.exec(location.hash)?.[1];
  return Object.hasOwn(PAGES, name) ? name : LAB;
};
const listeners = new Set();
let at = pageName();

/** The name of the displayed page. */
export const current = () => at;
/** The address part of the present page, if it is not the Lab. */
export const panel = () => document.getElementById("ds-page-" + at);
/** The address of the present page with these further parts ("run=..."). */
export const fragment = (parts, name = at) => "#" + (name === LAB && parts.length ? parts : [name, ...parts]).join("&");
/** Call a listener whenever another page is shown: with its name, and that of the one before. */
export const onPageChange = (listener) => listeners.add(listener);

/** Show another page; the browser's Back leads to this one. The focus stays. */
export function go(name) {
  const parts = location.hash.slice(1).split("&").filter((part) => part.includes("="));
  if (name === at) return;
  location.hash = fragment(parts, name);
  follow(); // now, not when the browser has reported it: elements of the page can be gone to
}

/** Show the page in the address. */
function follow() {
  const before = at, name = pageName();
  if (name === before) return;
  at = name;
  listeners.forEach((listener) => listener(name, before));
}
window.addEventListener("hashchange", follow);
