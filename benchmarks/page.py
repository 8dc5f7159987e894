"""Measure the page: how much of a run is shown while it arrives, what a drawing costs, how long a jump takes.

    python benchmarks/page.py [--parts first live slow long export] [--panes 1 2 4] [--steps 300] [--rate 30] [--nodes 80]

Runs of the shipped model with draft trees are recorded first.

first   opens the page as a new visitor, until its inputs answer and the models are named; the first time is left out.
live    replays them to the page at a fixed rate, as if they were being made; so the engine takes no part in what is measured.
        With two panes two runs arrive at once, side by side in the Lab, with three or four on the Compare page. A tree outside
        the window is drawn when it is scrolled to, or when the run stands still; a large one is a picture until its step
        stands, and a seek ends with the picture.
slow    the same with four runs at 60 steps a second, to a browser that has a sixth of the processor: whether it gets every
        step, and how long after the server had it each step, or a later one, stands on the page.
long    opens traces of --long steps: the steps of one recorded run over and over, each with its number, place and time,
        written by the engine's own writer; above 50,000 steps at the level "summary", so that the file stays small.
export  writes a run as one HTML file and opens that.

Needs playwright and Chromium (DECODESCOPE_BROWSER names it); the browser's processor time is told on Linux only.
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import random
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn

from decodescope.app.http.guard import Guard
from decodescope.app.routes.compare import SPARED
from decodescope.app.runs.record_stream import RecordStream
from decodescope.app.runs.run_service import RunService
from decodescope.app.server import build_app
from decodescope.engine import Method, load
from decodescope.engine.session.run import LazyWriter, Tee, encode_text_or_ids
from decodescope.engine.session.session import Session
from decodescope.engine.trace import Trace, TraceWriter
from decodescope.engine.trace.records.events import Level
from decodescope.lab.views.export import export_html
from decodescope.lab.wire.wire import Wire
from decodescope.lab.wire.wire import encode as as_json

PROMPT = "def read(path):\n    with open(path) as file:\n        return file.read()\n\n\ndef write("
COUNT = """
window.drawn = []; window.gaps = []; window.shown = [];
const plain = requestAnimationFrame.bind(window);
window.requestAnimationFrame = (f) => plain((t) => { const a = performance.now(); f(t); drawn.push(performance.now() - a); });
let last = 0;
const tick = (t) => { if (last) gaps.push(t - last); last = t; plain(tick); };
plain(tick);
"""
WATCH = """(place) => { drawn.length = gaps.length = 0; shown = [0, 1, 2, 3].map(() => new Set());
  const look = () => document.querySelectorAll(place + ' h1').forEach((h, k) => shown[k].add(h.textContent));
  const all = { subtree: true, childList: true, characterData: true };
  new MutationObserver(look).observe(document.querySelector(place), all);
}"""
RECEIVED = """window.received = {};
const own = window.SharedWorker;
window.SharedWorker = class extends own { constructor(...all) { super(...all);
  const { port } = this, post = port.postMessage.bind(port), runs = {};
  port.postMessage = (x) => { if (x.kind === 'follow') runs[x.key] = x.run; post(x); };
  port.addEventListener('message', ({ data }) => {
    const i = data.kind === 'step' && /"i":([0-9]+)/.exec(data.text.slice(0, 60));
    if (i) (received[runs[data.key]] ||= new Set()).add(i[1]); }); } };
"""
CLOCK = """(place) => { window.stood = [0, 1, 2, 3].map(() => new Map());
  const look = () => document.querySelectorAll(place + ' h1').forEach((h, k) => {
    const i = Number(h.textContent.split(' ')[1]);
    if (!stood[k].has(i)) stood[k].set(i, Date.now()); });
  const all = { subtree: true, childList: true, characterData: true };
  new MutationObserver(look).observe(document.querySelector(place), all);
}"""
# One pane goes to a step; several go to a token. First wait until all steps that wrote it are shown, each with all of its tree,
# and the next frame begins, so that theirs is done. Then wait until their texts are shown too, and the frame that shows those
# is over.
SEEK = """async ([place, at, wanted]) => { const a = performance.now();
  const box = document.querySelector(place + ' input[type=range]');
  box.value = at; box.dispatchEvent(new Event('input'));
  const seen = (x) => x && x.style.display !== 'none', there = () =>
    [...document.querySelectorAll(place + ' h1')].every((h, k) => h.textContent === 'Step ' + wanted[k])
    && [...document.querySelectorAll(place + ' .tree-box')].every((box) => !box.lastElementChild.textContent
      && (seen(box.querySelector('.tree-picture'))
        || (seen(box.querySelector('.tree')) && [...box.querySelectorAll('.node')].filter(seen).length > 1)));
  const told = () => [...document.querySelectorAll(place + ' .text')].every((text, k) =>
    !text.querySelector('[data-step]') || text.querySelector('.now')?.dataset.step === String(wanted[k]));
  while (!there() && performance.now() - a < 5000) await new Promise((f) => setTimeout(f, 1));
  await new Promise((f) => requestAnimationFrame(f));
  const trees = performance.now() - a;
  while (!told() && performance.now() - a < 5000) await new Promise((f) => setTimeout(f, 1));
  await new Promise((f) => requestAnimationFrame(() => setTimeout(f, 0)));
  return [trees, performance.now() - a]; }"""

FIRST = """(() => { const look = () => document.querySelector('.ds h1')?.textContent ? (window.first = performance.now())
  : requestAnimationFrame(look); look(); })()"""
JUMP = """async ([place, at]) => { const a = performance.now(), box = document.querySelector(place + ' .scrub');
  box.value = at; box.dispatchEvent(new Event('input'));
  const there = () => document.querySelector(place + ' h1').textContent === 'Step ' + at
    && !document.querySelector(place + ' .decision').textContent.includes('fetching');
  while (!there() && performance.now() - a < 20000) await new Promise((f) => setTimeout(f, 1));
  await new Promise((f) => requestAnimationFrame(() => setTimeout(f, 0)));
  return performance.now() - a; }"""
TIMEOUT_MS = 600_000
# of the part "slow": times, steps per second, runs
SLOWED = 6
SLOW_RATE = 60.0
SLOW_PANES = 4
LOOKED_MS = 4000
PARTS = ("first", "live", "slow", "long", "export")
VISITS = 7
COUNTS = 50_000  # steps above which a long trace is recorded at the level "summary"


class Feed:
    """A recorded run that arrives at a channel, one step per 1/rate s. status: as a job's."""

    status = "running"

    def __init__(self, trace: Trace, channel: RecordStream, rate: float):
        self.trace = trace
        self.channel = channel
        self.rate = rate
        self.written: list[float] = []  # when each step was there, s since the epoch
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
            self.written.append(time.time())
        self.channel.seal(self.trace.end)
        self.status = "done"
        return time.perf_counter() - begin


def record(steps: int, nodes: int, path: Path, seed: int, level: Level = "decisions") -> Trace:
    """A run of `steps` steps, in memory and on disk."""
    model, trace = load("lab", "float32", "cpu"), Trace()
    method = Method.from_names(
        {"drafter": "token_recycling", "sampler": ["temperature"]}, {"drafter": {"nodes": str(nodes)}}
    )
    session = Session(
        model,
        method,
        encode_text_or_ids(model, PROMPT),
        max_new_tokens=1500,
        seed=seed,
        stop_tokens=[],
        level=level,
    )
    session.sink = Tee(LazyWriter(path), trace)
    session.start()
    while session.end is None:
        session.step()
        if session.steps >= steps:
            session.finish("stopped_by_user")
    return trace


def stretch(trace: Trace, path: Path, steps: int) -> None:
    """Write a trace of so many steps: those of `trace` over and over."""
    writer = TraceWriter(path, replace(trace.header, max_new_tokens=10 * steps))
    assert trace.prefill is not None and trace.end is not None
    writer.write(trace.prefill)
    n = len(trace.header.prompt)
    t_us = 0.0
    tokens = []
    for i in range(steps):
        step = trace.steps[i % len(trace.steps)]
        caches = [replace(x, held=x.held + n - step.n) for x in step.cache]  # nothing is evicted
        writer.write(replace(step, step=i, n=n, t_us=t_us, cache=caches))
        n, t_us = n + len(step.emitted), t_us + step.wall_us
        tokens += step.emitted
    writer.seal(replace(trace.end, steps=steps, tokens=tokens))


@contextmanager
def served(play: RunService) -> Iterator[str]:
    """The address of the page."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = uvicorn.Server(
        uvicorn.Config(Guard(build_app(play), port), log_level="warning", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)


@contextmanager
def browser() -> Iterator[Any]:
    """A page of 1440 x 900 px."""
    from playwright.sync_api import sync_playwright

    program = (
        os.environ.get("DECODESCOPE_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
    )
    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield launched.new_page(viewport={"width": 1440, "height": 900})
        launched.close()


def opened(steps: int, path: Path, play: RunService) -> list[tuple[str, str]]:
    """Rows of the table, for a recorded run of many steps."""
    chance, place = random.Random(0), ".ds-places"
    with served(play) as address, browser() as page:
        page.add_init_script(FIRST)
        begin = time.perf_counter()
        page.goto(f"{address}/#run={path.stem}")
        page.wait_for_function("window.first", timeout=TIMEOUT_MS)
        first, there = (
            page.evaluate("first"),
            page.evaluate(f"Number(document.querySelector('{place} .scrub').max)"),
        )
        moved = page.evaluate(JUMP, [place, there // 2])
        page.wait_for_function(
            f"document.querySelector('{place} .scrub').max == {steps - 1}", timeout=TIMEOUT_MS
        )
        took = time.perf_counter() - begin
        jumps = sorted(page.evaluate(JUMP, [place, chance.randrange(steps)]) for _ in range(24))
    return [
        ("file, bytes", f"{path.stat().st_size:,}"),
        ("address to first drawing, s", f"{first / 1000:.2f}"),
        ("steps there by then, and a move among them", f"{there + 1:,}, {moved:.0f} ms"),
        ("until all steps are there, s", f"{took:.1f}"),
        ("seek to a step anywhere, ms", _spread(jumps)),
    ]


def exported(trace: Trace, folder: Path) -> list[tuple[str, str]]:
    """Rows of the table, for a run in one HTML file."""
    path, times = folder / "run.html", []
    path.write_text(export_html(trace), encoding="utf-8")
    with browser() as page:
        page.add_init_script(FIRST)
        for _ in range(5):
            page.goto(path.as_uri())
            page.wait_for_function("window.first", timeout=TIMEOUT_MS)
            times.append(page.evaluate("first"))
    size, packed = path.stat().st_size, len(gzip.compress(path.read_bytes()))
    return [
        ("bytes, and compressed (gzip)", f"{size:,}, {packed:,}"),
        ("open to first drawing, ms", _spread(sorted(times))),
    ]


def visited(play: RunService) -> list[tuple[str, str]]:
    """Rows of the table, for a page that is opened."""
    times = []
    spent = []
    sizes = []
    with served(play) as address, browser() as page:
        for _ in range(VISITS + 1):
            visitor = page.context.browser.new_context(reduced_motion="reduce").new_page()
            start, used = time.perf_counter(), _browser_s()
            visitor.goto(address)
            visitor.wait_for_selector("#ds-run", timeout=TIMEOUT_MS)
            visitor.wait_for_selector("#ds-models .room", state="attached", timeout=TIMEOUT_MS)
            times.append(1e3 * (time.perf_counter() - start))
            spent.append(1e3 * ((_browser_s() or 0.0) - (used or 0.0)))
            sizes.append(visitor.evaluate("performance.getEntriesByType('navigation')[0].decodedBodySize"))
            visitor.context.close()
    rows = [
        ("open until the inputs answer, ms", _spread(sorted(times[1:]))),
        ("bytes of the page itself", f"{sizes[-1]:,}"),
    ]
    return rows if used is None else [*rows, ("processor of the browser, ms", _spread(sorted(spent[1:])))]


def looked_at(page: Any, address: str, runs: list[str]) -> str:
    """Open one or two runs in the Lab, more on the Compare page: the selector of their pictures."""
    lab = len(runs) < 3
    place = ".ds-places" if lab else "#ds-page-compare .runs"
    page.goto(
        f"{address}/#run=" + "&with=".join(runs) if lab else f"{address}/#compare&runs=" + ",".join(runs)
    )
    page.wait_for_selector("#ds-run", state="visible" if lab else "attached")
    page.wait_for_selector(place)
    page.wait_for_timeout(2000)
    return place


def played(feeds: list[Feed]) -> float:
    """Let all runs arrive at once; the seconds that it took."""
    start = time.perf_counter()
    threads = [threading.Thread(target=feed.play) for feed in feeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def slowed(traces: list[Trace], channels: list[RecordStream], play: RunService) -> list[tuple[str, str]]:
    """Rows of the table, for a browser that is too slow for what arrives."""
    feeds = [Feed(trace, channel, SLOW_RATE) for trace, channel in zip(traces, channels, strict=True)]
    with served(play) as address, browser() as page:
        page.add_init_script(RECEIVED)
        place = looked_at(page, address, [x.run for x in channels])
        page.evaluate(CLOCK, place)
        throttle = page.context.new_cdp_session(page)
        throttle.send("Emulation.setCPUThrottlingRate", {"rate": SLOWED})
        begin = time.process_time()
        took = played(feeds)
        server = time.process_time() - begin
        ended = f"document.querySelectorAll('{place} .outcome:not(:empty)').length == {len(feeds)}"
        page.wait_for_function(ended, timeout=TIMEOUT_MS)
        stood = [dict(x) for x in page.evaluate("stood.map((x) => [...x])")][: len(feeds)]
        received = page.evaluate(
            "Object.fromEntries(Object.entries(received).map(([run, x]) => [run, x.size]))"
        )
        throttle.send("Emulation.setCPUThrottlingRate", {"rate": 1})
        seeks, _ = sought(page, place, traces)
    pairs = [(feed, shown) for feed, shown in zip(feeds, stood, strict=True)]
    late = sorted(  # of every step: until it, or a later one, was on the page
        min(at for k, at in shown.items() if k >= i) - 1000 * written
        for feed, shown in pairs
        for i, written in enumerate(feed.written)
    )
    last = max(shown[len(feed.written) - 1] - 1000 * feed.written[-1] for feed, shown in pairs)
    came = [received.get(channel.run, 0) for channel in channels]
    lost = [len(trace.steps) - n for trace, n in zip(traces, came, strict=True)]
    return [
        ("steps that did not come", " and ".join(map(str, lost))),
        (
            "steps shown, per second",
            " and ".join(f"{len(x) / took:.1f}" for x in stood) + f" of {SLOW_RATE:g}",
        ),
        ("from the server to the page, ms", _spread(late)),
        ("the last step, ms", f"{last:.0f}"),
        ("then, unslowed: seek until trees stand, ms", _spread(seeks)),
        ("server process, cores while streaming", f"{server / took:.2f}"),
    ]


def measured(
    traces: list[Trace], channels: list[RecordStream], play: RunService, rate: float, down: bool
) -> list[tuple[str, str]]:
    """Rows of the table, for one to four runs; down: with the window at the trees, below the clocks of a comparison."""
    feeds = [Feed(trace, channel, rate) for trace, channel in zip(traces, channels, strict=True)]
    with served(play) as address, browser() as page:
        page.add_init_script(COUNT)
        place = looked_at(page, address, [x.run for x in channels])
        if down:
            page.evaluate("place => document.querySelector(place + ' .host').scrollIntoView()", place)
        page.evaluate(WATCH, place)
        before, begin = _browser_s(), time.process_time()
        took = played(feeds)
        server, after = time.process_time() - begin, _browser_s()
        page.wait_for_function(
            f"document.querySelectorAll('{place} .outcome:not(:empty)').length == {len(feeds)}"
        )
        shown = page.evaluate("shown.map((x) => x.size)")[: len(feeds)]
        drawn = sorted(page.evaluate("drawn.filter((x) => x > 0.5)"))  # others had nothing to draw
        gaps = sorted(page.evaluate("gaps"))
        seeks, texts = sought(page, place, traces)
    sizes, spared = [], SPARED if len(traces) > 2 else ()
    for trace in traces:
        wire = Wire(trace.header)
        for step in trace.steps:
            wire.learn(step)
        sizes += [len(as_json(wire.step(step, spared=spared))) for step in trace.steps]
    steps = [len(trace.steps) for trace in traces]
    told = " and ".join(f"{min(n, of) / took:.1f}" for n, of in zip(shown, steps, strict=True))
    return [
        ("steps shown, per second", f"{told} of {rate:g}"),
        ("time from frame to frame, ms", _spread(gaps)),
        ("frames that drew something, ms", _spread(drawn)),
        ("seek until the whole trees stand, ms", _spread(seeks)),
        ("and until the texts do, ms", _spread(texts)),
        ("one step on the wire, bytes", _spread(sorted(sizes))),
        (
            "browser, cores while streaming",
            "not told here" if after is None else f"{(after - (before or 0)) / took:.2f}",
        ),
        (
            "server process, cores; processor a step, ms",
            f"{server / took:.3f}; {1e3 * server / sum(steps):.3f}",
        ),
    ]


def sought(page: Any, place: str, traces: list[Trace]) -> tuple[list[float], list[float]]:
    """ms of jumps over the runs, in ascending order: until the trees are shown, and until the texts are.

    The first jump comes when a reader has looked at the end for a while.
    """
    page.wait_for_timeout(LOOKED_MS)
    each = [page.evaluate(SEEK, [place, *there]) for there in _places(traces)]
    return sorted(x for x, _ in each), sorted(x for _, x in each)


def _places(traces: list[Trace]) -> Iterator[tuple[int, list[int]]]:
    """Where to jump: what the scrubber is set to, and the step of each run that is shown then."""
    ends = [
        [sum(len(x.emitted) for x in trace.steps[: i + 1]) for i in range(len(trace.steps))]
        for trace in traces
    ]
    most = min(len(trace.steps) - 1 for trace in traces) if len(traces) == 1 else min(x[-1] for x in ends)
    for k in range(1, 25):
        at = 1 + (k * 37) % (most - 1)
        yield at, [at] if len(traces) == 1 else [next(i for i, n in enumerate(x) if n >= at) for x in ends]


def _browser_s() -> float | None:
    """Seconds of processor time that all processes under this one have used; None where the system does not report it."""
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        pid = int(path.parent.name)
        parents[pid], used[pid] = int(fields[1]), int(fields[11]) + int(fields[12])
    if not parents:
        return None

    def under(pid: int) -> bool:
        while pid in parents:
            pid = parents[pid]
            if pid == os.getpid():
                return True
        return False

    return sum(ticks for pid, ticks in used.items() if under(pid)) / os.sysconf("SC_CLK_TCK")


def _spread(values: list[float]) -> str:
    """Median, 95th percentile and greatest of ascending values."""
    return f"median {statistics.median(values):.1f}, p95 {values[int(0.95 * (len(values) - 1))]:.1f}, worst {values[-1]:.1f}"


def main() -> None:
    """Record, replay, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", default=[*PARTS], choices=PARTS)
    parser.add_argument(
        "--long", type=int, nargs="+", default=[10_000, 200_000], help="steps of the traces that are opened"
    )
    parser.add_argument(
        "--panes", type=int, nargs="+", default=[1, 2, 4], choices=(1, 2, 3, 4), help="runs shown at once"
    )
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rate", type=float, default=30.0, help="steps per second")
    parser.add_argument(
        "--down", action="store_true", help="several panes: look at the trees, not at the top of the page"
    )
    parser.add_argument(
        "--nodes", type=int, default=80, choices=(8, 16, 24, 80), help="nodes of a draft tree"
    )
    args = parser.parse_args()
    tables = {}
    if "first" in args.parts:
        with tempfile.TemporaryDirectory() as folder:
            tables["a page that is opened"] = visited(RunService("lab", "lab-draft", Path(folder)))
    for part, panes in [*(("live", n) for n in args.panes), ("slow", SLOW_PANES)]:
        if part not in args.parts:
            continue
        with tempfile.TemporaryDirectory() as folder:
            play = RunService("lab", None, Path(folder))
            channels = [
                RecordStream(str(k) * 16, Path(folder) / f"{str(k) * 16}.dstrace") for k in range(panes)
            ]
            traces = [record(args.steps, args.nodes, x.path, seed) for seed, x in enumerate(channels, 1)]
            play._channels.update((x.run, x) for x in channels)
            title = f"{panes} {'pane' if panes == 1 else 'panes'}"
            if part == "live":
                tables[title] = measured(traces, channels, play, args.rate, args.down)
            else:
                tables[f"{title}, a browser {SLOWED} times slower"] = slowed(traces, channels, play)
    for steps in args.long if "long" in args.parts else []:
        with tempfile.TemporaryDirectory() as folder:
            level: Level = "summary" if steps > COUNTS else "decisions"
            path = Path(folder) / f"{'1' * 16}.dstrace"
            stretch(record(args.steps, args.nodes, Path(folder) / "short.dstrace", 1, level), path, steps)
            tables[f"a trace of {steps:,} steps, level {level}"] = opened(
                steps, path, RunService("lab", None, Path(folder))
            )
    if "export" in args.parts:
        with tempfile.TemporaryDirectory() as folder:
            trace = record(args.steps, args.nodes, Path(folder) / "short.dstrace", 1)
            tables[f"export of {args.steps} steps"] = exported(trace, Path(folder))
    print("python benchmarks/page.py " + " ".join(sys.argv[1:]))
    load_s = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors{load_s}; {args.steps} steps"
    )
    for title, rows in tables.items():
        print(f"\n{title}")
        for name, value in rows:
            print(f"{name:42}  {value}")


if __name__ == "__main__":
    main()
