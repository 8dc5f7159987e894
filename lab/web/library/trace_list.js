/* trace_list: the traces of this machine and the examples, as the server lists them, and the requests to change
 * one. */
import { ask, runTitle } from "../runs/runs.js";
import { current } from "../shared/address.js";

const AGAIN = 400; // ms until rows without figures are requested again

/** The name of a run in the list; nothing for a run that is not in it. */
export const listedTitle = (row) => row && runTitle(row);

/** The text that the filter searches. */
const searchText = (row) =>
  [listedTitle(row), row.run, row.text, row.called, JSON.stringify(row.method || {}), row.model, row.end].join("\n")
    .toLowerCase();
const post = (path, value) =>
  ask("ds/library" + path, { method: "POST", body: value === undefined ? "" : JSON.stringify({ value }) });

/** changed(): the list was read; refuse(error). */
export function createTraceList({ changed, refuse }) {
  let list = null, turn = 0;
  const rows = () => list?.rows || [];

  async function read() {
    const mine = ++turn;
    try {
      const answer = await ask("ds/library");
      if (mine !== turn) return;
      list = answer;
      changed();
      if (answer.more && current() === "library") setTimeout(() => mine === turn && read(), AGAIN);
    } catch (error) {
      if (mine === turn) refuse(error);
    }
  }
  return {
    read,
    /** The server's last answer: rows, bytes that they take and may take at most; null: nothing yet. */
    list: () => list,
    find: (run) => rows().find((row) => row.run === run),
    /** The traces, without the examples, that hold all words of a text. */
    matching(text) {
      const parts = text.toLowerCase().split(/\s+/).filter(Boolean);
      return rows().filter((row) => !row.example && parts.every((part) => searchText(row).includes(part)));
    },
    /** Change a trace, then read the list again; the focus goes back to its place in the table, or to `after`. */
    async act(run, what, value, after) {
      try {
        await post(`/${run}/${what}`, value);
        await read();
        after?.();
      } catch (error) {
        refuse(error);
      }
    },
  };
}
