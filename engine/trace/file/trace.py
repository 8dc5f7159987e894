"""Trace: one run, as views and notebooks see it, from a file or as it grows in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

from ..encoding.frame import encode
from ..records.events import End, Header, Piece, Prefill, Record, Step
from ..records.pieces import join, token_label
from ..records.prompt import effective_prompt
from ..values.limits import OWN, Limits, TraceError
from .reader import TraceFile
from .writer import TraceWriter, complete_end_record

if TYPE_CHECKING:
    pass


_KEPT = 256  # decoded steps that are kept at hand


def open_trace(path: str | Path, limits: Limits = OWN, *, verify: bool | None = None) -> Trace:
    """Open a trace file; its steps are decoded when they are asked for.

    verify: decode and check every record now, and refuse a file with any bad one. By default for all but our OWN files.
    Raises TraceError when nothing can be shown; `damage` describes the problem if a good part can be shown.
    """
    file = TraceFile(path, limits)
    try:
        if verify if verify is not None else limits is not OWN:
            for _ in file.records():
                pass
        return Trace._from_file(file)
    except BaseException:
        file.close()
        raise


class Trace:
    """A run: its header, steps and end.

    In memory it takes the same calls as a TraceWriter: `write(record)`, then `seal(end)`.
    damage: what is wrong with the file after the last step shown, or None;  path: of the file, or None
    """

    def __init__(self, records: Iterable[Record] = ()):
        self.header: Header
        self.prefill: Prefill | None = None
        self.steps: Sequence[Step] = _StepList()
        self.end: End | None = None
        self.path: Path | None = None
        self.damage: str | None = None
        self.file: TraceFile | None = None
        self._gathered = _GatheredText()
        for record in records:
            self.write(record)

    @classmethod
    def _from_file(cls, file: TraceFile) -> Trace:
        trace = cls()
        trace.header = file.header
        trace.path = file.path
        trace.file = file
        trace.steps = _FileSteps(file, trace._gathered)
        trace._look()
        return trace

    def write(self, record: Record) -> None:
        """Append one record; the first one is the header."""
        if self.file is not None:
            raise TraceError(f"{self.path} is open for reading: records are added by its TraceWriter.")
        if self.end is not None:
            raise TraceError("The trace is sealed: nothing can be added to it.")
        if isinstance(record, Step):
            assert isinstance(self.steps, _StepList)
            self.steps.append(record)
        elif isinstance(record, Header):
            self.header = record
        elif isinstance(record, Prefill):
            self.prefill = record
        else:
            self.end = record

    append = write

    def seal(self, end: End | None = None) -> None:
        """Add the end record, with counts and hashes as a file would have them."""
        bodies = (encode(record, seq) for seq, record in enumerate(self.records()))
        self.write(complete_end_record(bodies, end))

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the trace to a file. One that has no end yet is sealed there as "interrupted"."""
        with TraceWriter(path, self.header, overwrite=overwrite) as writer:
            for record in self.records():
                if not isinstance(record, Header | End):
                    writer.write(record)
            return writer.seal(self.end)

    def refresh(self) -> int:
        """Look for steps that were added to the file meanwhile; return how many there are now."""
        if self.file is not None:
            self.file.refresh()
            self._look()
        return len(self.steps)

    def close(self) -> None:
        """Let go of the file, if there is one."""
        if self.file is not None:
            self.file.close()

    def records(self) -> Iterator[Record]:
        """All records in order."""
        yield self.header
        if self.prefill is not None:
            yield self.prefill
        yield from self.steps
        if self.end is not None:
            yield self.end

    @property
    def emitted_ids(self) -> list[int]:
        """The ids that the steps added to the text."""
        self._learn()
        return self._gathered.emitted

    @property
    def tokens(self) -> list[int]:
        """The whole text as ids: the prompt, then what counts in the end, or, before the end, what was emitted."""
        tokens = self.end.tokens if self.end is not None else self.emitted_ids
        return [*self.header.prompt.tolist(), *tokens]

    @property
    def effective_prompt(self) -> list[int]:
        """The ids of the prompt as the target read it: without those that a context left out. Positions count these."""
        return effective_prompt(self.header, self.prefill)

    @property
    def pieces(self) -> dict[int, Piece]:
        """Token id -> its piece, for every id that the trace has shown."""
        self._learn()
        return self._gathered.pieces

    def piece(self, token: int) -> str:
        """One token for a label; `<E2 82>` where it is only bytes of a character, `<#id>` where it is unknown."""
        return token_label(token, self.pieces)

    def text(self, ids: Iterable[int] | None = None) -> str:
        """The text of `ids`, by default of the whole trace."""
        return join(self.tokens if ids is None else ids, self.pieces)

    def _look(self) -> None:
        """Take over what the file's index found."""
        assert self.file is not None
        file = self.file
        self.damage = file.damage
        if self.prefill is None and file.prefill is not None:
            self.prefill = file.record(file.prefill)  # type: ignore[assignment]  # the index says which kind it is
        if self.end is None and file.end is not None:
            self.end = file.record(file.end)  # type: ignore[assignment]

    def _learn(self) -> None:
        """Gather ids and pieces of the steps that came since the last time."""
        gathered = self._gathered
        gathered.begin(self.header)
        while gathered.steps < len(self.steps):
            gathered.add(gathered.steps, self.steps[gathered.steps])


class _GatheredText:
    """The ids and pieces of the first steps of a trace. Whoever reads all steps in order has gathered them on the way."""

    def __init__(self) -> None:
        self.emitted: list[int] = []
        self.pieces: dict[int, Piece] = {}
        self.steps = 0
        self._begun = False

    def begin(self, header: Header) -> None:
        """Take the pieces of the prompt, once."""
        if not self._begun:
            self.pieces = {int(key): piece for key, piece in header.pieces.items()} | self.pieces
            self._begun = True

    def add(self, index: int, step: Step) -> None:
        """Take step `index` if it is the next one."""
        if index == self.steps:
            self.emitted += step.emitted
            self.pieces.update((int(key), piece) for key, piece in (step.pieces or {}).items())
            self.steps += 1


class _StepList(list[Step]):
    """The steps of a trace in memory."""


class _FileSteps(Sequence[Step]):
    """The steps of a trace in a file, decoded when asked for."""

    def __init__(self, file: TraceFile, gathered: _GatheredText):
        self.file, self._gathered = file, gathered
        self._kept: OrderedDict[int, Step] = OrderedDict()

    def __len__(self) -> int:
        return len(self.file.steps)

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> list[Step]: ...
    def __getitem__(self, index: int | slice) -> Step | list[Step]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"step {index} of a trace of {len(self)} steps")
        step = self._kept.get(at)
        if step is None:
            step = self._kept[at] = self.file.step(at)
            self._gathered.add(at, step)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return step
