/* prompts: a set of prompts for a method: pasted, from a file, or LabBench's, with the chosen kinds. */
import { h, plural } from "../scope.js";
import { ask } from "../runs/runs.js";

const LARGEST = 16; // MiB of a file
const WAYS = [["text", "text, one prompt a line"], ["file", "a file"], ["labbench", "LabBench"]];

/** The text of a file; an error names its fault. */
async function textOf(file) {
  if (file.size > LARGEST * 2 ** 20)
    throw new Error(`${file.name} is larger than ${LARGEST} MiB, the limit: choose a smaller file.`);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error(`${file.name} is not UTF-8 text: save it as UTF-8.`);
  }
}

/** The fields. value() is what the server reads as a set (app/runs/prompts.py); refuse(error) is called if it
 *  cannot be read, refuse(null) if it can. */
export function prompts({ refuse }) {
  let file = null, counted = null, turn = 0;
  const way = h("select", null, WAYS.map(([value, word]) => h("option", { value }, word)));
  const text = h("textarea", { rows: 4, spellcheck: "false",
    placeholder: 'One prompt a line, or an object a line: {"prompt": "…"}, {"messages": […]} or {"turns": ["…"]}' });
  const box = h("input", { type: "file", accept: ".txt,.jsonl,.json,text/*" });
  const each = h("input", { type: "number", min: 0, max: 10000, step: 1, value: 0 });
  const kinds = h("fieldset", { class: "kinds" }), note = h("p", { class: "quiet", role: "status" });
  const field = (word, input) => h("label", null, h("span", null, word), input);
  const pasted = field("Prompts", text), brought = field("File, a prompt a line, or .jsonl", box),
    most = field("Of each kind (0: all)", each);
  const ticked = () => [...kinds.querySelectorAll("input:checked")].map((one) => one.value);

  const set = () => ({
    ...(way.value === "text" ? { text: text.value } : {}),
    ...(way.value === "file" ? { text: file?.text || "", file: file?.name || "" } : {}),
    ...(way.value === "labbench" ? { bench: "labbench" } : {}),
  });
  /** How many are chosen of those that there are. */
  function tell() {
    const all = Object.entries(counted?.kinds || {}), wanted = new Set(ticked()), n = Number(each.value) || Infinity;
    const chosen = all.filter(([kind]) => all.length < 2 || wanted.has(kind))
      .reduce((sum, [, k]) => sum + Math.min(k, n), 0);
    kinds.hidden = most.hidden = all.length < 2;
    note.textContent = !counted ? ""
      : plural(chosen, "prompt")
        + (chosen > counted.most ? `; at most ${counted.most} run at a time: choose fewer.` : ".");
  }
  /** Ask how many there are of which kinds. */
  async function count() {
    const mine = ++turn, empty = way.value === "text" ? !text.value.trim() : way.value === "file" && !file;
    refuse(null);
    pasted.hidden = way.value !== "text";
    brought.hidden = way.value !== "file";
    if (empty) return (counted = null), kinds.replaceChildren(), tell();
    try {
      const answer = await ask("ds/prompts", { method: "POST", body: JSON.stringify(set()) });
      if (mine !== turn) return;
      counted = answer;
      if (way.value === "labbench" && each.value === "0") each.value = "8";
      kinds.replaceChildren(h("legend", null, "Kinds"), ...Object.entries(answer.kinds).map(([kind, n]) =>
        h("label", null, h("input", { type: "checkbox", value: kind, checked: "" }), kind || "none",
          h("span", { class: "quiet" }, String(n)))
      ));
    } catch (error) {
      if (mine !== turn) return;
      counted = null;
      kinds.replaceChildren();
      refuse(error);
    }
    tell();
  }
  box.addEventListener("change", async () => {
    try {
      file = box.files[0] ? { name: box.files[0].name, text: await textOf(box.files[0]) } : null;
      count();
    } catch (error) {
      file = counted = null;
      tell();
      refuse(error);
    }
  });
  way.addEventListener("change", () => ((each.value = "0"), count()));
  text.addEventListener("change", count);
  for (const one of [kinds, each]) one.addEventListener("input", tell);
  count();
  return {
    element: h("div", { class: "set" }, field("Prompts from", way), pasted, brought, kinds, most, note),
    value: () => ({ ...set(), ...(kinds.hidden ? {} : { kinds: ticked(), each: Number(each.value) || 0 }) }),
    focus: () => way.focus(),
  };
}
