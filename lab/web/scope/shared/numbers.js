/* Numbers for people, with their units. */

export const formatFixed = (x) => (x >= 100 ? x.toFixed(0) : x.toFixed(2));
const groups = new Intl.NumberFormat("en");
export const formatCount = (x) => groups.format(Math.round(x));
export const percent = (x) => (100 * x).toFixed(0) + " %";
export const formatTime = (s) =>
  s >= 1 ? s.toFixed(1) + " s" : (s * 1000 >= 100 ? (s * 1000).toFixed(0) : (s * 1000).toFixed(1)) + " ms";
export const plural = (n, word) => `${formatCount(n)} ${word}${n === 1 ? "" : "s"}`;
/** @type {[number, string][]} */
export const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
export function formatShort(number) {
  for (const [limit, unit] of PREFIXES.slice(1))
    if (number >= limit) return (number / limit).toFixed(1) + " " + unit;
  return String(number);
}
export function size(count) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (count < 1024 || unit === "GiB")
      return (unit === "B" || count >= 100 ? count.toFixed(0) : count.toFixed(1)) + " " + unit;
    count /= 1024;
  }
}

/** A probability with three places, more where it is small. */
export const prob = (x) => (x === null || x === undefined ? "–"
  : x === 0 ? "0"
  : Math.abs(x) >= 0.0995 || x >= 0.001 ? x.toFixed(3) : Math.abs(x) >= 1e-6 ? x.toFixed(6) : x.toExponential(1));
/** Two numbers with as many digits as necessary to distinguish them. */
export function formatApart(a, b) {
  if (prob(a) !== prob(b) || a === b) return [prob(a), prob(b)];
  for (let digits = 4; digits < 17; digits++)
    if (a.toFixed(digits) !== b.toFixed(digits)) return [a.toFixed(digits), b.toFixed(digits)];
  return [String(a), String(b)];
}
/** The same in a table of many: values below a thousandth are shown as such. */
export const share = (x) => (x > 0 && x < 0.0005 ? "<0.001" : x < 0.0005 ? "0" : x.toFixed(3));
/** One number, or the least and the most of several. */
export const formatRange = (least, most) =>
  (least < most ? `${formatCount(least)} to ${formatCount(most)}` : formatCount(most));
/** Bytes of the entries that a lane's cache holds, counted as `full` counts those of all: only the target's
 *  evicts. kept: those bytes if entries are packed; kv: of a step's record; mean: entries on average, if layers or
 *  heads differ. */
export const keptBytes = ({ lane, full, held, mean = held, read, kept }) =>
  kept ?? (lane === "target" && mean < read ? Math.round((full * mean) / read) : full);
