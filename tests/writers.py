"""Everything that writes files: how each writes an old and a new content, and what its reader then finds.

`tests/test_write_faults.py` fails each of their writes, `tests/test_kills.py` kills them at random moments.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from decodescope.app.basis.storage import UPLOAD
from decodescope.app.commands import batch
from decodescope.app.commands.shared.growing_texts import GrowingTexts
from decodescope.app.runs.library import Library
from decodescope.engine.core import calibration
from decodescope.engine.core.files import write_json, write_whole
from decodescope.engine.model.fetched.download import FileDownload
from decodescope.engine.trace import Header, Step, Trace, TraceWriter, check, open_trace, recover

STEPS = 40
OLD, NEW = "old", "new"
BYTES = {OLD: b"o" * 70_000, NEW: b"n" * 200_000}


@dataclass(frozen=True)
class Writer:
    """What writes one file, or a few that belong together.

    write: (folder, OLD or NEW) writes that content;  read: what the reader finds; None: nothing
    grows: whether a beginning of the new content is right too: what was finished before
    begins: whether the old content is there before, so that the new one replaces it
    repeats: whether it can write again over what a fault left
    """

    name: str
    write: Callable[[Path, str], None]
    read: Callable[[Path], Any]
    grows: bool = False
    begins: bool = True
    repeats: bool = True

    def fits(self, found: Any, old: Any, new: Any) -> bool:
        """Whether what the reader found after a fault is right."""
        if self.grows and isinstance(found, list):
            return found == new[: len(found)] or found == old
        return found in (old, new)


def steps() -> Iterator[Step]:
    for k in range(STEPS):
        yield Step(k, 3 + k, 1.0 * k, 1.0, [k % 50], ["target"], rule={"x": list(range(k % 40))})


def write_trace(folder: Path, which: str) -> None:
    header = Header({"vocab": 50}, {}, np.arange(3, dtype="<i4"), 0, run="0" * 16)
    with TraceWriter(folder / "x.dstrace", header, sync_every_s=0.002) as writer:
        for step in steps():
            writer.write(step)
        writer.seal()


def read_trace(folder: Path) -> list[int] | None:
    """The tokens of the trace, recovered if it was not sealed; every record is read and checked."""
    for one in recover(folder):
        assert one.made is not None or one.partial.stat().st_size < 300, one.message
    paths = sorted(folder.glob("*.dstrace"))
    assert len(paths) < 2, paths
    if not paths:
        return None
    trace = open_trace(paths[0], verify=True)
    try:
        assert trace.damage is None and check(trace).ok
        return [step.emitted[0] for step in trace.steps]
    finally:
        trace.close()


ROWS = [{"name": str(i), "text": "ä" * 30 * i, "tokens": [i]} for i in range(12)]


def write_texts(folder: Path, which: str) -> None:
    growing = GrowingTexts(folder / "out.jsonl")
    for row in ROWS:
        growing.add(row)
    growing.close()
    if not batch._write_texts(folder / "out.jsonl", ROWS):
        raise OSError("the texts were printed")
    growing.remove()


def read_texts(folder: Path) -> list[Any] | None:
    """The texts of the file, and while there is none of those that are kept meanwhile: all lines but perhaps the last."""
    found = []
    for name in ("out.jsonl", "out.jsonl.partial"):
        if (folder / name).exists():
            lines = (folder / name).read_bytes().split(b"\n")
            assert name.endswith(".partial") or lines[-1] == b"", "the file of all texts has whole lines"
            found.append([json.loads(line) for line in lines[:-1]])
    return max(found, key=len) if found else None


def library(folder: Path) -> Library:
    play = SimpleNamespace(
        folder=folder, limits=SimpleNamespace(upload=64, keep=64), release_run=lambda run: None, channels=dict
    )
    return Library(play)  # type: ignore[arg-type]


def upload_bytes(which: str) -> bytes:
    """A trace as a visitor's file holds it: the old one is damaged, so that a whole one replaces it."""
    data = whole_trace()
    return data if which == NEW else data[:-200]


@cache
def whole_trace() -> bytes:
    """A sealed trace."""
    trace = Trace([Header({"vocab": 50}, {}, np.arange(3, dtype="<i4"), 0, run="0" * 16), *steps()])
    with tempfile.TemporaryDirectory() as place:
        return trace.save(Path(place) / "x.dstrace").read_bytes()


def write_upload(folder: Path, which: str) -> None:
    part = folder / f".{'0' * 16}{UPLOAD}"
    data = upload_bytes(which)
    try:
        with part.open("wb") as file:
            for at in range(0, len(data), 512):
                file.write(data[at : at + 512])
        library(folder).take(part, "x")
    finally:
        part.unlink(missing_ok=True)


def read_upload(folder: Path) -> list[int] | None:
    paths = [*folder.glob("*.dstrace")]
    if not paths:
        return None
    trace = open_trace(paths[0])
    try:
        return [step.emitted[0] for step in trace.steps] + [-1] * (trace.end is None)
    finally:
        trace.close()


def write_name(folder: Path, which: str) -> None:
    write_whole(folder / "x.dstrace.name", [which * 500])


def read_file(name: str) -> Callable[[Path], bytes | None]:
    return lambda folder: (folder / name).read_bytes() if (folder / name).exists() else None


def write_calibration(folder: Path, which: str) -> None:
    one = replace(calibrated(), name=which, n=10 if which == OLD else 20)
    calibration.write(one, folder / "x.json")


def calibrated() -> Any:
    from decodescope.engine.core.calibration import Calibration, CalibrationPoint

    points = (
        CalibrationPoint(9.0, 0.0, 0.001, True, (0.0,) * 10),
        CalibrationPoint(8.0, 0.5, 0.9, False, (0.5,) * 10),
    )
    return Calibration(
        name="x", part="policy", knob="window", value=9.0, risk="edit", test="hoeffding_bentkus", delta=0.1, eps=0.05,
        n=10, models={}, method={}, curve=points, max_new_tokens=8, seed=0, texts="0" * 16,
    )  # fmt: skip


def write_settings(folder: Path, which: str) -> None:
    write_json(folder / "model_folders.json", {str(i): which * 40 for i in range(200)})


def read_json_file(name: str) -> Callable[[Path], Any]:
    return lambda folder: json.loads((folder / name).read_text()) if (folder / name).exists() else None


class Answer:
    """What an index sends: pieces of a file, with their number."""

    status_code = 200

    def __init__(self, data: bytes):
        self.headers = {"content-length": str(len(data))}
        self.data = data

    def iter_content(self, size: int) -> Iterator[bytes]:
        """The pieces."""
        for at in range(0, len(self.data), 4096):
            yield self.data[at : at + 4096]


def write_download(folder: Path, which: str) -> None:
    """A download that goes on where the last one ended, and is unpacked under its final name."""
    data, part = BYTES[NEW], folder / "x.whl.part"
    download = FileDownload(part, len(data))
    download._write(Answer(data[download.held :]), download.held, "the index")  # type: ignore[arg-type]
    assert download._digest() == sha256(data).hexdigest(), "what was continued is the file"
    os.replace(part, folder / "x.gguf")


def read_download(folder: Path) -> list[int] | None:
    """The bytes of the file, or of what was fetched of it."""
    for name in ("x.gguf", "x.whl.part"):
        if (folder / name).exists():
            data = (folder / name).read_bytes()
            assert name.endswith(".part") or len(data) == len(BYTES[NEW])
            return list(data[::500])
    return None


def write_training(folder: Path, which: str) -> None:
    import torch

    from decodescope.engine.training.checkpoint import write_checkpoint

    head = torch.nn.Linear(64, 64)
    torch.nn.init.constant_(head.weight, 0.0 if which == OLD else 1.0)
    torch.nn.init.constant_(head.bias, 0.0)
    write_checkpoint(folder / "training.pt", head, [], {"step": 1 if which == OLD else 2})  # type: ignore[arg-type]


def read_training(folder: Path) -> Any:
    import torch

    from decodescope.engine.training.checkpoint import read_checkpoint

    head = torch.nn.Linear(64, 64)
    head.device = torch.device("cpu")  # type: ignore[assignment]
    place = read_checkpoint(folder / "training.pt", head, [])  # type: ignore[arg-type]
    return None if place is None else (place["step"], float(head.weight.detach().sum()))


def write_cache(folder: Path, which: str) -> None:
    from decodescope.engine.saved import file

    file._write(folder / "x.dscache", BYTES[which])


def write_answers_file(folder: Path, which: str) -> None:
    from decodescope.engine.training import answers

    for at in range(6):
        answers._append(folder / "answers.jsonl", [answers.TrainingText(at, list(range(50)), 3)])


def read_answers_file(folder: Path) -> list[int] | None:
    from decodescope.engine.training.answers import read_answers

    return [text.number for text in read_answers(folder / "answers.jsonl")] or None


LIGHT = [
    Writer("trace recorder", write_trace, read_trace, grows=True, begins=False, repeats=False),
    Writer("texts of a batch", write_texts, read_texts, grows=True, begins=False, repeats=False),
    Writer("upload to the library", write_upload, read_upload),
    Writer("name of a trace", write_name, read_file("x.dstrace.name")),
    Writer("calibration", write_calibration, read_json_file("x.json")),
    Writer("remembered folders", write_settings, read_json_file("model_folders.json")),
    Writer("download of a model", write_download, read_download, grows=True, begins=False),
]
HEAVY = [  # these load torch
    Writer("checkpoint of a training", write_training, read_training),
    Writer("saved cache", write_cache, read_file("x.dscache"), begins=False, repeats=False),
    Writer(
        "answers of a training",
        write_answers_file,
        read_answers_file,
        grows=True,
        begins=False,
        repeats=False,
    ),
]
whole_trace()  # before a disk is faulty
WRITERS = {writer.name: writer for writer in (*LIGHT, *HEAVY)}
