/* Alignment: several runs at one place: by the token that a step wrote, or by the clock. No elements. */
import { formatCount, plural } from "../shared/numbers.js";
import { visibleText } from "../shared/tokens.js";

/** Per step: tokens written by its end, and its start and end in seconds of decoding, without pauses and prefill.
 *  A step that has not come takes no time. made: of fewer steps, none missing. */
export function course(store, begun = []) {
  let { tokens, end } = begun.at(-1) || { tokens: 0, end: 0 };
  for (let k = begun.length; k < store.count; k++) {
    const step = store.steps[k], start = !step || store.steps[k - 1] || k === 0 ? end : step.sum.decode - step.dt.all;
    if (step) ({ tokens, decode: end } = step.sum);
    begun.push({ tokens, start, end });
  }
  return begun;
}

/** The step that wrote token n, counted from 1; the last one if it has not come, -1 without steps. */
export function byToken(steps, n) {
  return first(steps, (x) => x.tokens >= n);
}

/** The first step for which `reached` is true, as it is then for all after it; the last one if it is true for
 *  none. */
function first(steps, reached) {
  let low = 0, high = steps.length - 1;
  while (low < high) {
    const k = (low + high) >> 1;
    if (reached(steps[k])) high = k;
    else low = k + 1;
  }
  return high;
}

/** The step in progress at a time, in seconds; the last one after its end, -1 without steps. */
export function byClock(steps, seconds) {
  return first(steps, (x) => x.end > seconds);
}

/** Reads the tokens of a run one after another, as far as they have come. */
function reader(store) {
  let k = 0, n = 0;
  return {
    /** The next token; undefined: none yet. */
    peek() {
      for (; k < store.count && store.steps[k]; k++, n = 0)
        if (n < store.steps[k].made.length) return store.steps[k].made[n];
    },
    next: () => n++,
    over: () => !!store.end && k >= store.count,
  };
}

/** Compares two texts as they come. Returns {at, a, b} where they part, `at` counted from 0, a text that ended as
 *  null; {at: n, same: true} if all n tokens that both have are equal. Compared tokens are not read again. */
export function divergenceOf(a, b) {
  const [one, other] = [reader(a), reader(b)];
  let at = 0, split = null;
  return () => {
    if (split) return split;
    for (;;) {
      const x = one.peek(), y = other.peek();
      if (x && y && x[0] === y[0]) at++, one.next(), other.next();
      else if ((x && y) || (x && other.over()) || (y && one.over()))
        return (split = { at, a: x?.[1] ?? null, b: y?.[1] ?? null });
      else return { at, same: true };
    }
  };
}

const shownName = (word) => String(word).replaceAll("_", " ");
/** The settings of a run: name -> value, in words. */
function settings(head) {
  const words = new Map(), model = (m) => `${m.name} (${String(m.fingerprint ?? "?").slice(0, 8)})`;
  words.set("model", model(head.model));
  for (const [role, spec] of Object.entries(head.lanes || {})) words.set(`${role} model`, model(spec));
  for (const [kind, part] of Object.entries(head.method)) {
    const stages = part.stages || [part];
    words.set(kind, stages.map((stage) => shownName(stage.name)).join(" → "));
    for (const stage of stages)
      for (const [k, v] of Object.entries(stage))
        if (k !== "name" && k !== "stages")
          words.set(`${shownName(stage.name)}: ${shownName(k)}`, String(v));
  }
  words.set("prompt",
    `${formatCount(head.prompt_tokens)} tokens: … `
      + head.prompt.slice(-6).map(([, text]) => visibleText(text)).join(""));
  words.set("seed", String(head.seed));
  words.set("new tokens at most", String(head.max_new));
  if (head.levels) words.set("recorded", head.levels.at(-1));
  words.set("fork", head.fork ? `of run ${String(head.fork.of).slice(0, 8)} from step `
    + `${head.fork.step}${head.fork.name ? `: ${head.fork.name}` : ""}` : "none");
  if (head.device) words.set("type and device", `${head.dtype} on ${head.device}, ${plural(head.threads, "thread")}`);
  return words;
}

/** The settings in which runs differ. rows: [[what, in A, in B, ...]] of settings that at least two runs have and
 *  that differ; apart: [[what, in A, in B, ...]] of settings that only some runs have and the others lack. A run
 *  without a setting: undefined. */
export function differingSettings(...heads) {
  const all = heads.map(settings), names = [...new Set(all.flatMap((x) => [...x.keys()]))], [a] = heads;
  const known = names.map((name) => [name, ...all.map((x) => x.get(name))]),
    has = ([, ...values]) => values.filter((x) => x !== undefined);
  const rows = known.filter((row) => new Set(has(row)).size > 1),
    apart = known.filter((row) => new Set(has(row)).size === 1 && has(row).length < heads.length);
  const other = heads.map((b) =>
    a.prompt_tokens !== b.prompt_tokens || a.prompt.some(([id], k) => id !== b.prompt[k]?.[0])
  );
  if (other.includes(true) && !rows.some(([name]) => name === "prompt"))
    rows.push(["prompt", ...all.map((x, k) => (other[k] ? "differs before its end" : x.get("prompt")))]);
  return { rows, apart };
}
