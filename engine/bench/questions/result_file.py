"""Measuring question by question: a result that grows, and the file from which an interrupted measurement goes on."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from decodescope.engine.core.progress import Progress

from .questions import BenchQuestion, LabBenchError

R = TypeVar("R")  # a dataclass of what was made of a question


@dataclass
class BenchResult(Generic[R]):
    """settings: what the figures depend on;  skipped: questions that do not fit the model, and why;  seconds: all in all"""

    kind: ClassVar[type]  # of a row

    settings: dict[str, Any]
    rows: list[R] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    complete: bool = False

    def record(self) -> dict[str, Any]:
        """The whole as plain data."""
        raise NotImplementedError

    def add_line(self, line: Mapping[str, Any]) -> None:
        """Add the results of a question: its rows, or why it was skipped."""
        self.rows += [self.kind(**x) for x in line["rows"]]
        self.skipped += [{"question": line["question"], "why": line["skipped"]}] if line["skipped"] else []
        self.seconds += line["seconds"]

    def accepts_line(self, line: Any) -> bool:
        """Whether `take` takes this line of a file."""
        if not isinstance(line, dict) or not {"question", "rows", "skipped", "seconds"} <= set(line):
            return False
        names = {x.name for x in fields(self.kind)}
        known = isinstance(line["rows"], list) and all(
            isinstance(x, dict) and set(x) == names for x in line["rows"]
        )
        return known and isinstance(line["seconds"], float)

    @property
    def done_ids(self) -> set[Any]:
        """The questions that it has, by id."""
        return {vars(x)["question"] for x in self.rows} | {x["question"] for x in self.skipped}


def measure_questions(
    result: BenchResult[R],
    questions: Sequence[BenchQuestion],
    work: Callable[[int, BenchQuestion], tuple[Sequence[R], str]],
    *,
    ready: Callable[[BenchQuestion], None],
    out: Path | None = None,
    resume: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Put every question that `result` does not have to `work`, which gives rows, or why it skips the question.

    `ready` warms up on the first of them.

    With `out` the measurements are kept in `out`.partial after every question, and become `out`, one JSON object, at the end.
    With `resume` the questions that are already there are not asked again. An interrupt ends the measurement, and `result`
    stays not `complete`. Raises LabBenchError for files that are in the way.
    """
    kept = None if out is None else ResultFile(out, result, resume)
    try:
        waiting = [(i, x) for i, x in enumerate(questions) if x.id not in result.done_ids]
        if waiting:
            say("warming up")
            ready(waiting[0][1])
        with Progress("questions", len(questions), "questions") as progress:
            for i, question in waiting:
                say(f"question {i + 1} of {len(questions)}: {question.kind}")
                progress.at(i, phase=question.kind)
                began = time.perf_counter()
                rows, why = work(i, question)
                plain = [asdict(x) for x in rows]  # type: ignore[call-overload] # R is a dataclass
                line = {
                    "question": question.id,
                    "rows": plain,
                    "skipped": why,
                    "seconds": time.perf_counter() - began,
                }
                result.add_line(line)
                if kept is not None:
                    kept.add(line)
        result.complete = True
        if kept is not None:
            kept.seal()
    except KeyboardInterrupt:
        pass
    finally:
        if kept is not None:
            kept.close()


class ResultFile:
    """The file of a measurement: `out`.partial, one line a question under a line of settings, and in the end `out`."""

    def __init__(self, out: Path, result: BenchResult[Any], resume: bool):
        self.out = out
        self.part = out.with_name(out.name + ".partial")
        self.result = result
        check_output(out, resume)
        try:
            good = self._read() if resume else 0
            self.file = self.part.open("r+b" if resume else "xb")
            self.file.truncate(good)
            self.file.seek(good)
        except (OSError, ValueError) as error:
            if isinstance(error, LabBenchError):
                raise
            raise LabBenchError(
                f"{out} cannot be written: {getattr(error, 'strerror', None) or error}."
            ) from None
        if not good:
            self._write_line({"settings": result.settings})

    def _read(self) -> int:
        """Take over the questions in the file; return how many bytes of it are whole lines."""
        # a line that was being written when the program ended is left out
        lines = self.part.read_bytes().split(b"\n")[:-1]
        good = 0
        for i, line in enumerate(lines):
            try:
                record = json.loads(line)
            except ValueError:
                record = {}
            settings = record.get("settings") if i == 0 and isinstance(record, dict) else None
            if not (isinstance(settings, dict) if i == 0 else self.result.accepts_line(record)):
                raise LabBenchError(
                    f"Line {i + 1} of {self.part} is not of a measurement: move the file away and begin again."
                )
            if settings is not None:
                self._check_settings(settings)
            else:
                self.result.add_line(record)
            good += len(line) + 1
        return good

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        """Refuse to go on under other settings."""
        mine = json.loads(json.dumps(self.result.settings))
        other = next((x for x in mine if mine[x] != settings.get(x)), None)
        if other is not None:
            raise LabBenchError(
                f"{self.part} was measured with {other} = {_short_json(settings.get(other))}, "
                f"now it is {_short_json(mine[other])}: use "
                "the same settings, or another file."
            )

    def add(self, line: Mapping[str, Any]) -> None:
        """Write the results of a question, as the result's `take` reads them."""
        self._write_line(line)

    def _write_line(self, said: Mapping[str, Any]) -> None:
        try:
            self.file.write(json.dumps(said).encode() + b"\n")
            self.file.flush()
        except OSError as error:
            raise _write_error(self.part, error) from None

    def seal(self) -> None:
        """Write the whole as one object, and remove the other file."""
        fresh = self.out.with_name(self.out.name + ".new")
        try:
            fresh.write_text(json.dumps(self.result.record(), allow_nan=False) + "\n", encoding="utf-8")
            os.replace(fresh, self.out)
        except OSError as error:
            raise _write_error(self.out, error) from None
        self.close()
        self.part.unlink()

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def check_output(out: Path, resume: bool) -> None:
    """Raise LabBenchError if `out` cannot be written, or, with `resume`, there is nothing to continue."""
    try:
        if out.exists():
            raise LabBenchError(f"{out} exists already: choose another name, or move it away.")
        part = out.with_name(out.name + ".partial")
        if resume and not part.exists():
            raise LabBenchError(f"There is no {part} to go on from: leave --resume out.")
        if not resume and part.exists():
            raise LabBenchError(
                f"{part} exists already: go on with --resume, choose another name, or move it away."
            )
        if not out.parent.is_dir():
            raise LabBenchError(
                f"There is no folder {out.parent} for the result: make it first, or choose another."
            )
    except OSError as error:  # a name that the system does not take, a folder that may not be looked into
        raise LabBenchError(f"{str(out)[:200]} cannot be written: {error.strerror}.") from None


def _short_json(value: Any) -> str:
    return json.dumps(value)[:60]


def _write_error(path: Path, error: OSError) -> LabBenchError:
    return LabBenchError(f"{path} cannot be written ({error.strerror}): make room, then go on with --resume.")
