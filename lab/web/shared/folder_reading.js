/* folder_reading: what was read of a folder of draft heads, folded in: every line of its config, in three groups, and
 * the remarks. The server reads the folder once it is opened. */
import { h, plural } from "../scope.js";
import { ask, errorText } from "../runs/runs.js";

const GROUPS = { used: "Used", unused: "Not used, and why", refused: "Refused" };

const lines = (rows) => h("table", null, h("tbody", null, rows.map(({ key, value, use }) =>
  h("tr", null, h("th", { scope: "row" }, key), h("td", null, value), h("td", null, use === "used" ? "" : use)))));

/** The fold-out for the offered folder with this key. */
export function folderReading(key) {
  const body = h("div", { class: "body", role: "status" });
  const element = h("details", { class: "ds-reading" }, h("summary", null, "What was read of this folder"), body);
  let asked = false;
  element.addEventListener("toggle", async () => {
    if (!element.open || asked) return;
    asked = true;
    body.textContent = "Reading…";
    try {
      const { facts, groups, remarks } = await ask(`ds/heads?key=${encodeURIComponent(key)}`);
      body.replaceChildren(
        h("dl", null, facts.flatMap(([name, words]) => [h("dt", null, name), h("dd", null, words)])),
        ...Object.entries(GROUPS).map(([group, word]) => [word, groups[group], group === "refused"])
          .map(([word, rows, bad]) => h("details", { open: bad && rows.length > 0 },
            h("summary", null, h("b", null, word), ` ${plural(rows.length, "line")}`), lines(rows))),
        ...remarks.map((words) => h("p", { class: "quiet" }, words)));
    } catch (error) {
      asked = false;
      body.replaceChildren(h("p", { class: "ds-refusal" }, errorText(error)));
    }
  });
  return element;
}
