/* parts: the small elements and words that the sections of the cache page share. */
import { h, visibleText } from "../scope.js";

export const quiet = () => h("p", { class: "quiet" });
/** A line that is read aloud when it changes: role "status" or "alert". */
export const statusLine = (role) => h("p", { class: "told", role });
/** Write a sentence into such a line, as a refusal; without one it is emptied. */
export function refuse(line, sentence) {
  line.className = sentence ? "told ds-refusal" : "told";
  line.textContent = sentence || "";
}
export const section = (name, head, ...parts) => h("section", { class: name }, h("header", null, head), ...parts);
export const canvas = (role, what) => h("canvas", { tabindex: 0, role, "aria-roledescription": what });
export const token = (text) => h("span", { class: "tok" }, visibleText(text) || "–");

/** A table that scrolls by itself; the first cell of a row is its head. */
export const table = (caption, heads, rows) =>
  h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": caption },
    h("table", { class: "" }, h("caption", { class: "unseen" }, caption),
      h("thead", null, h("tr", null, heads.map((x) => h("th", { scope: "col" }, x)))),
      h("tbody", null, rows.map(([first, ...cells]) =>
        h("tr", null, h("th", { scope: "row" }, first), cells.map((x) => h("td", null, x)))))));

/** A part of a whole in percent. */
export const share = (part) =>
  part >= 0.0995 ? `${(100 * part).toFixed(0)} %`
  : part >= 0.00095 ? `${(100 * part).toFixed(1)} %`
  : part > 0 ? "< 0.1 %" : "0 %";

/** Whether a letter says that there never was an entry: the layer computed none, or the head was cut. */
export const isAbsent = (letter) => letter === "A" || letter === "C";
