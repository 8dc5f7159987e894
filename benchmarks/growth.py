"""Measure what many runs in a row leave behind, how soon the first token of each stands on the page, and what the server holds.

    python benchmarks/growth.py [--runs 200] [--tokens 8] [--every 20]

Starts `decodescope app` with the shipped pair in a process of its own, opens the page as a visitor, and presses Run again and
again, each time when the run before is over. Told are the memory of the server (resident, of its process) and of the page
(objects that are left after its garbage is collected, elements, listeners) as runs go by, with the slope over the second half
of them; and the time from the click to the frame that shows the first token. Needs playwright and Chromium
(DECODESCOPE_BROWSER names it), and Linux, whose /proc tells the memory.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from page import TIMEOUT_MS, _spread, browser

PRESS = """async () => {
  const at = (x) => document.querySelector('.ds-places ' + x), of = () => at('.text .tok[data-step]'), old = of();
  const soon = (f) => new Promise((go) => { const look = () => (f() ? go() : setTimeout(look, 1)); look(); });
  const begin = performance.now();
  document.querySelector('#ds-run').click();
  await soon(() => of() && of() !== old);
  await new Promise((f) => requestAnimationFrame(() => setTimeout(f, 0)));
  const first = performance.now() - begin;
  await soon(() => at('.outcome:not(:empty)'));
  return first; }"""
HELD = ("JSHeapUsedSize", "Nodes", "JSEventListeners")


@contextmanager
def started(folder: Path) -> Iterator[tuple[str, int]]:
    """Address and process number of a server with loaded models."""
    command = [sys.executable, "-m", "decodescope", "app", "--no-browser", "--data", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = re.search(r"http://\S+/", process.stdout.readline())
            assert said is not None, "it did not start"
            while not json.loads(_answer(said[0] + "ds/state") or "{}").get("ready"):
                time.sleep(0.2)
            yield said[0], process.pid
        finally:
            process.send_signal(signal.SIGINT)


def _answer(address: str) -> bytes:
    try:
        return bytes(urllib.request.urlopen(address, timeout=60).read())
    except OSError:
        return b""  # it is still starting


def resident(process: int) -> float:
    """MB that the process holds."""
    line = next(x for x in Path(f"/proc/{process}/status").read_text().splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def held(throttle: Any) -> dict[str, float]:
    """What the page holds once its garbage is collected."""
    throttle.send("HeapProfiler.collectGarbage")
    metrics = {x["name"]: x["value"] for x in throttle.send("Performance.getMetrics")["metrics"]}
    return {name: metrics[name] for name in HELD}


def slope(rows: list[tuple[int, float]]) -> float:
    """What a run more adds, by least squares."""
    mean_x, mean_y = (sum(x) / len(rows) for x in zip(*rows, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in rows) / sum((x - mean_x) ** 2 for x, _ in rows)


def main() -> None:
    """Start, press, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=8, help="new tokens of a run")
    parser.add_argument("--every", type=int, default=20, help="runs between two looks at the memory")
    args = parser.parse_args()
    rows, times = [], []
    print("python benchmarks/growth.py " + " ".join(sys.argv[1:]))
    print(
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}"
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        started(Path(folder)) as (address, process),
        browser() as page,
    ):
        print(f"models loaded: {resident(process):.0f} MB")
        page.goto(address)
        page.wait_for_selector("#ds-models .room", state="attached", timeout=TIMEOUT_MS)
        page.fill("#ds-new input", str(args.tokens))
        page.wait_for_timeout(1000)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        for k in range(args.runs + 1):
            if k % args.every == 0 or k == 1:
                rows.append((k, resident(process), held(session)))
                now = rows[-1][2]
                print(
                    f"{k:4} runs: server {rows[-1][1]:6.0f} MB; page "
                    + ", ".join(f"{x} {y:,.0f}" for x, y in now.items())
                )
            if k < args.runs:
                times.append(page.evaluate(PRESS))
    late = [x for x in rows if 2 * x[0] >= args.runs]
    print(
        f"a run more adds, in the second half: server {1024 * slope([(k, x) for k, x, _ in late]):.1f} kB; page "
        + ", ".join(f"{name} {slope([(k, x[name]) for k, _, x in late]):,.1f}" for name in HELD)
    )
    print(f"click to first token, ms: the first {times[0]:.0f}; {_spread(sorted(times[1:]))}")


if __name__ == "__main__":
    main()
