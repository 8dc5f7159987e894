/* own stream: the event stream of one tab, in a browser without SharedWorkers. It is open while the tab is visible; a
 * tab that is shown again catches up. Visible tabs, each in a window of its own, take turns. */
import { BEAT, createHub } from "./hub.js";

const STREAMS = 3; // that a browser has open: half of its connections to one server
const TURN = 2000; // ms that a stream stays open at least; then another tab may have it
const hub = createHub(new URL("../../", import.meta.url));
const wanted = () => hub.busy() && document.visibilityState === "visible";
const slot = (k) => `decodescope-stream-${k}`;
let wake = () => {};

/** Resolves when it may be time to open or close the stream. */
const change = () => new Promise((done) => (wake = () => done(null)));
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
/** A signal for the moment in which the tab is hidden: a tab that may be frozen does not queue. */
function hiddenSignal() {
  const control = new AbortController();
  document.addEventListener("visibilitychange", () => control.abort(), { once: true });
  return control.signal;
}

/** Call `work` while this tab has one of the browser's streams.
 *  Only pages of this machine, or under https, have locks; on others being visible is enough. */
async function inTurn(work) {
  const { locks } = navigator;
  if (!locks) return work(() => false);
  const others = async (name) => (await locks.query()).pending.some((lock) => lock.name === name);
  const hold = (name) => work(() => others(name));
  for (let k = 0; k < STREAMS; k++) {
    const held = await locks.request(slot(k), { ifAvailable: true }, (lock) => lock && hold(slot(k)).then(() => true));
    if (held) return;
  }
  const name = slot(Math.floor(STREAMS * Math.random()));
  await locks.request(name, { signal: hiddenSignal() }, () => hold(name)).catch(() => {}); // hidden meanwhile
}

async function work(othersWait) {
  const until = performance.now() + TURN;
  hub.allow(true);
  do await Promise.race([change(), pause(TURN)]);
  while (wanted() && (performance.now() < until || !(await othersWait())));
  hub.allow(false);
}

async function serve() {
  for (;;) {
    while (!wanted()) await change();
    await inTurn(async (othersWait) => wanted() && work(othersWait));
  }
}

hub.allow(false);
hub.onChange(() => wake());
document.addEventListener("visibilitychange", () => wake());
setInterval(hub.beat, BEAT);
serve();

/** As the hub of a worker, for this tab alone. */
export const { connect } = hub;
