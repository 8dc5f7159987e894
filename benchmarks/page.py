"""Measure the page: how much of a run is shown while it arrives, what a drawing costs, how long a jump takes.

    python benchmarks/page.py [--steps 300] [--rate 30] [--nodes 80]

A run of the shipped model with draft trees is recorded first, then replayed to the page at a fixed rate, as if it were
being made; so the engine takes no part in what is measured. Needs playwright and Chromium (DECODESCOPE_BROWSER names it).
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from decodescope.app.events import Channel
from decodescope.app.guard import Guard
from decodescope.app.play import Play
from decodescope.app.server import app
from decodescope.engine import Method, load
from decodescope.engine.run import LazyWriter, Tee, encode
from decodescope.engine.session import Session
from decodescope.engine.trace import Trace
from decodescope.lab.wire import Wire
from decodescope.lab.wire import encode as as_json

PROMPT = "def read(path):\n    with open(path) as file:\n        return file.read()\n\n\ndef write("
COUNT = """
window.drawn = []; window.shown = new Set();
const plain = requestAnimationFrame.bind(window);
window.requestAnimationFrame = (f) => plain((t) => { const a = performance.now(); f(t); drawn.push(performance.now() - a); });
"""
WATCH = """() => { drawn.length = 0; shown.clear();
  const look = () => { const h = document.querySelector('.ds h1'); if (h) shown.add(h.textContent); };
  new MutationObserver(look).observe(document.querySelector('.ds'), { subtree: true, childList: true, characterData: true });
}"""
SEEK = """async (i) => { const box = document.querySelector('.ds .scrub'), a = performance.now();
  box.value = i; box.dispatchEvent(new Event('input'));
  const there = () => document.querySelector('.ds h1').textContent === 'Step ' + i
    && [...document.querySelectorAll('.ds .tree .node')].filter((x) => x.style.display !== 'none').length > 1;
  while (!there() && performance.now() - a < 5000) await new Promise((f) => setTimeout(f, 1));
  return performance.now() - a; }"""


class Feed:
    """A recorded run that arrives at a channel, one step per 1/rate s. status: as a job's."""

    status = "running"

    def __init__(self, trace: Trace, channel: Channel, rate: float):
        self.trace, self.channel, self.rate = trace, channel, rate
        channel.job = self
        channel.write(trace.header)
        assert trace.prefill is not None
        channel.write(trace.prefill)

    def play(self) -> float:
        """Send all steps; the seconds that it took."""
        begin = time.perf_counter()
        for i, step in enumerate(self.trace.steps):
            time.sleep(max(0.0, begin + i / self.rate - time.perf_counter()))
            self.channel.write(step)
        self.channel.seal(self.trace.end)
        self.status = "done"
        return time.perf_counter() - begin


def record(steps: int, nodes: int, path: Path) -> Trace:
    """A run of `steps` steps, in memory and on disk."""
    model, trace = load("lab", "float32", "cpu"), Trace()
    method = Method.named({"drafter": "token_recycling", "sampler": ["temperature"]}, {"drafter": {"nodes": str(nodes)}})
    session = Session(model, method, encode(model, PROMPT), max_new_tokens=1500, seed=1, stop_tokens=[])
    session.sink = Tee(LazyWriter(path), trace)
    session.start()
    while session.end is None:
        session.step()
        if session.steps >= steps:
            session.finish("stopped_by_user")
    return trace


@contextmanager
def served(play: Play) -> Iterator[str]:
    """The address of the page."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(Guard(app(play), port), log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)


def measured(trace: Trace, channel: Channel, play: Play, rate: float) -> list[tuple[str, str]]:
    """Rows of the table."""
    from playwright.sync_api import sync_playwright

    program = os.environ.get("DECODESCOPE_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
    feed, steps = Feed(trace, channel, rate), len(trace.steps)
    with served(play) as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page: Any = browser.new_page(viewport={"width": 1440, "height": 900})
        page.add_init_script(COUNT)
        page.goto(f"{address}/#run={channel.run}")
        page.wait_for_selector("#ds-run")
        page.wait_for_timeout(2000)
        page.evaluate(WATCH)
        begin = time.process_time()
        took = feed.play()
        server = time.process_time() - begin
        page.wait_for_selector(".ds .outcome:not(:empty)")
        shown = page.evaluate("shown.size")
        drawn = sorted(page.evaluate("drawn.filter((x) => x > 0.5)"))  # others had nothing to draw
        seeks = sorted(page.evaluate(SEEK, i) for i in [(k * 37) % (steps - 1) for k in range(1, 25)])
        browser.close()
    wire = Wire(trace.header)
    for step in trace.steps:
        wire.learn(step)
    sizes = sorted(len(as_json(wire.step(step))) for step in trace.steps)
    return [
        ("steps shown, per second", f"{min(shown, steps) / took:.1f} of {rate:g} ({min(shown, steps)} of {steps} steps)"),
        ("frames that drew something, ms", _spread(drawn)),
        ("seek until the whole tree stands, ms", _spread(seeks)),
        ("one step on the wire, bytes", _spread(sizes)),
        ("server process, cores while streaming", f"{server / took:.2f}"),
    ]


def _spread(values: list[float]) -> str:
    """Median, 95th percentile and greatest of ascending values."""
    return f"median {statistics.median(values):.1f}, p95 {values[int(0.95 * (len(values) - 1))]:.1f}, worst {values[-1]:.1f}"


def main() -> None:
    """Record, replay, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rate", type=float, default=30.0, help="steps per second")
    parser.add_argument("--nodes", type=int, default=80, choices=(8, 16, 24, 80), help="nodes of a draft tree")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = "0" * 16
        channel = Channel(run, Path(folder) / f"{run}.dstrace")
        trace = record(args.steps, args.nodes, channel.path)
        play = Play("lab", None, Path(folder))
        play._channels[run] = channel
        rows = measured(trace, channel, play, args.rate)
    print("python benchmarks/page.py " + " ".join(sys.argv[1:]))
    load_s = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors{load_s}; {len(trace.steps)} steps\n")
    for name, value in rows:
        print(f"{name:38}  {value}")


if __name__ == "__main__":
    main()
