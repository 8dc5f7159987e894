"""A killed writer loses nothing that it has acknowledged; a trace can be read and written without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from sizes import sizes

# A process without torch forks a writer, kills it at a random moment, and looks at what the writer left behind.
_NURSERY = """
import json, os, random, select, signal, sys, time
from pathlib import Path
sys.modules["torch"] = None  # an import of torch would fail
from decodescope.engine.trace import Header, Step, TraceWriter, open_trace, recover, check
from decodescope.engine.trace.file import writer as file_writer
import numpy as np
os.fsync = os.fdatasync = lambda fd: None  # what a kill leaves does not depend on the disk; a power cut is another test
file_writer.RESERVE_BYTES = 4096

folder, kills = Path(sys.argv[1]), int(sys.argv[2])
chance = random.Random(7)
lost = torn = acknowledged = different = wrong = 0

def write(path, ack):
    writer = TraceWriter(path, Header({"vocab": 50}, {}, np.arange(3, dtype="<i4"), 0), sync_every_s=0.002)
    for k in range(100_000):
        writer.write(Step(k, 3 + k, 1.0 * k, 1.0, [k % 50], ["target"], rule={"x": list(range(k % 40))}))
        os.write(ack, b"+")

for i in range(kills):
    path = folder / f"{i}.dstrace"
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            write(path, theirs)
        finally:
            os._exit(1)
    os.close(theirs)
    got = os.read(ours, 1)  # the first step: the writer has begun
    until = time.monotonic() + chance.uniform(0, 0.003)
    while (left := until - time.monotonic()) > 0:
        if select.select([ours], [], [], left)[0]:
            got += os.read(ours, 65536)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(ours, 65536):
        got += more
    os.close(ours)
    partial = path.with_name(path.name + ".partial")
    left = partial.read_bytes()
    (one,) = recover(partial)
    first = one.made.read_bytes()
    trace = open_trace(one.made)
    lost += max(0, len(got) - len(trace.steps))
    acknowledged += len(got)
    torn += not first.startswith(left)
    wrong += i % 10 == 0 and not check(trace).ok
    one.made.unlink()
    if i % 5 == 0:
        partial.write_bytes(left)
        again = recover(partial)[0].made
        different += again.read_bytes() != first
        again.unlink()
loaded = [name for name in sys.modules if name.split(".")[0] == "torch" and sys.modules[name] is not None]
rest = sorted(path.name for path in folder.iterdir())
found = dict(lost=lost, acknowledged=acknowledged, torn=torn, different=different, wrong=wrong)
print(json.dumps(dict(found, torch=loaded, rest=rest)))
"""


@sizes("kills", usual=50, full=200)
def test_kills_lose_no_acknowledged_step(kills: int, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", _NURSERY, str(tmp_path), str(kills)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["lost"] == 0 and found["different"] == 0 and found["wrong"] == 0, found
    assert found["acknowledged"] > kills * 3, "the test needs writers that got going"
    assert found["torch"] == [] and found["rest"] == []
