/* paint: computed styles as attributes of SVG: colours, lengths, fonts, and text that is valid in XML. */
const TYPE = ["font-family", "font-size", "font-weight", "font-style", "letter-spacing"];

/** One pixel for painting colours, and for measuring fonts. */
export const spot = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const known = new Map();
/** A computed colour, also a mixed one, as {hex, alpha}. */
export function colour(text) {
  if (!known.has(text)) {
    spot.clearRect(0, 0, 1, 1);
    spot.fillStyle = "#000";
    spot.fillStyle = text;
    spot.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = spot.getImageData(0, 0, 1, 1).data;
    known.set(text, { hex: "#" + [r, g, b].map((x) => x.toString(16).padStart(2, "0")).join(""), alpha: a / 255 });
  }
  return known.get(text);
}
/** A colour as attributes of a shape. */
export const colourProps = (name, text) => {
  if (text === "none") return { [name]: "none" };
  const { hex, alpha } = colour(text);
  return { [name]: hex, ...(alpha < 1 ? { [name + "-opacity"]: +alpha.toFixed(3) } : {}) };
};
const ODD = /[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]/g;
const HALF = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g; // of a pair
/** Text that is valid in XML: invalid characters are replaced by their signs. */
export const clean = (text) => text.replace(ODD, "\ufffd").replace(HALF, "\ufffd");
export const round = (x) => +x.toFixed(2);

/** Split at commas outside of brackets. */
export function split(text) {
  const parts = [""];
  let deep = 0;
  for (const char of text) {
    deep += char === "(" ? 1 : char === ")" ? -1 : 0;
    if (char === "," && !deep) parts.push("");
    else parts[parts.length - 1] += char;
  }
  return parts.map((part) => part.trim());
}
/** A computed length: px, a share of `whole`, or their sum. */
export function length(text, whole) {
  const share = /(-?[\d.]+)%/.exec(text), px = /([+-]\s*)?(-?[\d.]+)px/.exec(text);
  return (share ? (Number(share[1]) / 100) * whole : 0)
    + (px ? Number(px[2]) * ((px[1] || "").trim() === "-" ? -1 : 1) : 0);
}
/** The font of a text, as attributes. */
export const type = (style) =>
  Object.fromEntries(
    TYPE.map((name) => [name, style.getPropertyValue(name)]).filter(([, value]) => value && value !== "normal")
  );
/** Keep the white space of a text. */
export const keep = (text) => text.setAttributeNS("http://www.w3.org/XML/1998/namespace", "xml:space", "preserve");
