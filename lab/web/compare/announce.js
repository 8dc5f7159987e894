/* announce: says the position of all panes to screen readers, not more than once a second. */
import { formatCount, h, formatTime } from "../scope.js";
import { LETTERS } from "./letters.js";

const PAUSE = 1000; // ms between two sentences

/** now: what is compared. */
export function announce(now) {
  const element = h("p", { class: "unseen", "aria-live": "polite" });
  let spoken = 0;
  function speak() {
    const time = performance.now();
    if (time - spoken < PAUSE) return;
    spoken = time;
    const { token, seconds, steps } = now.both.at;
    element.textContent = `${now.way === "token" ? `token ${formatCount(token)}` : formatTime(seconds)}: `
      + `${steps.map((i, k) => `${LETTERS[k]} ${i < 0 ? "no step" : `step ${i}`}`).join(", ")}`;
  }
  return { element, speak };
}
