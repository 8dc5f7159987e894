"""Comparable runs: recorded runs with the same prompt and a model of the same shape, from their trace headers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from decodescope.engine.trace import TraceError, read_header
from decodescope.engine.trace.records.events import Header

from ..catalogue.examples import examples
from ..run_service import RUN, RunService

OTHERS = 64  # runs that are named


class HeaderCache:
    """The headers of the traces at hand, read once each."""

    def __init__(self, play: RunService):
        self.play = play
        self._known: dict[Path, tuple[tuple[int, int], Header | None]] = {}

    def comparable_runs(self, run: str, header: Header) -> list[str]:
        """Ids of the other runs with this prompt and these layers and heads, the newest first, then the examples."""
        paths = [path for path in self.play.folder.glob("*.dstrace") if RUN.fullmatch(path.stem)]
        newest = sorted(
            (-state[0], path.stem, path) for path in paths if (state := _file_stamp(path)) is not None
        )
        listed = [(name, path) for _, name, path in newest] + [(x.run, x.path) for x in examples()]
        return [name for name, path in listed if name != run and self._is_comparable(path, header)][:OTHERS]

    def _is_comparable(self, path: Path, header: Header) -> bool:
        state = _file_stamp(path)
        if state is None:
            return False
        kept = self._known.get(path)
        if kept is None or kept[0] != state:
            try:
                kept = (state, read_header(path))
            except TraceError:
                kept = (state, None)
            self._known[path] = kept
        other = kept[1]
        shape = ("n_layers", "n_kv_heads")
        return (
            other is not None
            and [other.model.get(x) for x in shape] == [header.model.get(x) for x in shape]
            and np.array_equal(other.prompt, header.prompt)
        )


def _file_stamp(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size
