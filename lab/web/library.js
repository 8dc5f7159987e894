/* library: the traces in the folder of this machine, and the examples: open, filter, name, keep, delete, compare, add,
 * save. */
import { button, grouped, h, plural, size, two } from "./scope.js";
import { ask, example, open, shown, inWords, titled } from "./runs.js";
import { current, fragment, go, panel } from "./address.js";
import { going } from "./going.js";
import { when } from "./when.js";
import { guide } from "./tour.js";

const LARGEST = 64; // MiB of a file that is added
const DRAWN = 300; // rows that are drawn at once
const FEWEST = 2, MOST = 4, LETTERS = "ABCD"; // runs beside each other
const AGAIN = 400; // ms until rows that have no figures yet are asked for again

const live = going({
  said: "Going on this machine now:",
  wanted: () => current() === "library",
  show: (id) => (open(id), go("lab")),
});

export function page(element) {
  let rows = [], held = null, chosen = [], words = "", renaming = null, turn = 0;

  const examples = h("ul", { class: "examples" });
  const count = h("span", { class: "quiet count" });
  const filter = h("input", { type: "search", placeholder: "Filter by name, text, method, model",
    "aria-label": "Filter the traces", autocomplete: "off", spellcheck: "false" });
  const file = h("input", { type: "file", accept: ".dstrace", multiple: "", hidden: "", tabindex: -1,
    "aria-hidden": "true" });
  const drop = h("span", { class: "drop", "aria-hidden": "true" }, "drop a trace here");
  const notice = h("p", { class: "told", role: "status" });
  const body = h("tbody"), none = h("p", { class: "none quiet" });
  const HEADS = [["", "star"], ["name", "name"], ["method", "method"], ["model", "model"], ["tokens per step", "bars"],
    ["steps", "steps n"], ["tokens / pass", "tau n"], ["tokens / s", "rate n"], ["size", "size n"], ["recorded", "at"],
    ["", "acts"]];
  const LABELS = { star: "kept in any case", acts: "what can be done" };
  const table = h("table", { class: "traces" },
    h("caption", { class: "unseen" }, "Traces on this machine, the newest first"),
    h("thead", null,
      h("tr", null,
        HEADS.map(([word, cls]) =>
          h("th", { scope: "col", class: cls }, word || h("span", { class: "unseen" }, LABELS[cls]))
        ))), body);
  element.replaceChildren(
    live.element, h("section", { class: "start" },
      h("header", null, h("h1", null, "Start here"),
        h("span", { class: "quiet" }, "recorded runs that come with the package; no model is needed")), examples),
    h("section", null,
      h("header", null, h("h1", null, "Traces"), count,
        h("span", { class: "tools" }, filter, drop, button("Open file…", () => file.click()), file)),
      notice, table, none)
  );

  // ---- what is said

  /** A sentence about what was done, with what can be done next. */
  function say(sentence, ...ways) {
    notice.className = "told";
    notice.replaceChildren(sentence, ...ways);
  }
  function refuse(error) {
    notice.className = "told ds-refusal";
    notice.replaceChildren(inWords(error));
  }
  const post = (path, value) =>
    ask("/ds/library" + path, { method: "POST", body: value === undefined ? "" : JSON.stringify({ value }) });
  const find = (run) => rows.find((row) => row.run === run);
  const named = (row) => row && titled(row);
  const sought = (row) =>
    [named(row), row.run, row.text, row.called, JSON.stringify(row.method || {}), row.model, row.end].join("\n")
      .toLowerCase();
  const matching = () => {
    const parts = words.toLowerCase().split(/\s+/).filter(Boolean);
    return rows.filter((row) => !row.example && parts.every((part) => sought(row).includes(part)));
  };

  // ---- reading

  async function read() {
    const mine = ++turn;
    try {
      const answer = await ask("/ds/library");
      if (mine !== turn) return;
      held = answer;
      rows = answer.rows;
      if (!chosen.every(find)) choose(chosen.filter(find)); // another page has deleted one
      draw();
      if (answer.more && current() === "library") setTimeout(() => mine === turn && read(), AGAIN);
    } catch (error) {
      if (mine === turn) refuse(error);
    }
  }
  /** Do something to a trace, then look again; the focus goes back to where it was in the table, or to `after`. */
  async function act(run, what, value, after) {
    try {
      await post(`/${run}/${what}`, value);
      await read();
      after?.();
    } catch (error) {
      refuse(error);
    }
  }

  // ---- doing

  function show(run, other = null) {
    open(run, { other });
    if (!other && example(run)) shown.put?.(example(run).settings); // Run repeats it
    go("lab");
    document.querySelector(".ds-places .ds")?.focus({ preventScroll: true });
  }
  /** Choose a run for the comparison, or take it out again. */
  function compare(run) {
    if (chosen.length >= MOST && !chosen.includes(run))
      return choose(chosen, `Not more than ${MOST} runs stand beside each other: take one out first, or open these. `);
    choose(chosen.includes(run) ? chosen.filter((one) => one !== run) : [...chosen, run]);
  }
  function choose(runs, before = "") {
    chosen = runs;
    draw();
    const names = runs.map((run, k) => `${LETTERS[k]}: ${named(find(run))}`).join(", "),
      more = runs.length < MOST ? ", or press Compare at another trace or example" : "";
    const opening = button(`Compare ${runs.length} runs`, beside, { class: "ds-button go" }),
      not = button("Not now", () => (choose([]), filter.focus()));
    if (!runs.length) say("");
    else if (runs.length < FEWEST)
      say(`Compare ${named(find(runs[0]))} with: press Compare at another trace or example.`, not);
    else say(`${before}${names}. Open them${more}.`, opening, not);
  }
  /** Open the chosen runs in Compare. */
  function beside() {
    const others = location.hash.slice(1).split("&").filter((part) =>
        part.includes("=") && !/^(runs|at|align|base)=/.test(part)
      ), runs = `runs=${chosen}`;
    choose([]);
    location.hash = fragment([...others, runs], "compare");
    setTimeout(() => panel()?.focus({ preventScroll: true })); // behind the change of the page
  }
  function remove(row) {
    const list = matching(), next = list[list.indexOf(row) + 1] || list[list.indexOf(row) - 1];
    if (chosen.includes(row.run)) choose(chosen.filter((one) => one !== row.run));
    const undo = button("Undo",
      () => act(row.run, "restore", undefined, () => (say(`${named(row)} is back.`), focus(row.run))));
    act(row.run, "delete", undefined, () => {
      say(`${named(row)} was deleted. For an hour it can be brought back.`, undo);
      if (next && find(next.run)) focus(next.run);
      else undo.focus();
    });
  }
  function rename(row, to) {
    renaming = null;
    if (to === null || to.trim() === (row.title || "")) return draw(), focus(row.run);
    act(row.run, "name", to, () => (say(`It is called ${named(find(row.run))} now.`), focus(row.run)));
    draw();
  }
  async function add(files) {
    const taken = [], wrong = [];
    for (const one of files) {
      if (one.size > LARGEST * 1048576) {
        wrong.push(`${one.name} is larger than ${LARGEST} MiB, which is the limit.`);
        continue;
      }
      say(`Reading ${one.name}…`);
      try {
        taken.push({ name: one.name,
          ...(await ask("/ds/library?name=" + encodeURIComponent(one.name), { method: "POST", body: one })) });
      } catch (error) {
        wrong.push(error instanceof TypeError ? `${one.name} could not be read or sent.` : error.message);
      }
    }
    if (taken.length) await read();
    if (wrong.length) return refuse(wrong.join(" "));
    if (!taken.length) return;
    const last = taken.at(-1), opening = button("Open", () => show(last.run));
    say(
      taken.length > 1 ? `${taken.length} traces were added.`
        : last.known ? `${last.name} is here already.` : `${last.name} was added.`,
      opening
    );
    opening.focus();
  }

  // ---- the table

  const focus = (run, part = ".name button") => body.querySelector(`[data-run="${run}"] ${part}`)?.focus();
  let tallest = 1; // tokens per step: one scale for all traces
  /** Tokens per step as small columns. */
  function bars(counts) {
    const canvas = h("canvas", { width: 288, height: 40, role: "img",
      "aria-label": `tokens per step: ${two(Math.min(...counts))} to ${two(Math.max(...counts))}` });
    const c = canvas.getContext("2d"), most = tallest, wide = Math.min(6, 288 / counts.length);
    c.fillStyle = getComputedStyle(element).getPropertyValue("--branch").trim();
    counts.forEach((n, i) =>
      c.fillRect(i * wide, 40 - (38 * n) / most - 2, Math.max(1, wide - 2), (38 * n) / most + 2)
    );
    return canvas;
  }
  /** The button that takes a run into the comparison; it shows the letter that the run has there. */
  function choosing(row) {
    const k = chosen.indexOf(row.run);
    return button(LETTERS[k] ?? "Compare", () => compare(row.run), { class: "ds-button compare",
      "aria-pressed": String(k >= 0), "aria-label": `compare ${named(row)}` });
  }
  function line(row) {
    const starred = button(row.star ? "★" : "☆",
      () => act(row.run, "star", !row.star, () => focus(row.run, ".star button")), { class: "bare",
      "aria-pressed": String(!!row.star), "aria-label": `keep ${named(row)} in any case`,
      title: "keep it in any case" });
    const opening = button(named(row), () => show(row.run), { class: "open" });
    const name = h("th", { scope: "row", class: "name" }, opening,
      h("small", null, [row.called, row.model].filter(Boolean).join(", ")));
    if (renaming === row.run) {
      const box = h("input", { type: "text", maxlength: 80, "aria-label": `name of ${named(row)}` });
      box.value = row.title || "";
      box.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== "Escape") return;
        event.preventDefault(); // the focus goes to the name's button, which must not be pressed by the same key
        rename(row, event.key === "Enter" ? box.value : null);
      });
      box.addEventListener("blur", () => renaming === row.run && rename(row, box.value));
      name.replaceChildren(box);
    }
    const link = (word, path) => h("a", { href: `/ds/run/${row.run}/${path}`, download: "" }, word);
    const more = h("details", { class: "more" }, h("summary", { "aria-label": `more for ${named(row)}` }, "More"),
      h("div", null, button("Rename", () => ((renaming = row.run), draw(), body.querySelector("input")?.select()), {
        class: "item",
      }), button("Delete", () => remove(row), { class: "item" }), h("span", { class: "quiet" }, "Save as"),
        link("trace", "trace"), link("HTML page", "export.html"), link("Perfetto events", "perfetto.json")));
    more.addEventListener("toggle", () => {
      more.classList.remove("up");
      if (!more.open) return;
      const box = more.lastElementChild.getBoundingClientRect();
      // where there is room
      more.classList.toggle("up", box.bottom > innerHeight && more.getBoundingClientRect().top > box.height);
      element.querySelectorAll("details.more[open]").forEach((one) => one !== more && (one.open = false));
    });
    more.addEventListener("focusout",
      (event) => event.relatedTarget && !more.contains(event.relatedTarget) && (more.open = false));
    const comparing = choosing(row);
    const note = row.trouble || row.damage;
    const cells = note && row.trouble
      ? [h("td", { class: "wrong", colspan: 6 }, row.trouble)]
      : [h("td", { class: "method", title: row.mark }, row.called || "", note ? h("small", null, `${note}`) : null,
          row.lossless === false ? h("small", null, row.away || "text may differ") : null),
        h("td", { class: "model" }, row.model),
        h("td", { class: "bars" }, row.bars?.length ? bars(row.bars) : row.pending ? "reading…" : ""),
        h("td", { class: "steps n" }, row.steps === undefined ? "" : grouped(row.steps)),
        h("td", { class: "tau n" }, row.tau ? two(row.tau) : ""),
        h("td", { class: "rate n" }, row.rate ? grouped(row.rate) : "")];
    return h("tr", { "data-run": row.run, class: chosen.includes(row.run) ? "chosen" : null },
      h("td", { class: "star" }, starred), name, cells, h("td", { class: "size n" }, size(row.size)),
      h("td", { class: "at" }, when(row.at)),
      h("td", { class: "acts" }, h("span", null, row.trouble ? null : comparing, more)));
  }
  function card(row) {
    const words = [h("span", { class: "bars" }, row.bars?.length ? bars(row.bars) : ""), h("b", null, row.title),
      h("span", { class: "about" }, row.about),
      h("small", null, `${plural(row.steps ?? 0, "step")}, ${row.called || ""}`)];
    const props = { class: "card", "aria-label": `open the example ${row.title}` };
    const opening = button(words, () => show(row.run), props);
    const stops = example(row.run)?.tour?.length,
      leading = stops && button(`Guided tour, ${stops} stops`, () => (show(row.run), guide(row.run)));
    return h("li", { "data-run": row.run }, opening, h("span", { class: "ways" }, leading, choosing(row)));
  }
  let drawnExamples = "";
  function draw() {
    if (!held) return;
    tallest = Math.max(4, ...rows.flatMap((row) => row.bars || []));
    const list = matching(), own = rows.filter((row) => !row.example);
    const was = document.activeElement, at = body.contains(was) && was.closest("tr")?.dataset.run,
      part = at && was.closest("td, th")?.className.split(" ")[0];
    body.replaceChildren(...list.slice(0, DRAWN).map(line));
    if (at && part !== "name") focus(at, `.${part} :is(button, summary)`);
    else if (at) focus(at);
    const shown = rows.filter((row) => row.example), as = JSON.stringify([shown, chosen]);
    if (as !== drawnExamples) {
      const on = examples.contains(was)
        && `[data-run="${was.closest("li").dataset.run}"] .${was.matches(".compare") ? "compare" : "card"}`;
      drawnExamples = as;
      examples.replaceChildren(...shown.map(card));
      if (on) examples.querySelector(on)?.focus();
    }
    examples.parentElement.hidden = !shown.length;
    count.textContent = `${grouped(own.length)} on this machine, ${size(held.bytes)}; above ${size(held.most)} the `
      + "oldest without a star go";
    table.hidden = !list.length;
    none.textContent = !own.length ? "No run was recorded here yet: press Run in the Lab, or drop a trace here."
      : !list.length ? "No trace holds these words."
      : list.length > DRAWN
      ? `The newest ${DRAWN} of ${grouped(list.length)}: write more into the filter to find the others.` : "";
  }

  // ---- hands and keys

  filter.addEventListener("input", () => ((words = filter.value), draw()));
  file.addEventListener("change", () => (add([...file.files]), (file.value = "")));
  for (const kind of ["dragenter", "dragover"])
    document.addEventListener(kind, (event) => {
      if (current() !== "library" || ![...event.dataTransfer.types].includes("Files")) return;
      event.preventDefault();
      element.classList.add("over");
    });
  document.addEventListener("dragleave", (event) => event.relatedTarget === null && element.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    element.classList.remove("over");
    if (current() !== "library" || !event.dataTransfer.files.length) return;
    event.preventDefault();
    add([...event.dataTransfer.files]);
  });
  body.addEventListener("keydown", (event) => {
    const tr = event.target.closest("tr"), menu = event.target.closest("details");
    if (event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && menu?.open) (menu.open = false), menu.querySelector("summary").focus();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (menu?.open) return;
      const next = event.key === "ArrowDown" ? tr.nextElementSibling : tr.previousElementSibling,
        part = event.target.closest("td, th").className.split(" ")[0];
      if (next) focus(next.dataset.run, event.target.matches("summary") ? "summary" : `.${part} button`);
    } else if (event.key === "Delete") remove(find(tr.dataset.run));
    else if (event.key === "F2") (renaming = tr.dataset.run), draw(), body.querySelector("input")?.select();
    else return;
    event.preventDefault();
  });
  document.addEventListener("click",
    (event) =>
      element.querySelectorAll("details.more[open]").forEach((one) =>
        one.contains(event.target) || (one.open = false)
      ));
  new MutationObserver(() => current() === "library" && ((drawnExamples = ""), draw())).observe(document.body, {
    attributes: true,
    attributeFilter: ["class"],
  });
  return { shown: () => (live.look(), read()) };
}
