/* save: a menu of downloads from a page: its views as SVG and PNG, a run in other forms, and further offers. */
import { button, h } from "../scope.js";

/** Hand a file to the browser. */
function download(blob, name) {
  const url = URL.createObjectURL(blob), link = h("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
const fileName = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");

const PARTS = [[".stations", "Method"], [".tree-pane", "Draft tree"], [".decision", "Decision"], [".text-pane", "Text"],
  [".cache-pane", "KV cache"], [".time-pane, .clocks", "Time"], [".roof-pane", "Roofline"]];
/** The views of a picture's `root`, for the menu. letter: of its run, if several are side by side; of: what it is,
 *  in words. */
export function viewsOf(root, of, letter = "") {
  const own = (part) => [...root.querySelectorAll(part)].find((one) => one.closest(".ds") === root),
    after = letter && " " + letter;
  return PARTS.map(([part, word]) => [word + after, own(part), `${word}${after} ${of}`]);
}

/** The download formats of a run, for the menu. over: whether it has ended. */
export function forms(run, over) {
  const row = (word, ...ways) => h("div", { class: "row" }, h("span", null, word), ways);
  const file = (word, path, cls) => h("a", { class: cls, href: `ds/run/${run}/${path}`, download: "" }, word);
  if (!over) return [row("The run itself can be saved when it has ended.")];
  return [row("Run", file("HTML", "export.html", "html"), file("trace", "trace", "trace")),
    row("Decisions", file("CSV", "decisions.csv", "csv")),
    row("Timing", file("Perfetto", "perfetto.json", "perfetto"))];
}

/** A button that copies text(); if that is forbidden, the selected text is shown after it. */
export function copyButton(word, text, cls = "") {
  const box = h("textarea", { readonly: "", rows: 2, "aria-label": word, spellcheck: "false" });
  const one = button(word, () => {
    const show = () => ((box.value = text()), one.after(box), box.select());
    if (!navigator.clipboard) return show();
    navigator.clipboard.writeText(text()).then(() => (one.textContent = "Copied"), show);
  }, { class: cls });
  return one;
}

/** The menu. views(): [[word, element, what it is in words], ...] at present; more(): further rows (elements),
 *  below. word: the menu's label. */
export function saveMenu(views, more = () => [], word = "Save view") {
  const body = h("div", { class: "rows" }), notice = h("p", { class: "told", role: "status" });
  const menu = h("details", { class: "ds-save" }, h("summary", null, word), h("div", { class: "sheet" }, body, notice));
  const way = (kind, name, element, title) =>
    button(kind, async () => {
      notice.textContent = "";
      try {
        const { picture, png, svgText } = await import("./picture.js");
        const svg = picture(element, title), file = `decodescope-${fileName(title)}.${kind.toLowerCase()}`;
        download(kind === "SVG" ? new Blob([svgText(svg)], { type: "image/svg+xml" }) : await png(svg), file);
      } catch (error) {
        notice.textContent = `This view could not be saved: ${error.message || "the browser could not draw it"}`;
      }
    }, { class: null, "aria-label": `save ${name} as ${kind}` });
  const away = (event) => menu.contains(event.target) || (menu.open = false);
  menu.addEventListener("toggle", () => {
    notice.textContent = "";
    document.removeEventListener("click", away);
    if (!menu.open) return;
    document.addEventListener("click", away);
    const rows = views().filter(([, element]) => element && element.getClientRects().length);
    body.replaceChildren(
      ...rows.map(([name, element, title]) =>
        h("div", { class: "row" }, h("span", null, name), way("SVG", name, element, title),
          way("PNG", name, element, title))
      ),
      ...more()
    );
    const sheet = menu.lastElementChild, over = sheet.getBoundingClientRect();
    sheet.style.translate = "";
    const out = Math.min(0, document.documentElement.clientWidth - 8 - sheet.getBoundingClientRect().right)
      || Math.max(0, 8 - over.left);
    if (out) sheet.style.translate = `${out}px 0`;
  });
  menu.addEventListener("keydown", (event) => {
    const all = [...menu.querySelectorAll("summary, button, a")], i = all.indexOf(document.activeElement),
      to = { ArrowDown: i + 1, ArrowUp: i - 1 }[event.key];
    if (event.key === "Escape" && menu.open) (menu.open = false), menu.firstElementChild.focus();
    else if (menu.open && to !== undefined && all[to]) all[to].focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  menu.addEventListener("focusout",
    (event) => event.relatedTarget && !menu.contains(event.relatedTarget) && (menu.open = false));
  return menu;
}
