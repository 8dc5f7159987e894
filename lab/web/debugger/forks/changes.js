/* changes: the differences between a fork and its run, in words. */

/** Settings as words: "rule typical, epsilon 0.09"; a file without its hash. */
export const settingsText = (x) => (x === null || x === undefined ? ""
  : typeof x === "object"
  ? (Array.isArray(x) ? x
    : Object.entries(x).map(([k, v]) =>
      (v && typeof v === "object" ? v : `${k.replaceAll("_", " ")} ${v}`))).map(settingsText)
    .filter(Boolean).join(", ") : String(x).replace(/@[0-9a-f]{16}$/, ""));
export const forcedText = (all) => all.map(({ node, verdict }) => `node ${node} ${verdict}ed by force`).join(", ");
