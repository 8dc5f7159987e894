/* theme: light or dark before anything is drawn, as chosen here, or as the system has it. It is loaded on its own,
 * in the head of every page of a gallery. */
const THEME = "decodescope-theme", system = matchMedia("(prefers-color-scheme: dark)");
const readStored = () => {
  try {
    return localStorage.getItem(THEME);
  } catch {
    return null; // forbidden
  }
};
const paint = () =>
  document.documentElement.classList.toggle("dark", readStored() ? readStored() === "dark" : system.matches);

paint();
system.addEventListener("change", paint);
addEventListener("DOMContentLoaded", () =>
  document.getElementById("theme").addEventListener("click", () => {
    const dark = document.documentElement.classList.toggle("dark");
    try {
      localStorage.setItem(THEME, dark ? "dark" : "light");
    } catch {} // full, or forbidden: then it is not kept
  }));
