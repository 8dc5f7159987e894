/* hub: the tabs that follow runs, and their one connection. A SharedWorker has it for all tabs of a browser
 * (worker.js); a tab without such workers has one of its own (own_stream.js). */
import { createConnection } from "./connection.js";

export const BEAT = 5000; // ms between two signs of life of a tab
const SILENT = 30; // beats without a sign after which a tab is forgotten; hidden tabs may send one a minute
const AHEAD = 1 << 23; // characters that a tab may leave unread before its runs leave the stream for a while

/** root: address of the server's routes
 *  @param {string | URL} root */
export function createHub(root) {
  const tabs = new Set(); // those that are connected
  const follows = new Map(); // name in the stream -> { tab, key, run, after, brief, headed, name }
  let names = 0, notice = () => {};
  const { allow, close, open, retry, update } = createConnection(new URL("events", root).href, { follows, pass,
    lost: ({ tab, key }, why, tries) => tab.send({ key, kind: "lost", text: JSON.stringify({ why, tries }) }) });

  function pass(one, kind, text, number) {
    const { tab, key } = one;
    if (kind === "head" && one.headed) return;
    if (kind === "head") one.headed = true;
    if (kind === "step") one.after = number;
    if (kind === "end" || kind === "gone") remove(one);
    tab.unread += text.length;
    tab.send({ key, kind, text });
    if (tab.unread > AHEAD && !tab.resting) suspend(tab);
  }

  function change() {
    notice();
    update();
  }

  function add(one) {
    one.name = String(++names);
    follows.set(one.name, one);
  }

  function remove(one) {
    one.tab.follows.delete(one.key);
    follows.delete(one.name);
    notice();
  }

  /** Take the runs of a tab out of the stream; under their names nothing comes any more. */
  function suspend(tab) {
    tab.resting = true;
    for (const one of tab.follows.values()) follows.delete(one.name);
    change();
  }

  /** Continue them where the tab is, under new names. */
  function resume(tab) {
    tab.resting = false;
    for (const one of tab.follows.values()) add(one);
    change();
  }

  function leave(tab) {
    tabs.delete(tab);
    for (const one of [...tab.follows.values()]) remove(one);
    if (tabs.size) change();
    else close();
  }

  function take(tab, { kind, key, run, after, brief, read = 0 }) {
    if (!tabs.has(tab)) return tab.send({ kind: "again" });
    const one = tab.follows.get(key);
    tab.silent = 0;
    tab.unread -= read;
    if (tab.resting && tab.unread < AHEAD / 2) resume(tab);
    if (kind === "here") tab.send({ kind });
    else if (kind === "bye") leave(tab);
    else if (kind === "leave" && one) remove(one), change();
    else if (kind === "follow") {
      const fresh = { tab, key, run, after, brief, headed: false, name: "" };
      tab.follows.set(key, fresh);
      if (!tab.resting) add(fresh);
      change();
    }
  }

  return {
    /** Connect a tab: send(message) gets { key, kind, text }. Returns a function that takes its messages. */
    connect(send) {
      const tab = { send, follows: new Map(), silent: 0, unread: 0, resting: false };
      tabs.add(tab);
      retry(); // the server has just answered this tab
      open(true);
      return (message) => take(tab, message);
    },
    /** Forget tabs that are gone without a word, and close a stream without runs. Called once a BEAT. */
    beat() {
      for (const tab of [...tabs]) if (++tab.silent > SILENT) leave(tab);
      if (!follows.size) close();
    },
    allow,
    /** Whether a run is followed; `call` is called whenever that may have changed. */
    busy: () => follows.size > 0,
    onChange: (call) => (notice = call),
  };
}
