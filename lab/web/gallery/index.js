/* index: the search of a gallery. #find=words names the words to search for. */
const field = /** @type {HTMLInputElement} */ (document.getElementById("find"));
const none = document.getElementById("none");
/** @type {NodeListOf<HTMLElement>} */
const runList = document.querySelectorAll("[data-find]");
/** @type {NodeListOf<HTMLElement>} */
const families = document.querySelectorAll(".family");
const runs = [...runList];

/** Show the runs that contain every word, and put the words into the address. */
function look() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const run of runs) run.hidden = !words.every((word) => run.dataset.find.includes(word));
  for (const family of families) family.hidden = !family.querySelector("[data-find]:not([hidden])");
  const left = runs.filter((run) => !run.hidden).length;
  none.textContent = left ? `${left} of ${runs.length} runs` : "No run has all of these words.";
  const hash = words.length ? `#find=${encodeURIComponent(field.value.trim())}` : "";
  if (location.hash !== hash) history.replaceState(null, "", hash || location.pathname + location.search);
}
function read() {
  const asked = /^#find=([^&]*)$/.exec(location.hash)?.[1];
  try {
    field.value = decodeURIComponent(asked ?? "");
  } catch {
    field.value = ""; // a % that begins no character
  }
  look();
}
field.addEventListener("input", look);
addEventListener("hashchange", read);
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target === field || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  field.focus();
});
const moving = document.getElementById("moving");
moving.addEventListener("click", () => {
  const still = document.documentElement.classList.toggle("still");
  moving.setAttribute("aria-pressed", String(still));
});
read();
