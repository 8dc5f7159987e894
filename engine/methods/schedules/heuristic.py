"""Heuristic: two tokens more when all were right, one fewer otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.schedule import Schedule

if TYPE_CHECKING:
    from decodescope.engine.decoding.bases.context import Context, Outcome


@component
class Heuristic(Schedule):
    """The length begins at the drafter's own. After a draft of which every token was accepted it grows by `grow`, after any
    other it shrinks by `shrink`, down to 1. An empty draft, at the end of the room, changes nothing.

    The original has no upper bound; ours is `most`.
    """

    title = "Heuristic: +2 if all matched, else -1"
    source = "huggingface/transformers, generation/candidate_generator.py, schedule 'heuristic'"
    tells: ClassVar[dict[str, Note]] = {
        "length": Note("series", "length", "tokens", "of the draft, were there room", line="most"),
    }

    grow: int = param(2, low=1, high=16, unit="tokens", help="added after a draft that was accepted whole")
    shrink: int = param(1, low=1, high=16, unit="tokens", help="taken off after any other draft")
    most: int = param(20, low=1, high=64, unit="tokens", help="longest draft")

    def begin(self, ctx: Context) -> None:
        self._length: int | None = None

    def allow(self, ctx: Context, length: int) -> int:
        if self._length is None:
            self._length = min(length, self.most)
        return min(self._length, ctx.room)

    def observe(self, outcome: Outcome) -> None:
        drafted = outcome.draft.drafted
        if drafted and self._length is not None:
            self._length = self.after(self._length, len(outcome.verdict.path) == drafted)

    def after(self, length: int, matched: bool) -> int:
        """The next length; matched: all of the draft was accepted."""
        return min(length + self.grow, self.most) if matched else max(length - self.shrink, 1)

    def notes(self) -> dict[str, Any]:
        return {"schedule": {"length": self._length}}
