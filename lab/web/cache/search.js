/* search: a piece of the text, where it stands, and what became of it head by head. */
import { button, h } from "../scope.js";
import { aloud, refuse, table } from "./parts.js";
import { question } from "./question.js";

/** found(): called when another place is marked in the pictures; reveal(): go to the map. */
export function searchView(shared, { found: marking, reveal }) {
  const needle = h("input", { type: "search", placeholder: "a piece of the prompt", "aria-label": "text to find",
    spellcheck: "false", autocomplete: "off", maxlength: 2000 });
  const form = h("form", { class: "row" }, needle, h("button", { type: "submit", class: "ds-button" }, "Find"));
  const said = aloud("status"), ways = h("span", { class: "row" }), out = h("div");
  let text = "", which = 0;

  const asked = question(
    () => (shared.known() && text ? shared.query("/find", { step: shared.now(), text, which }) : null),
    (answer, trouble) => ((shared.found = answer), draw(trouble), marking())
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    (text = needle.value), (which = 0), (shared.found = null);
    if (!text) draw(), marking();
    shared.load();
  });
  function draw(trouble) {
    refuse(said, trouble);
    ways.replaceChildren();
    out.replaceChildren();
    const { found } = shared;
    if (!found || trouble) return;
    said.textContent = found.sentence;
    if (!found.places.length) return;
    const [first] = found.places[found.which];
    const to = (word, by, off) =>
      button(word, () => ((which = found.which + by), shared.load()), { "aria-disabled": String(off) });
    if (found.places.length > 1)
      ways.append(to("previous", -1, found.which === 0), to("next", 1, found.which + 1 >= found.places.length),
        h("span", { class: "quiet" }, `place ${found.which + 1} of ${found.places.length}`));
    ways.append(button("Show it", () => (shared.go(shared.at.row, first), reveal())));
    if (found.rows) list(found);
  }
  function list(found) {
    const { heads, words } = shared.map, when = (step) => (step === null ? "–" : step < 0 ? "prompt" : String(step));
    out.append(
      table("What became of it, head by head", ["layer, head", "kept", "first left", "last left", "why"],
        found.rows.map((x) => [`${Math.floor(x.row / heads)}, ${x.row % heads}`, `${x.kept} of ${found.size}`,
          when(x.first), when(x.last), x.why || "–"])),
      h("p", { class: "quiet" },
        [...new Set(found.rows.map((x) => x.why).filter(Boolean))].map((x) => `${x} ${words[x]}.`).join(" "))
    );
  }
  const reset = () => ((which = 0), (shared.found = null), draw());
  return { elements: [form, said, ways, out], question: asked, reset };
}
