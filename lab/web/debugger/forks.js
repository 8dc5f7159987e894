/* forks: runs that go on from a step of the run that is shown, with something of it changed. */
import { button, h } from "../scope.js";
import { ask, open, inWords } from "../runs.js";
import { current } from "../address.js";

const AGAIN = 1200; // ms between two looks at forks that are going
const LONGEST = 80; // characters of a name

/** Settings as words: "rule typical, epsilon 0.09". */
const words = (x) => (x === null || x === undefined ? ""
  : typeof x === "object"
  ? (Array.isArray(x) ? x
    : Object.entries(x).map(([k, v]) => (v && typeof v === "object" ? v : `${k.replaceAll("_", " ")} ${v}`))).map(words)
    .filter(Boolean).join(", ") : String(x));
const forcedIn = (all) => all.map(({ node, verdict }) => `node ${node} ${verdict}ed by force`).join(", ");
const called = (one) => one.name || `run ${one.run.slice(0, 8)}`;

const compare = (...runs) => (location.hash = "#compare&runs=" + runs.join(","));

/** What a number input or a list says; null: nothing. */
export const set = (box) => (box.type !== "number" ? box.value : box.value === "" ? null : Number(box.value));

/** The form that forks the run, and the list of its forks. change(): what the fork does otherwise, as settings */
export function forks(change) {
  let here = {}, forced = new Map(), family = null, timer = 0, run = null, headed = null;
  const name = h("input", { type: "text", maxlength: LONGEST, placeholder: "name of the fork",
    "aria-label": "name of the fork", autocomplete: "off", spellcheck: "false" });
  const go = h("button", { type: "submit", class: "ds-button" }),
    refused = h("p", { class: "ds-refusal", role: "alert", hidden: "" });
  const force = (word, kind) => {
    const act = () => {
      if (forced.get(here.node) === kind) forced.delete(here.node);
      else forced.set(here.node, kind);
      draw();
    };
    return [button(word, act, { "aria-pressed": "false" }), kind];
  };
  const forces = [force("Force accept", "accept"), force("Force reject", "reject")];
  const forcing = h("div", { class: "forces", role: "group", "aria-label": "the verdict in the fork" },
    forces.map(([one]) => one));
  const inside = h("p", { class: "quiet" }), shape = h("div", { class: "knobs" }),
    shaped = h("details", { class: "shape" }, h("summary", null, "Another depth, tree or draft"), shape);
  const form = h("form", { class: "fork" }, forcing, shaped, inside, h("div", { class: "name" }, name, go), refused);
  const origin = h("p", { class: "origin" }), list = h("ul", { class: "list", "aria-label": "forks of this run" });
  const element = h("section", { class: "forks", "aria-label": "Forks" },
    h("header", null, h("h2", null, "Fork"),
      h("span", { class: "quiet" }, "decodes on from this step, as a run of its own; this run stays as it is")), form,
    origin, list);

  const entries = () => [...forced].map(([node, verdict]) => ({ node, verdict }));
  /** What the drafter's own numbers were changed to. */
  function drafter() {
    const own = here.store?.head?.method?.drafter || {};
    return Object.fromEntries(
      [...shape.querySelectorAll("[data-name]")].map((box) => [box.dataset.name, set(box)]).filter(([word, x]) =>
        x !== null && x !== own[word]
      )
    );
  }
  function changes() {
    const other = drafter();
    return { ...change(), ...(Object.keys(other).length ? { drafter: other } : {}) };
  }
  function shapes() {
    const numbers = Object.entries(here.store?.head?.method?.drafter || {}).filter(([, x]) => typeof x === "number");
    shaped.hidden = !numbers.length;
    shape.replaceChildren(...numbers.map(([word, x]) => {
      const box = h("input", { type: "number", min: 0, step: "any", value: x, "data-name": word });
      box.addEventListener("input", draw);
      return h("label", null, h("span", null, word.replaceAll("_", " ")), box);
    }));
  }
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (go.getAttribute("aria-disabled") === "true") return;
    go.setAttribute("aria-disabled", "true");
    refused.hidden = true;
    const { pane, at } = here, change = changes(), body = { step: at, force: entries() };
    if (name.value.trim()) body.name = name.value.trim();
    if (Object.keys(change).length) body.change = change;
    try {
      const fork = await ask(`/ds/run/${pane.id}/fork`, { method: "POST", body: JSON.stringify(body) });
      name.value = "";
      forced.clear();
      compare(pane.id, fork.run);
    } catch (error) {
      refused.textContent = inWords(error);
      refused.hidden = false;
    }
    go.removeAttribute("aria-disabled");
    look();
  });
  /** Ask which forks the run has; again, as long as one of them is going. */
  async function look() {
    const id = here.pane?.id;
    clearTimeout(timer);
    if (!id || current() !== "debugger") return;
    try {
      const got = await ask(`/ds/run/${id}/branches`);
      if (id !== here.pane?.id) return;
      family = got;
      if (got.branches.some((one) => ["queued", "running"].includes(one.status))) timer = setTimeout(look, AGAIN);
    } catch {
      family = null; // it is asked again with the next run, or when the page is looked at again
    }
    listed();
  }
  let drawnAs = "";
  function listed() {
    const { of: parent = null, branches = [] } = family || {}, as = JSON.stringify([parent, branches]);
    if (as === drawnAs) return;
    drawnAs = as;
    const ways = (one, ...runs) => [
      button("Open", () => (open(one.run), element.closest(".ds").focus({ preventScroll: true })),
        { "aria-label": `open ${called(one)}` }),
      button("Compare", () => compare(...runs), { "aria-label": `compare with ${called(one)}` }),
    ];
    origin.replaceChildren(
      ...(parent
        ? [h("span", null, `This run is a fork of ${called(parent)}, from its step ${parent.step}.`),
          ...ways(parent, parent.run, here.pane.id)] : [])
    );
    list.replaceChildren(
      ...branches.map((one) =>
        h("li", null,
          h("div", null, h("b", null, called(one)),
            h("span", { class: "quiet" },
              [`step ${one.step}`, words(one.change), forcedIn(one.forced || []), one.status].filter(Boolean).join(
                ", "
              ))), ways(one, here.pane.id, one.run))
      )
    );
  }
  function draw() {
    const { pane, step, node, at } = here,
      drafted = step?.verdict && node > 0 && !(step.verdict.extra && node === step.nodes.length - 1);
    element.hidden = !pane?.id || !step;
    form.hidden = !step?.nodes;
    forcing.hidden = !drafted;
    for (const [one, kind] of forces) one.setAttribute("aria-pressed", forced.get(node) === kind);
    go.textContent = `Fork from step ${at}`;
    const said = [forcedIn(entries()), words(changes())].filter(Boolean).join("; ");
    inside.textContent = said ? `In the fork: ${said}.`
      : "Nothing is changed yet: the fork would go on as the run did.";
  }
  return {
    element,
    draw(now) {
      const { pane, at } = here, { head } = now.store;
      here = now;
      if (pane !== now.pane || at !== now.at) forced.clear(), (refused.hidden = true);
      if (headed !== head) (headed = head), shapes();
      if (run !== now.pane?.id) (run = now.pane?.id), (family = null), listed(), look();
      draw();
    },
    look,
    /** Name the fork after what it changes, ready to be made. */
    fill: () => ((name.value = words(changes()).slice(0, LONGEST)), go.focus()),
  };
}
