"""Kill writers at random moments, and look at what their readers find.

Its arguments: a folder, a number of kills, a seed, and "light" or "all". One process forks a child for each kill, so that it
imports everything once. It prints one JSON object: for each writer how often its reader found the old content, the new one, or
a beginning of it, and what was wrong.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from writers import HEAVY, LIGHT, NEW, OLD, Writer

from decodescope.engine.trace.file import writer as trace_writer


def prepare(writer: Writer, folder: Path) -> tuple[Any, Any, float]:
    """The old and the new content as the reader finds them, and the seconds that a child takes to write: the least of three."""
    took = []
    for i in range(3):
        place = folder / f"{NEW}{i}"
        child, pipe = start_child(writer, place)
        began = time.perf_counter()
        assert os.read(pipe, 1) == b"-", f"{writer.name} cannot be written by a child"
        took.append(time.perf_counter() - began)
        os.waitpid(child, 0)
        os.close(pipe)
    (folder / OLD).mkdir()
    if writer.begins:
        writer.write(folder / OLD, OLD)
    return writer.read(folder / OLD), writer.read(place), min(took)


def start_child(writer: Writer, folder: Path) -> tuple[int, int]:
    """Start a child that writes the new content over the old one; its number, and the pipe on which it says that it is done."""
    folder.mkdir()
    if writer.begins:
        writer.write(folder, OLD)
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(theirs, b"+")
            writer.write(folder, NEW)
            os.write(theirs, b"-")
        finally:
            os._exit(0)
    os.close(theirs)
    os.read(ours, 1)
    return child, ours


def kill_once(writer: Writer, folder: Path, delay: float) -> bool:
    """Let a child write, and kill it after `delay` seconds; whether it was still at it."""
    child, pipe = start_child(writer, folder)
    until = time.perf_counter() + delay
    while time.perf_counter() < until:
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    writing = os.read(pipe, 1) == b""
    os.close(pipe)
    return writing


def kill_writer(writer: Writer, folder: Path, kills: int, chance: random.Random) -> dict[str, Any]:
    """Kill one writer that often."""
    folder.mkdir()
    old, new, seconds = prepare(writer, folder)
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for i in range(kills):
        place = folder / str(i)
        counts["inside"] += kill_once(writer, place, chance.uniform(0, 1.2 * seconds))
        try:
            found = writer.read(place)
            if not writer.fits(found, old, new):
                wrong.append(f"kill {i}: found {str(found)[:200]}")
            if found == new:
                counts["new"] += 1
            else:
                counts["old" if found == old else "beginning"] += 1
            if writer.repeats:
                writer.write(place, NEW)
            if writer.repeats and writer.read(place) != new:
                wrong.append(f"kill {i}: what is written afterwards is not what is read")
        except Exception as error:
            wrong.append(f"kill {i}: {type(error).__name__}: {error}"[:300])
        shutil.rmtree(place)
    return {**counts, "wrong": wrong}


def main(folder: Path, kills: int, seed: int, which: str) -> None:
    """Kill each writer equally often, `kills` times in all."""
    os.fsync = os.fdatasync = lambda fd: None  # type: ignore[assignment] # what a kill leaves does not depend on the disk
    trace_writer.RESERVE_BYTES = 4096
    chance, found = random.Random(seed), {}
    writers = LIGHT if which == "light" else [*LIGHT, *HEAVY]
    for i, writer in enumerate(writers):
        share = kills // len(writers) + (i < kills % len(writers))
        found[writer.name] = kill_writer(writer, folder / str(i), share, chance)
        if which == "light":
            assert "torch" not in sys.modules, f"{writer.name} loads torch"
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
