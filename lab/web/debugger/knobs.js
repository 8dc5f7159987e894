/* knobs: the knobs of a part in a form that is sent. */
import { h } from "../scope.js";
import { fileKnob } from "../run_form/file_knob.js";
import { boxOf, boxText, setBox } from "../run_form/knobs.js";

/** {element, read(), wrong()} of a knob with the value `value`; wrong: why its text cannot be sent, or "". */
function knobInput(knob, value, word, event, changed) {
  const box = boxOf(knob);
  setBox(box, value);
  box.dataset.name = knob.name;
  box.addEventListener(event, changed);
  return { element: h("label", { title: knob.help }, h("span", null, word), box), read: () => boxText(box),
    wrong: () => (box.validity.badInput ? `${word} must be a number: write one, or leave it empty.` : "") };
}
/** The same for a knob that takes a file, which is uploaded to `path`. */
function fileInput(knob, value, word, path, changed) {
  const element = h("div", { "data-name": knob.name }),
    of = { path, label: word, help: knob.help, most: knob.most, usual: "No file chosen" };
  const put = (next) => ((value = next), fileKnob(element, of, value, take)), take = (next) => (put(next), changed());
  put(value);
  return { element, read: () => value, wrong: () => "" };
}

/** Inputs of the knobs of a part. event: the input event that calls changed(). */
export function knobSet(event, changed) {
  const element = h("div", { class: "knobs" });
  let knobs = []; // {name, value, read, wrong}
  return {
    element,
    /** Knobs as the server describes them, each with its present `value`; path: upload address for knobs that take
     *  a file. */
    fill(all, path = "") {
      knobs = all.map((knob) => {
        const { name, value } = knob, word = name.replaceAll("_", " ");
        return { name, value, ...(knob.file ? fileInput(knob, value, word, `${path}/${name}`, changed)
          : knobInput(knob, value, word, event, changed)) };
      });
      element.replaceChildren(...knobs.map((knob) => knob.element));
    },
    /** knob -> its value; changed: only knobs with another value than at first. */
    values: (changed) =>
      Object.fromEntries(knobs.map(({ name, value, read }) => [name, read(), value]).filter(([, x, value]) =>
        x !== null && !(changed && x === value)
      )),
    /** Why the present input cannot be sent, in a sentence; "": it can. */
    wrong: () => knobs.map((knob) => knob.wrong()).find(Boolean) || "",
  };
}
