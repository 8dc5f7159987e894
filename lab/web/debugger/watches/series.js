/* series: the values of the watches in all steps of the displayed run, from the server. */
import { ask, isOver } from "../../runs/runs.js";

const AGAIN = 1000; // ms between two questions about a live run

/** The values of a watch in steps 0 to `count`, in as many answers as necessary. */
async function all(run, text, count) {
  const values = [];
  for (let from = 0; from < count;) {
    const got = await ask(`ds/run/${run}/watch?expression=${encodeURIComponent(text)}&from=${from}&to=${count}`);
    values.push(...got.values);
    const next = got.next ?? (got.values.length ? got.values.at(-1)[0] + 1 : count);
    if (next <= from) break;
    from = next;
  }
  return values;
}

/** wanted(): {pane, list}, the run and its watches; answered(): called when values have come. */
export function series(wanted, answered) {
  const answers = new Map(); // expression -> {as, values, trouble}
  let timer = 0;
  /** The run, its number of steps, and the watches without values for them. */
  function due() {
    const { pane, list } = wanted(), count = pane?.view.store.count, as = `${pane?.id} ${count}`;
    const open = pane?.id && count ? (list || []).filter((text) => answers.get(text)?.as !== as) : [];
    return { pane, count, as, open };
  }
  /** Request the values of every watch in the displayed run; in a live run from time to time. */
  function read() {
    const { pane, open } = due();
    if (timer || !open.length) return;
    const again = !isOver(pane) && open.every((text) => answers.has(text));
    timer = setTimeout(() => ((timer = 0), fetchAll()), again ? AGAIN : 0);
  }
  function fetchAll() {
    const { pane, count, as, open } = due();
    for (const text of open) {
      const mine = { values: answers.get(text)?.values || [], trouble: "", as };
      answers.set(text, mine);
      all(pane.id, text, count).then((values) => (mine.values = values), (error) =>
        Object.assign(mine, { values: [], trouble: error.message })).then(answered);
    }
  }
  return {
    read,
    /** {values: [[step, value], ...], trouble} of an expression, as far as it is known. */
    of: (text) => answers.get(text) || { values: [], trouble: "" },
    clear: () => answers.clear(),
  };
}
