/* step_address: the displayed step and node in the address. */
import { current, fragment } from "../shared/address.js";
import { stepLink } from "../runs/landing.js";

const SETTLE = 150; // ms without a move after which the address names the step

/** settle() writes them into the address, unname() removes them. */
export function stepAddress(shared) {
  let timer = 0, written = [];
  const parts = (without) =>
    location.hash.slice(1).split("&").filter((part) => part.includes("=") && !without.test(part));
  /** Write step and node into the address, when they have been shown for a moment. */
  function settle() {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (current() !== "debugger" || !shared.pane?.id || shared.mine.at < 0) return;
      const place = stepLink().split("#")[1].split("&");
      written = place.filter((part) => /^(step|node)=/.test(part));
      history.replaceState(null, "", fragment([...place, ...parts(/^(run|with|step|node)=/)]));
    }, SETTLE);
  }
  /** Remove them when another page or run is shown: only what was written here. */
  function unname() {
    clearTimeout(timer);
    const all = location.hash.slice(1).split("&"),
      rest = all.filter((part) => part.includes("=") && !written.includes(part));
    if (written.length && written.every((part) => all.includes(part))) history.replaceState(null, "", fragment(rest));
    written = [];
  }
  return { settle, unname };
}
