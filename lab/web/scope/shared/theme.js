/* Theme: light or dark, as chosen, as the page or the notebook has it, or as the system has it. */

/** Keeps root.dataset.theme right; `changed` is called when it changed. set("auto" | "light" | "dark"), stop(). */
export function watchTheme(root, changed) {
  let scheme = "auto";
  const media = matchMedia("(prefers-color-scheme: dark)");
  function dye() {
    const jupyter = document.body.dataset.jpThemeLight, notebook = jupyter === "false";
    const host = jupyter ? notebook : !document.querySelector("gradio-app") && media.matches;
    const dark = scheme !== "auto" ? scheme === "dark" : document.body.classList.contains("dark") || host;
    if (root.dataset.theme === (dark ? "dark" : "light")) return;
    root.dataset.theme = dark ? "dark" : "light";
    changed();
  }
  const host = new MutationObserver(dye);
  host.observe(document.body, { attributes: true, attributeFilter: ["class", "data-jp-theme-light"] });
  media.addEventListener("change", dye);
  return {
    set: (name) => ((scheme = name), dye()),
    stop: () => (host.disconnect(), media.removeEventListener("change", dye)),
  };
}
