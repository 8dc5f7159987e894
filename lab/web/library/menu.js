/* menu: further actions on a trace: rename, delete, save in one of three forms. At most one menu is open. */
import { button, h } from "../scope.js";
import { listedTitle } from "./trace_list.js";

/** Close the menus in `root` that do not hold `node`. */
const close = (root, node) =>
  root.querySelectorAll("details.more[open]").forEach((one) => one.contains(node) || (one.open = false));
/** Close the menus in `root` whenever something else is clicked. */
export const closeOnClick = (root) => document.addEventListener("click", (event) => close(root, event.target));

/** The menu of a row of the table `root`. rename(), remove(): the actions of its first two items. */
export function menu(row, root, { rename, remove }) {
  const link = (word, path) => h("a", { href: `ds/run/${row.run}/${path}`, download: "" }, word);
  const element = h("details", { class: "more" },
    h("summary", { "aria-label": `more for ${listedTitle(row)}` }, "More"),
    h("div", null, button("Rename", rename, { class: "item" }), button("Delete", remove, { class: "item" }),
      h("span", { class: "quiet" }, "Save as"), link("trace", "trace"), link("HTML page", "export.html"),
      link("Perfetto events", "perfetto.json")));
  element.addEventListener("toggle", () => {
    element.classList.remove("up");
    if (!element.open) return;
    const box = element.lastElementChild.getBoundingClientRect();
    // where there is room
    element.classList.toggle("up", box.bottom > innerHeight && element.getBoundingClientRect().top > box.height);
    close(root, element);
  });
  element.addEventListener("focusout",
    (event) => event.relatedTarget && !element.contains(event.relatedTarget) && (element.open = false));
  return element;
}
