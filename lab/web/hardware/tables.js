/* tables: the tables of the Hardware page, in boxes that scroll by themselves. */
import { h } from "../scope.js";

export const BOUNDS = { memory: "memory", compute: "compute", launch: "launches",
  "cache bandwidth": "processor's cache" };
export const scrollBox = (name) => h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": name });
export const table = (caption, heads, rows, cls = "") =>
  h("table", { class: cls }, h("caption", { class: "unseen" }, caption),
    h("thead", null, h("tr", null, heads.map((x) => h("th", { scope: "col" }, x)))), h("tbody", null, rows));
/** A row of such a table; the first cell is its head. */
export const row = (first, cells) =>
  h("tr", null, h("th", { scope: "row" }, first), cells.map((x) => h("td", null, x)));
