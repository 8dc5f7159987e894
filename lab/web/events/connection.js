/* connection: the one event stream of the server, which carries every run that is followed. */

const WAIT = 500, LONGEST = 15000; // ms before a lost stream is opened again: doubled each time, up to the longest
const KINDS = ["head", "step", "state", "end", "gone"];

/** address: of the stream. follows: name in the stream -> { name, run, after, brief }, which the caller changes before
 *  it calls update(). pass(one, kind, text, number): an event of a run has come. lost(one, why, tries): its stream is
 *  away; `why` is the server's sentence, or "". */
export function createConnection(address, { follows, pass, lost }) {
  const sent = new Set(); // the names that the server has
  let source = null, stream = "", allowed = true, tries = 0, timer = 0, posting = false;

  /** early: before a run is followed */
  function open(early = false) {
    if (source || timer || !allowed || !(early || follows.size)) return;
    const mine = (source = new EventSource(address));
    const listen = (kind, act) =>
      mine.addEventListener(kind, (event) => mine === source && act(event.data, event.lastEventId.split(":")));
    for (const kind of KINDS) listen(kind, (text, [name, number]) => receive(kind, text, name, Number(number)));
    listen("full", (text, [name]) => full(follows.get(name), JSON.parse(text).error));
    listen("ready", (text) => ((stream = JSON.parse(text).stream), update()));
    mine.addEventListener("error", () => lose(mine));
  }

  function close() {
    clearTimeout(timer);
    source?.close();
    source = null;
    stream = "";
    timer = 0;
    sent.clear();
  }

  function receive(kind, text, name, number) {
    const one = follows.get(name);
    if (!one) return;
    tries = 0;
    if (kind === "end" || kind === "gone") sent.delete(name); // the server has dropped it
    pass(one, kind, text, number);
  }

  /** The server has too many readers: ask once more later. */
  function full(one, why) {
    if (!one) return;
    lost(one, why, 1);
    setTimeout(() => (sent.delete(one.name), update()), LONGEST);
  }

  /** The stream broke off, or was refused: open another one later. */
  async function lose(mine) {
    if (mine !== source) return;
    close();
    const wait = Math.min(WAIT * 2 ** tries++, LONGEST);
    const now = (timer = setTimeout(() => ((timer = 0), open()), wait)), notify = (why) => {
      for (const one of follows.values()) lost(one, why, tries);
    };
    notify("");
    const why = await readRefusal(address);
    if (why && now === timer) notify(why);
  }

  /** Tell the server which runs to add to the stream and which to drop, one request after the other. */
  async function update() {
    open();
    if (posting || !stream) return;
    const mine = source, drop = [...sent].filter((name) => !follows.has(name)),
      add = [...follows.values()].filter(({ name }) => !sent.has(name))
        .map(({ name, run, after, brief }) => ({ name, run, after, brief }));
    if (!add.length && !drop.length) return;
    for (const { name } of add) sent.add(name);
    for (const name of drop) sent.delete(name);
    posting = true;
    const body = JSON.stringify({ add, drop }), headers = { "content-type": "application/json" };
    const answer = await fetch(`${address}/${stream}`, { method: "POST", headers, body }).catch(() => null);
    posting = false;
    if (!answer?.ok) lose(mine);
    update();
  }

  return {
    open,
    close,
    update,
    /** Open a lost stream now: the server was seen to answer. */
    retry: () => timer && (close(), open()),
    /** Whether the stream may be open. */
    allow(may) {
      allowed = may;
      if (may) open();
      else close();
    },
  };
}

/** The sentence with which the server refuses a stream; "" if it does not answer with one. */
async function readRefusal(address) {
  const control = new AbortController();
  try {
    const answer = await fetch(address, { signal: control.signal });
    return answer.ok || answer.status === 500 ? "" : String((await answer.json()).error || "");
  } catch {
    return "";
  } finally {
    control.abort();
  }
}
