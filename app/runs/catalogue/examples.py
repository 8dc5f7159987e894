"""Examples: the recorded runs that come with the package, and their descriptions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "assets" / "traces"


@dataclass(frozen=True)
class Example:
    """One recorded run. run: the id under which the page requests it; about: one sentence; model: the name of the fetched model
    that wrote it (`decodescope models get NAME`), "" if all its models come with the package"""

    name: str
    run: str
    title: str
    about: str
    model: str = ""

    @property
    def path(self) -> Path:
        """Its trace."""
        return FOLDER / f"{self.name}.dstrace"


@cache
def examples() -> tuple[Example, ...]:
    """All existing examples, those of fetched models in front; none if the package came without them."""
    try:
        rows = json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))
    except OSError:
        return ()
    return tuple(x for x in (Example(**row) for row in rows) if x.path.is_file())


def shipped_examples() -> tuple[Example, ...]:
    """Examples whose models come with the package, so that each can be repeated at once; the page opens on the first."""
    return tuple(x for x in examples() if not x.model)
