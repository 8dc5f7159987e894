"""What a page is told of a run on its way from the worker or from a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import toys

from decodescope.app.runs.record_stream import Channel


def test_a_file_from_before_parts_declared_their_notes_has_those_of_the_parts_that_there_are(
    tmp_path: Path,
) -> None:
    trace = toys.decode(toys.method(sampler="mirostat"), count=6).sink
    older = Channel("a", tmp_path / "a.dstrace")
    for record in (replace(trace.header, tells=None), *trace.steps):
        older.write(record)
    assert older.wire is not None and older.wire.head()["tells"]["sampler"]["mu"]["at"] == 5.0
    assert older.wire.step(trace.steps[2])["notes"] == {"sampler": {"mu": trace.steps[2].sampler["mu"]}}
    silent = Channel("b", tmp_path / "b.dstrace")
    silent.write(replace(trace.header, tells={}))
    assert silent.wire is not None and silent.wire.head()["tells"] == {}, (
        "a file that declares nothing tells nothing"
    )
