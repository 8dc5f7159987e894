/* replacement: another draft in the place of the run's, from the step of the fork on: a draft model of the same sizes,
 * or other heads of the same kind. */
import { h } from "../../scope.js";
import { ask } from "../../runs/runs.js";
import { folderReading } from "../../shared/folder_reading.js";

const OWN = "the run's own";

/** changed(): called when another one is chosen. */
export function replacement(changed) {
  const inputs = h("div", { class: "instead" }), element = h("details", { class: "shape", hidden: "" },
    h("summary", null, "Another draft from here on"), inputs);
  let asked = 0, chosen = new Map(); // "draft" or the kind of a head -> select
  function choice(role, word, rows) {
    const list = h("select", null, h("option", { value: "" }, OWN),
      rows.map((row) => h("option", { value: row.key }, row.name)));
    const about = h("div");
    list.addEventListener("change", () => {
      about.replaceChildren(...(role !== "draft" && list.value ? [folderReading(list.value)] : []));
      changed();
    });
    chosen.set(role, list);
    return h("div", null, h("label", null, h("span", null, word), list), about);
  }
  return {
    element,
    /** Request what can take the place of the draft of the run with this id, "": there is none. */
    async fill(run) {
      const mine = ++asked;
      const put = ({ draft, heads }) => {
        chosen = new Map();
        const kinds = [...new Set(heads.map((row) => row.kind))];
        inputs.replaceChildren(...(draft.length ? [choice("draft", "Draft model", draft)] : []),
          ...kinds.map((kind) => choice(kind, `Heads: ${kind}`, heads.filter((row) => row.kind === kind))));
        element.hidden = !chosen.size;
        changed();
      };
      put({ draft: [], heads: [] });
      if (!run) return;
      const answer = await ask(`ds/run/${run}/replacements`).catch(() => null); // of models that are not here
      if (answer && mine === asked) put(answer);
    },
    /** What is chosen, as a part of a change; empty: nothing. */
    change() {
      const instead = Object.fromEntries([...chosen].filter(([, list]) => list.value)
        .map(([role, list]) => [role, list.value]));
      return Object.keys(instead).length ? { instead } : {};
    },
  };
}
