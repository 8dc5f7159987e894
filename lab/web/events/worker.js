/* worker: the SharedWorker of all tabs of a browser; it holds their one event stream. */
import { BEAT, createHub } from "./hub.js";

const hub = createHub(new URL("../../", import.meta.url));
setInterval(hub.beat, BEAT);
self.addEventListener("connect", (event) => {
  const [port] = /** @type {MessageEvent} */ (event).ports, take = hub.connect((message) => port.postMessage(message));
  port.onmessage = ({ data }) => take(data);
});
