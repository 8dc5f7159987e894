/* file_knob: a knob that takes a file. The file is uploaded as soon as it is chosen; the value of the knob is
 * NAME@HASH. */
import { button, h } from "../scope.js";
import { ask, errorText } from "../runs/runs.js";

const known = new WeakMap(); // host -> the function that draws a value into it

/** The input of such a knob in `host`. of: path (the upload address), label, help, usual (the text without a file)
 *  and most (bytes); value: the knob's value; set(value): change it. */
export function fileKnob(host, of, value, set) {
  if (!known.has(host) || !host.firstChild) known.set(host, chooser(host, of, set));
  known.get(host)(value || "");
}

/** Fill `host`; the returned function draws a value into it. */
function chooser(host, of, set) {
  const box = h("input", { type: "file", hidden: "", tabindex: -1 });
  const named = h("output", { class: "name" }), refused = h("p", { class: "ds-refusal", role: "alert", hidden: "" });
  const choose = button("Choose a file", () => box.click()),
    drop = button("Remove", () => (say(), set(""), choose.focus()));
  const say = (sentence = "") => {
    refused.hidden = !sentence;
    refused.textContent = sentence;
  };
  const group = h("div", { class: "ds-file", role: "group", "aria-label": of.label },
    h("b", null, of.label), h("small", null, of.help), h("div", { class: "ways" }, named, choose, drop), box, refused);
  box.addEventListener("change", async () => {
    const [file] = box.files;
    box.value = ""; // the same file may be chosen again, after it was changed
    if (!file) return;
    say();
    try {
      if (file.size > of.most)
        throw new Error(`${file.name} is larger than ${of.most / 2 ** 20} MiB, the limit: choose a smaller file.`);
      named.textContent = "Reading it";
      set((await ask(`${of.path}?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file })).value);
    } catch (error) {
      draw();
      say(errorText(error));
    }
  });
  let held = "";
  const draw = () => {
    const at = held.lastIndexOf("@");
    named.textContent = held ? held.slice(0, at) : of.usual;
    named.title = held;
    drop.hidden = !held;
    choose.textContent = held ? "Choose another" : "Choose a file";
  };
  host.replaceChildren(group);
  return (value) => {
    held = value;
    draw();
  };
}
