/* follow: the events of the runs that this tab follows. They come through one event stream, which all tabs of a browser
 * share. */

const BEAT = 5000; // ms between two signs of life
const DEAD = 3; // unanswered ones after which the worker is started again
const READ = 1 << 20; // characters after which the tab says how far it has read
const MANY = 4; // attempts after which the server is said not to answer
/** The text over a run while its server has been away for some seconds. */
export const GONE = "The server does not answer: start it again, and this page goes on by itself.";

const followed = new Map(); // key -> { run, after, takes, brief }
let link = null, keys = 0, silent = 0, read = 0, shares = "SharedWorker" in window;

/** Follow a run from behind its step `after`. Returns a function that ends it.
 *  takes: functions by kind. "head", "step", "state" and "end" get a record; "gone" gets the sentence about a run that
 *  is not here; "lost" gets a text while the stream is away. brief: without what the Compare page does not show.
 *  @param {string} run
 *  @param {number} after
 *  @param {Record<string, (message: any) => void>} takes */
export function follow(run, after, takes, brief = false) {
  const key = ++keys, one = { run, after, takes, brief };
  followed.set(key, one);
  connect();
  send(key, one);
  return () => followed.delete(key) && link.post({ kind: "leave", key });
}

const send = (key, { run, after, brief }) => link.post({ kind: "follow", key, run, after, brief });

function receive({ key, kind, text }) {
  silent = 0;
  link.answered = true;
  if (kind === "again") return restart();
  const one = followed.get(key);
  if (text && (read += text.length) > READ) link.post({ kind: "read", read }), (read = 0);
  if (!one) return;
  const message = JSON.parse(text);
  if (kind === "step") one.after = message.i;
  if (kind === "end" || kind === "gone") followed.delete(key);
  if (kind === "lost") one.takes.lost(lostText(one, message));
  else if (kind === "gone") one.takes.gone(message.error);
  else one.takes[kind](message);
}

function lostText({ after }, { why, tries }) {
  if (why) return why;
  if (tries >= MANY) return GONE;
  return after < 0 ? "reconnecting…" : `reconnecting, last step ${after}`;
}

/** Connect this tab to the worker, or to a stream of its own. */
function connect() {
  if (link) return;
  read = silent = 0;
  link = (shares && sharedLink()) || ownLink();
}

/** A link whose messages count only while it is the current one. */
const createLink = (post, close) => ({ post, close, answered: false });
const receiverOf = (mine) => (message) => mine === link && receive(message);

function sharedLink() {
  // the mark of the script is in its address, so a page never talks with the worker of another version
  const mark = document.querySelector("meta[name=decodescope-events]")?.getAttribute("content") || "";
  try {
    const worker = new SharedWorker(new URL(`worker.js?${mark}`, import.meta.url), { type: "module" });
    const { port } = worker, mine = createLink((message) => port.postMessage(message), () => port.close());
    const take = receiverOf(mine);
    worker.onerror = () => mine === link && ((shares = false), restart());
    port.onmessage = ({ data }) => take(data);
    return mine;
  } catch {
    return null; // forbidden
  }
}

function ownLink() {
  const waiting = [];
  let take = (message) => waiting.push(message);
  const mine = createLink((message) => take(message), () => take({ kind: "bye" }));
  import("./own_stream.js").then((own) => {
    take = own.connect(receiverOf(mine));
    waiting.forEach((message) => take(message));
  });
  return mine;
}

/** Connect again, and continue every run where it is. */
function restart() {
  if (!link.answered && silent > DEAD) shares = false;
  link.post({ kind: "bye" });
  link.close();
  link = null;
  connect();
  for (const [key, one] of followed) send(key, one);
}

setInterval(() => {
  if (!link) return;
  if (++silent > DEAD) restart();
  else link.post({ kind: "here" });
}, BEAT);
window.addEventListener("pagehide", () => link?.post({ kind: "bye" }));
window.addEventListener("pageshow", (event) => event.persisted && link && restart());
connect();
