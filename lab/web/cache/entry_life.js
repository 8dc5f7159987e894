/* entry_life: what became of the chosen position in every layer and head, step by step. */
import { h, plural, toggle } from "../scope.js";
import { grid, unpackBytes } from "./grids.js";
import { PLAIN } from "./map.js";
import { canvas, isAbsent, quiet, section, share, table, token } from "./parts.js";
import { question } from "./question.js";

const NAMED = 3; // heads, or positions of a head, that a sentence lists
const stepText = (step) => (step < 0 ? "while the prompt was read" : `in step ${step}`);

export function lifeView(shared) {
  const title = h("h2"), said = h("p"), picture = canvas("img", "the life of an entry"), note = quiet(),
    twin = h("div", { hidden: "" }), box = h("div", { class: "picture" }, picture);
  const asTable = toggle("Show as table", (on) => ((twin.hidden = !on), (box.hidden = on), draw()));
  const hint = h("p", { class: "quiet" },
    "Choose a position: click one in the map or above, or walk there with the arrow keys.");
  const element = section("life", [title, h("span", { class: "row end" }, asTable)], hint, said, box, twin, note);
  let life = null;

  const asked = question(
    () => {
      const { position } = shared.at;
      return shared.known() && position !== null && position < shared.map.length
        ? shared.query("/life", { step: shared.now(), position }) : null;
    },
    (answer) => ((life = answer), draw())
  );
  function draw() {
    const some = !!life && !!shared.map && shared.at.position !== null;
    hint.hidden = some;
    for (const part of [said, note, asTable]) part.hidden = !some;
    box.hidden = !some || !twin.hidden;
    title.replaceChildren("The life of an entry");
    if (!some) return;
    title.replaceChildren(`Position ${life.position} `, token(life.text));
    said.textContent = [sentence(life, shared.map), ...fates(life, shared.rowName)].join(" ");
    const { steps } = life, masses = life.mass?.map(unpackBytes), every = steps.length > 1 ? steps[1] - steps[0] : 1;
    note.textContent = [
      `One row per layer and head, one column per ${every > 1 ? `${every} steps` : "step"} from `
      + `${life.came < 0 ? "the first" : "its own"} to step ${life.step}.`,
      masses ? "Stronger: more attention drawn by then, against the largest of its layer."
        : "How much attention it drew is not recorded.",
    ].join(" ");
    if (!box.hidden && shared.wide()) paint(masses);
    if (!twin.hidden) list(masses);
  }
  function paint(masses) {
    const { steps } = life, { heads } = shared.map, all = life.rows.length;
    grid(picture, shared.colours(), {
      wide: shared.wide(),
      rows: all,
      columns: steps.length,
      group: heads,
      most: 22,
      tall: all > 64 ? 4 : all > 32 ? 6 : 10,
      cell: (row, c) => {
        const [left, letter] = life.rows[row], mass = masses?.[c][row] ?? 0;
        const held = (left === null || left > steps[c]) && !isAbsent(letter) && !(life.late?.[row] > steps[c]);
        return [held ? 1 : 0, masses ? Math.max(0, mass - 1) / 254 : PLAIN,
          left !== null && left <= steps[c] && (c === 0 || left > steps[c - 1])];
      },
      label: (row) => (row % heads ? "" : `L${row / heads}`),
    });
    picture.setAttribute("aria-label", `${title.textContent}. ${said.textContent}`);
  }
  function list(masses) {
    const drew = (row, left) => {
      if (!masses) return "–";
      const k = left === null ? masses.length - 1 : life.steps.findLastIndex((x) => x < left),
        mass = k >= 0 ? masses[k][row] : 0;
      return mass ? share(((mass - 1) / 254) ** 2) : "–";
    };
    twin.replaceChildren(table(`Position ${life.position}, head by head`,
      ["layer, head", "kept until", "why", "attention drawn, of its layer's largest"],
      life.rows.map(([left, letter], row) => [shared.rowName(row),
        isAbsent(letter) ? "–" : left === null ? "now" : stepText(left),
        `${letter}, ${shared.map.words[letter]}${mergeText(life, row)}${rowScore(life, row)}`, drew(row, left)])));
  }
  return {
    element,
    question: asked,
    draw,
    reset: () => ((life = null), draw()),
    reveal: () =>
      (picture.scrollIntoView({ block: "nearest" }), (box.hidden ? twin.firstChild : picture)?.focus()),
  };
}

const scoreText = (x) => (x === 0 ? "0" : Number(x.toPrecision(3)).toString());

/** The score of an entry when it was cut, and the lowest score that stayed. */
const cutAt = ([, score, cut]) =>
  `${scoreText(score)}, ${cut === null ? "nothing stayed for its score" : `the lowest that stayed ${scoreText(cut)}`}`;

/** The entry that a row's entry was merged into, after the words that say so. */
function mergeText({ into }, row) {
  const merge = into.find((x) => x[0] === row);
  return merge ? `: of position ${merge[1]}, similarity ${merge[2].toFixed(2)}, weight ${merge[3].toFixed(2)}` : "";
}

/** The score of a row in the table. */
function rowScore({ scores }, row) {
  const known = scores.find((x) => x[0] === row);
  return known ? `: score ${cutAt(known)}` : "";
}

/** Other changes of the entry: scored, merged, grown by others, packed; a sentence each. */
function fates({ scores, into, took, packed }, rowName) {
  const some = (list, name) => list.slice(0, NAMED).map(name).join("; ")
    + (list.length > NAMED ? `; and ${list.length - NAMED} more` : "");
  const off = (x) => Number(x.toPrecision(2));
  return [
    scores.length ? `Its score when it left: ${some(scores, (x) => `${rowName(x[0])}, ${cutAt(x)}`)}.` : "",
    into.length ? `Merged in ${plural(into.length, "head")}: `
      + `${some(into, (x) => `${rowName(x[0])}, of position ${x[1]} (similarity ${x[2].toFixed(2)}, `
        + `weight ${x[3].toFixed(2)})`)}.` : "",
    took.length ? `Others became part of it in ${plural(took.length, "head")}: `
      + `${some(took, ([row, from]) => `${rowName(row)}, ${from.length > 1 ? "positions" : "position"} `
        + `${from.slice(0, NAMED).join(", ")}${from.length > NAMED ? ` and ${from.length - NAMED} more` : ""}`)}.` : "",
    packed ? `It was packed ${stepText(packed[0])}`
      + `${packed[1] ? `, in ${Number(packed[1].toFixed(2))} bits a number` : ""}: `
      + `keys of its block are off by at most ${off(packed[2])}, values by ${off(packed[3])}.` : "",
  ].filter(Boolean);
}

/** When the entry came, how many heads keep it, and when and why the others lost it. */
function sentence({ rows, came, step }, { words }) {
  const absent = rows.filter(([, letter]) => letter === "A").length,
    all = rows.filter(([, letter]) => !isAbsent(letter)).length, gone = rows.filter(([left]) => left !== null);
  const first = Math.min(...gone.map(([left]) => left)), last = Math.max(...gone.map(([left]) => left));
  const reasons = [...new Set(gone.map(([, letter]) => letter))].map((letter) => words[letter]).join("; ");
  const begin = `It came ${came < 0 ? "with the prompt" : stepText(came)}. `
    + (absent ? `${plural(absent, "head")} ${absent === 1 ? "has" : "have"} no entry of it: the layer computed none. `
      : "");
  if (!all) return begin.trim();
  if (!gone.length) return `${begin}All ${all} heads keep it after step ${step}.`;
  if (gone.length === all)
    return `${begin}All ${all} heads have lost it, `
      + `${first === last ? stepText(first) : `the first ${stepText(first)}, the last ${stepText(last)}`}: ${reasons}.`;
  return `${begin}${all - gone.length} of ${all} heads keep it; the first lost it `
    + `${stepText(first)}${last === first ? "" : `, the last ${stepText(last)}`}: ${reasons}.`;
}
