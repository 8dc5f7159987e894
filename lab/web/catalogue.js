/* catalogue: all methods in one list, to search, read about and put into the controls. A button next to the method
 * opens it. */
import { describe } from "./catalogue/details.js";
import { label } from "./shared/exactness.js";
import { ask, withModels } from "./runs/runs.js";
import { button, h, formatFixed } from "./scope.js";

const NEEDS = [
  ["", "any need"], ["nothing", "nothing more"], ["draft model", "a draft model"], ["trained heads", "trained heads"],
  ["attention", "attention"],
];

let dialog = null;
/** Open the catalogue. use(text) puts a choice into the controls, said(sentence) announces what was done. */
export async function show(use, said) {
  dialog ??= buildDialog(use, said);
  if (!dialog.isConnected) document.body.append(dialog);
  await loadSheet();
  dialog.showModal();
  await dialog.read();
}

/** A method that is a command, described as parts are. */
const runByHand = (x) => ({ ...x, family: "Command", needs: [], measured: null, why: "" });

let sheet = null;
/** The styles, which are inserted after the page library's own; loaded once. */
function loadSheet() {
  sheet ??= new Promise((done) => {
    const link = h("link", { rel: "stylesheet", href: "ds/web/styles/catalogue.css" });
    for (const kind of ["load", "error"]) link.addEventListener(kind, done);
    document.head.append(link);
  });
  return sheet;
}

function buildDialog(use, said) {
  let all = [], command = "", meanings = {}, family = "", shown = [], at = 0;
  const search = h("input", { type: "search", placeholder: "Name, idea, source, need",
    "aria-label": "Search the methods", autocomplete: "off", spellcheck: "false" });
  const families = h("div", { class: "families", role: "group", "aria-label": "Kind of part" });
  const values = ["lossless", "exact_for_settings", "lossy"].map((value) => h("option", { value }, label(value))),
    exact = h("select", { "aria-label": "How exact the text is" }, h("option", { value: "" }, "any exactness"), values),
    need = h("select", { "aria-label": "What it needs" }, NEEDS.map(([value, word]) => h("option", { value }, word)));
  const count = h("span", { class: "quiet", role: "status" });
  const list = h("ul", { class: "list", role: "listbox", "aria-label": "Methods" }),
    about = h("div", { class: "about", tabindex: -1, "aria-live": "polite" });
  const trouble = h("p", { role: "alert" });
  const close = button("Close", () => dialog.close());
  const dialog = h("dialog", { class: "ds-catalogue ds-page", "aria-label": "Methods" },
    h("header", null, h("h1", null, "Methods"), count, close),
    h("div", { class: "filters" }, search, need, exact, families), trouble,
    h("div", { class: "both" }, list, about));

  dialog.read = async () => {
    search.focus();
    try {
      const catalogue = await ask(withModels("ds/catalogue")); // requested each time: other models may be chosen now
      all = [...catalogue.presets, ...catalogue.parts, ...catalogue.commands.map(runByHand)];
      ({ command, exactness: meanings } = catalogue);
      trouble.className = "";
      trouble.replaceChildren();
      fill();
    } catch (error) {
      trouble.className = "ds-refusal";
      trouble.replaceChildren(
        error instanceof TypeError ? "The server does not answer: start it again, then open this list once more."
          : error.message
      );
    }
  };

  // ---- what is searched for

  const sought = (x) =>
    [x.family, x.kind, x.name, x.title, x.idea, x.source, label(x.exactness), meanings[x.exactness],
      ...(x.needs.length ? x.needs : ["needs nothing"])]
      .join("\n").toLowerCase();
  const fits = (x) => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    return (!family || x.family === family) && (!exact.value || x.exactness === exact.value)
      && (!need.value
        || (need.value === "nothing" ? !x.needs.length : x.needs.some((word) => word.startsWith(need.value))))
      && words.every((word) => sought(x).includes(word));
  };
  function fill() {
    const names = [...new Set(all.map((x) => x.family))];
    families.replaceChildren(...["", ...names].map((name) => {
      const one = button(name || "All",
        () => ((family = name), fill(), families.querySelector('[aria-pressed="true"]').focus()), {
        "aria-pressed": String(name === family),
      });
      return one;
    }));
    filter();
  }
  function filter() {
    const before = shown[at];
    shown = all.filter(fits);
    at = Math.max(0, shown.indexOf(before));
    count.textContent = `${shown.length} of ${all.length}`;
    let last = "";
    list.replaceChildren(...shown.flatMap((x, i) => {
      const row = h("li", { role: "option", id: `ds-method-${i}`, "data-i": i, "data-name": `${x.kind} ${x.name}`,
        tabindex: -1 }, h("b", null, x.title || x.name),
        h("span", { class: "marks" },
          x.exactness === "lossless" ? null : h("span", { class: "lossy" }, label(x.exactness)),
          x.measured ? h("span", { class: "n" }, `× ${formatFixed(x.measured.ratio)}`) : null));
      const head = x.family === last ? [] : [h("li", { class: "family", role: "presentation" }, x.family)];
      last = x.family;
      return [...head, row];
    }));
    choose(at);
  }
  /** Show the i-th matching row. */
  function choose(i, focus = false) {
    at = Math.max(0, Math.min(shown.length - 1, i));
    for (const row of list.querySelectorAll("[role=option]")) {
      const on = Number(row.dataset.i) === at;
      row.setAttribute("aria-selected", on);
      row.tabIndex = on ? 0 : -1;
      if (on && focus) row.focus();
      if (on) row.scrollIntoView({ block: "nearest" });
    }
    describe(about, shown[at], { command, meanings, take, any: all.length > 0 });
  }

  // ---- mouse and keys

  function take(x) {
    if (x.run) return; // not a part that the controls could take
    use(`use ${x.kind} ${x.name}`);
    dialog.close();
    said(
      x.kind === "preset" ? `${x.title} is in the controls.`
        : `${x.title || x.name} is ${x.kind === "sampler" ? "in " : ""}the ${x.family.toLowerCase()} now.`
    );
  }

  search.addEventListener("input", filter);
  exact.addEventListener("change", filter);
  need.addEventListener("change", filter);
  search.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" && shown.length) event.preventDefault(), choose(at, true);
    else if (event.key === "Enter" && shown.length) event.preventDefault(), choose(0, true);
  });
  list.addEventListener("click", (event) => {
    const row = event.target.closest("[role=option]");
    if (row) choose(Number(row.dataset.i), true);
  });
  list.addEventListener("keydown", (event) => {
    const to =
      { ArrowUp: at - 1, ArrowDown: at + 1, PageUp: at - 10, PageDown: at + 10, Home: 0,
        End: shown.length - 1 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter") take(shown[at]);
    else if (to === undefined) return;
    else choose(to, true);
    event.preventDefault();
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return dialog;
}
