/* upload: traces that are added as files, chosen or dropped: each is sent, and the result is shown. */
import { button, h } from "../scope.js";
import { ask } from "../runs/runs.js";
import { current } from "../shared/address.js";

const LARGEST = 64; // MiB of an added file at most

/** page: the element that shows that files are dragged over it; shelf: the list, which is read again; show(run);
 *  say, refuse: of a notice. */
export function uploadArea({ page, shelf, show, say, refuse }) {
  const file = h("input", { type: "file", accept: ".dstrace", multiple: "", hidden: "", tabindex: -1,
    "aria-hidden": "true" });
  const drop = h("span", { class: "drop", "aria-hidden": "true" }, "drop a trace here");

  /** Send the files one after another; report what was accepted, and what is wrong with the others. */
  async function sent(files) {
    const taken = [], wrong = [];
    for (const one of files) {
      if (one.size > LARGEST * 1048576) {
        wrong.push(`${one.name} is larger than ${LARGEST} MiB, which is the limit.`);
        continue;
      }
      say(`Reading ${one.name}…`);
      try {
        taken.push({ name: one.name,
          ...(await ask("ds/library?name=" + encodeURIComponent(one.name), { method: "POST", body: one })) });
      } catch (error) {
        wrong.push(error instanceof TypeError ? `${one.name} could not be read or sent.` : error.message);
      }
    }
    return { taken, wrong };
  }
  async function add(files) {
    const { taken, wrong } = await sent(files);
    if (taken.length) await shelf.read();
    if (wrong.length) return refuse(wrong.join(" "));
    if (!taken.length) return;
    const last = taken.at(-1), opening = button("Open", () => show(last.run));
    const added = [`${last.name} was added.`, last.unchecked].filter(Boolean).join(" ");
    say(
      taken.length > 1 ? `${taken.length} traces were added.`
        : last.known ? `${last.name} is here already.` : added,
      opening
    );
    opening.focus();
  }

  file.addEventListener("change", () => (add([...file.files]), (file.value = "")));
  for (const kind of ["dragenter", "dragover"])
    document.addEventListener(kind, (/** @type {DragEvent} */ event) => {
      if (current() !== "library" || ![...event.dataTransfer.types].includes("Files")) return;
      event.preventDefault();
      page.classList.add("over");
    });
  document.addEventListener("dragleave", (event) => event.relatedTarget === null && page.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    page.classList.remove("over");
    if (current() !== "library" || !event.dataTransfer.files.length) return;
    event.preventDefault();
    add([...event.dataTransfer.files]);
  });
  return { elements: [drop, button("Open file…", () => file.click()), file] };
}
