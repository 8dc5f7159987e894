/* link: reads and writes the address of the Compare page. */
import { fragment } from "../shared/address.js";
import { LETTERS } from "./letters.js";

const RUNS = /^[0-9a-f]{16}(,[0-9a-f]{16}){0,3}$/;
const MINE = /^(runs|at|align|base|repeat|prompts)=/;

/** The parts of the address that other pages keep there. */
const others = () => location.hash.slice(1).split("&").filter((part) => part.includes("=") && !MINE.test(part));

/** Write the place: {runs: ids, base, way, at: token or seconds or null, repeat, set: id or ""}; without runs only
 *  the set. */
export function write({ runs, base = 0, way = "token", at = null, repeat = "", set = "" }) {
  const clock = way === "clock";
  const mine = runs.length
    ? [`runs=${runs}`, ...(base ? [`base=${LETTERS[base]}`] : []),
      ...(repeat ? [`repeat=${repeat}`] : []), ...(clock ? ["align=clock"] : []),
      ...(at === null ? [] : [`at=${clock ? at.toFixed(4) : at}`])] : [];
  history.replaceState(null, "", fragment([...others(), ...mine, ...(set ? [`prompts=${set}`] : [])]));
}

/** Read the address: {runs: ids, null if it names none, base, way, at: a number or null, repeat, set: id or ""};
 *  runs is "" if they cannot be read. */
export function read() {
  const part = (name) => new RegExp(`(?:^#|&)${name}=([^&]*)`).exec(location.hash)?.[1], named = part("runs");
  const at = part("at"), base = LETTERS.indexOf(part("base") || "A");
  return { runs: named === undefined ? null : RUNS.test(named) ? [...new Set(named.split(","))] : "",
    base: Math.max(0, base), way: part("align") === "clock" ? "clock" : "token",
    at: at && Number(at) >= 0 ? Number(at) : null, repeat: part("repeat") || "", set: part("prompts") || "" };
}
