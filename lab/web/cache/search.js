/* search: find a piece of the text, and show what became of it head by head. */
import { button, h } from "../scope.js";
import { statusLine, refuse, table } from "./parts.js";
import { question } from "./question.js";

/** marked(): called when another place is to be marked in the pictures; reveal(): show the map. */
export function searchView(shared, { marked, reveal }) {
  const needle = h("input", { type: "search", placeholder: "a piece of the prompt", "aria-label": "text to find",
    spellcheck: "false", autocomplete: "off", maxlength: 2000 });
  const form = h("form", { class: "row" }, needle, h("button", { type: "submit", class: "ds-button" }, "Find"));
  const said = statusLine("status"), ways = h("span", { class: "row" }), out = h("div");
  let text = "", which = 0;

  const asked = question(
    () => (shared.known() && text ? shared.query("/find", { step: shared.now(), text, which }) : null),
    (answer, trouble) => ((shared.hits = answer), draw(trouble), marked())
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    (text = needle.value), (which = 0), (shared.hits = null);
    if (!text) draw(), marked();
    shared.load();
  });
  function draw(trouble) {
    refuse(said, trouble);
    ways.replaceChildren();
    out.replaceChildren();
    const { hits } = shared;
    if (!hits || trouble) return;
    said.textContent = hits.sentence;
    if (!hits.places.length) return;
    const [first] = hits.places[hits.which];
    const to = (word, by, off) =>
      button(word, () => ((which = hits.which + by), shared.load()), { "aria-disabled": String(off) });
    if (hits.places.length > 1)
      ways.append(to("previous", -1, hits.which === 0), to("next", 1, hits.which + 1 >= hits.places.length),
        h("span", { class: "quiet" }, `place ${hits.which + 1} of ${hits.places.length}`));
    ways.append(button("Show it", () => (shared.go(shared.at.row, first), reveal())));
    if (hits.rows) list(hits);
  }
  function list(hits) {
    const { heads, words } = shared.map, when = (step) => (step === null ? "–" : step < 0 ? "prompt" : String(step));
    out.append(
      table("What became of it, head by head", ["layer, head", "kept", "first left", "last left", "why"],
        hits.rows.map((x) => [`${Math.floor(x.row / heads)}, ${x.row % heads}`, `${x.kept} of ${hits.size}`,
          when(x.first), when(x.last), x.why || "–"])),
      h("p", { class: "quiet" },
        [...new Set(hits.rows.map((x) => x.why).filter(Boolean))].map((x) => `${x} ${words[x]}.`).join(" "))
    );
  }
  const reset = () => ((which = 0), (shared.hits = null), draw());
  return { elements: [form, said, ways, out], question: asked, reset };
}
