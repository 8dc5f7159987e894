/* step_address: the step and the node that are looked at, as the address names them. */
import { current, fragment } from "../shared/address.js";
import { stepLink } from "../runs/landing.js";

const SETTLE = 150; // ms without a move after which the address names the step

/** settle() names what is looked at, unname() takes it out again. */
export function stepAddress(shared) {
  let timer = 0, written = [];
  const parts = (without) =>
    location.hash.slice(1).split("&").filter((part) => part.includes("=") && !without.test(part));
  /** Name step and node in the address, when they have been looked at for a moment. */
  function settle() {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (current() !== "debugger" || !shared.pane?.id || shared.mine.at < 0) return;
      const place = stepLink().split("#")[1].split("&");
      written = place.filter((part) => /^(step|node)=/.test(part));
      history.replaceState(null, "", fragment([...place, ...parts(/^(run|with|step|node)=/)]));
    }, SETTLE);
  }
  /** Take them out again when another page or run is looked at: only what we put there. */
  function unname() {
    clearTimeout(timer);
    const all = location.hash.slice(1).split("&"),
      rest = all.filter((part) => part.includes("=") && !written.includes(part));
    if (written.length && written.every((part) => all.includes(part))) history.replaceState(null, "", fragment(rest));
    written = [];
  }
  return { settle, unname };
}
