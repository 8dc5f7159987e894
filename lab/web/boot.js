/* boot: hands out the page's module. If a part of the page was lost, because the server was still starting or a
 * connection broke, it reloads the page as soon as the server answers. It is inlined in the page, so it cannot be
 * lost. */
(() => {
  // at most so many reloads in so many ms; ms between two questions
  const MOST = 5, SPAN = 60000, WAIT = 500, KEPT = "decodescope-again";
  const LOST = /dynamically imported module|module script|preload CSS/i;
  let coming = null, going = false;
  const whole = () => ["#ds-run", ".ds-button.stop", "#ds-view .ds"].every((part) => document.querySelector(part));
  /** When the page was recently reloaded; if nothing can be stored, it reloads only once. */
  const before = () => {
    try {
      return JSON.parse(sessionStorage.getItem(KEPT) || "[]").filter((time) => Date.now() - time < SPAN);
    } catch {
      const [visit] = /** @type {PerformanceNavigationTiming[]} */ (performance.getEntriesByType("navigation"));
      return visit?.type === "reload" ? Array(MOST).fill(0) : [];
    }
  };
  function tell(sentence) {
    const notice = Object.assign(document.createElement("p"), { className: "ds-refusal", textContent: sentence });
    notice.setAttribute("role", "alert");
    document.body.prepend(notice);
  }
  async function again() {
    if (going || whole()) return;
    going = true;
    const times = before();
    if (times.length >= MOST)
      return tell(
        `Parts of this page did not come, ${MOST} times in a minute: look at what the server has written, then load `
          + "the page again."
      );
    const starting = () =>
      fetch("ds/state", { cache: "no-store" }).then((answer) => answer.status === 503, () => true);
    while (await starting()) await new Promise((done) => setTimeout(done, WAIT));
    try {
      sessionStorage.setItem(KEPT, JSON.stringify([...times, Date.now()]));
    } catch {} // forbidden
    location.reload();
  }
  const part = (event) => event.target.matches?.("script[src], link[rel=stylesheet]") && again();
  window.addEventListener("error", part, true);
  // a sheet that loads again removes its earlier copies, which then only cost time
  document.addEventListener("load", ({ target }) => {
    const { href, sheet } = /** @type {HTMLLinkElement} */ (target);
    /** @type {NodeListOf<HTMLLinkElement>} */
    const links = document.querySelectorAll("link[rel=stylesheet]");
    const same = [...links].filter((link) => sheet && link.href === href);
    for (const link of same.slice(0, -1)) link.remove();
  }, true);
  window.addEventListener("vite:preloadError", again);
  window.addEventListener("unhandledrejection", (event) => LOST.test(event.reason?.message) && again());
  /** Call a function with the page's module, once it has loaded. */
  const decodescope = (act) =>
    (coming ??= import("./ds/web/page.js").catch(() => (again(), new Promise(() => {})))).then(act);
  Object.assign(window, { decodescope });
  decodescope((page) =>
    (document.body ? page.drawEarly() : document.addEventListener("DOMContentLoaded", page.drawEarly)));
})();
