"""What a page receives of a run from the worker or from a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import toys

from decodescope.app.runs.record_stream import RecordStream


def test_a_page_is_told_the_notes_that_the_header_declares(tmp_path: Path) -> None:
    trace = toys.decode(toys.method(sampler="mirostat"), count=6).sink
    channel = RecordStream("a", tmp_path / "a.dstrace")
    for record in (trace.header, *trace.steps):
        channel.write(record)
    assert channel.wire is not None and channel.wire.head()["tells"]["sampler"]["mu"]["at"] == 5.0
    assert channel.wire.step(trace.steps[2])["notes"] == {"sampler": {"mu": trace.steps[2].sampler["mu"]}}
    silent = RecordStream("b", tmp_path / "b.dstrace")
    silent.write(replace(trace.header, tells={}))
    assert silent.wire is not None and silent.wire.head()["tells"] == {}, (
        "a file that declares nothing tells nothing"
    )
