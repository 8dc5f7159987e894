/* row: a trace as a row of the table: its name, its figures, and its actions. */
import { label } from "../shared/exactness.js";
import { button, formatCount, h, size, formatFixed } from "../scope.js";
import { timestamp } from "../shared/timestamp.js";
import { bars } from "./bars.js";
import { menu } from "./menu.js";
import { listedTitle } from "./trace_list.js";

/** The box for renaming a trace. wanted(): whether it is still open; done(text), or done(null) to leave the old
 *  name. */
function nameBox(row, { wanted, done }) {
  const box = h("input", { type: "text", maxlength: 80, "aria-label": `name of ${listedTitle(row)}` });
  box.value = row.title || "";
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault(); // the focus goes to the name's button, which must not be pressed by the same key
    done(event.key === "Enter" ? box.value : null);
  });
  box.addEventListener("blur", () => wanted() && done(box.value));
  return box;
}

/** The cells of method, model and figures, or one cell with the reason why there are none; most, place: as `bars`
 *  takes them. */
function figures(row, most, place) {
  if (row.trouble) return h("td", { class: "wrong", colspan: 6 }, row.trouble);
  return [
    h("td", { class: "method", title: row.mark }, row.called || "",
      row.damage ? h("small", null, `${row.damage}`) : null,
      row.unchecked ? h("small", null, row.unchecked) : null,
      row.exactness && row.exactness !== "lossless" ? h("small", null, row.away || label(row.exactness)) : null),
    h("td", { class: "model" }, row.model),
    h("td", { class: "bars" }, row.bars?.length ? bars(row.bars, most, place) : row.pending ? "reading…" : ""),
    h("td", { class: "steps n" }, row.steps === undefined ? "" : formatCount(row.steps)),
    h("td", { class: "tau n" }, row.tau ? formatFixed(row.tau) : ""),
    h("td", { class: "rate n" }, row.rate ? formatCount(row.rate) : ""),
  ];
}

/** most: as `bars` takes it. The table, whose body is `body`, does the rest: show(run), star(row, on),
 *  remove(row); rename(run) begins another name, renaming(run) says whether it is being written, renamed(row,
 *  text) ends it, null: as it was; choice: of runs to compare. */
export function line(row, most, { body, show, star, remove, rename, renaming, renamed, choice }) {
  const { run } = row;
  const starred = button(row.star ? "★" : "☆", () => star(row, !row.star), { class: "bare",
    "aria-pressed": String(!!row.star), "aria-label": `keep ${listedTitle(row)} in any case`,
    title: "keep it in any case" });
  const name = renaming(run) ? nameBox(row, { wanted: () => renaming(run), done: (text) => renamed(row, text) })
    : [button(listedTitle(row), () => show(run), { class: "open" }),
      h("small", null, [row.called, row.model].filter(Boolean).join(", "))];
  const more = menu(row, body, { rename: () => rename(run), remove: () => remove(row) });
  return h("tr", { "data-run": run, class: choice.runs().includes(run) ? "chosen" : null },
    h("td", { class: "star" }, starred), h("th", { scope: "row", class: "name" }, name), figures(row, most, body),
    h("td", { class: "size n" }, size(row.size)), h("td", { class: "at" }, timestamp(row.at)),
    h("td", { class: "acts" }, h("span", null, row.trouble ? null : choice.button(row), more)));
}
