"""Tours: stops worth seeing in the shipped examples. A test checks every claim against its trace."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from .examples import FOLDER


@dataclass(frozen=True)
class TourStop:
    """One place of a run. step, node: numbered as in the views, with the root as node 0; status: of that node"""

    title: str
    text: str
    step: int
    node: int
    status: str

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@cache
def tours() -> dict[str, tuple[TourStop, ...]]:
    """Name of an example -> its stops; none where the package came without them."""
    try:
        rows = json.loads((FOLDER / "tours.json").read_text(encoding="utf-8"))
    except OSError:
        return {}
    return {name: tuple(TourStop(**stop) for stop in stops) for name, stops in rows.items()}
