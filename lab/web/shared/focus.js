/* focus: if the focused element goes away, because it was pressed, deleted or closed, a neighbour gets the focus.
 * So a keyboard user never starts at the page's beginning again. */

const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";
const LEVELS = 8; // levels of elements around the focus that are searched for a neighbour

const there = (element) => element.isConnected && element.checkVisibility({ visibilityProperty: true });
const open = (element) => there(element) && !element.disabled && element.getAttribute("aria-disabled") !== "true";
const within = (element) => [...element.querySelectorAll(FOCUSABLE)].filter(open);

/** Keep the focus on this page from now on. */
export function keepFocus() {
  let last = null, around = [], waiting = false;
  function remember({ target }) {
    last = target;
    around = [];
    for (let at = target.parentElement; at && at !== document.body && around.length < LEVELS; at = at.parentElement)
      around.push({ element: at, place: within(at).indexOf(target) });
  }
  function mend() {
    waiting = false;
    const here = document.activeElement;
    if (!last || (here && here !== document.body) || (there(last) && !last.disabled)) return;
    for (const { element, place } of around) {
      if (!there(element)) continue;
      const neighbours = within(element), next = neighbours[Math.min(Math.max(0, place), neighbours.length - 1)];
      if (next) return next.focus({ preventScroll: true });
    }
  }
  const soon = () => (waiting ||= !!setTimeout(mend)); // the code that removed it may first move the focus
  document.addEventListener("focusin", remember);
  document.addEventListener("focusout", soon); // also of what is hidden; what is removed says nothing
  new MutationObserver(() => last && !last.isConnected && soon()).observe(document.body, { childList: true,
    subtree: true });
  // a press on the empty page means to leave
  document.addEventListener("pointerdown", ({ target }) => last && !last.contains(target) && (last = null), true);
}
