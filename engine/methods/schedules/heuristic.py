"""Heuristic: two tokens more after a fully accepted draft, one fewer otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.schedule import Schedule

if TYPE_CHECKING:
    from decodescope.engine.decoding.bases.context import Context, DraftOutcome


@component
class Heuristic(Schedule):
    """The length begins at the drafter's own and adapts to the verdicts.

    After a fully accepted draft it grows by `increment`; after any other it shrinks by `decrement`, down to 1. An empty draft,
    when no room is left, changes nothing.

    The original has no upper bound; ours is `max_draft_tokens`.
    """

    title = "Heuristic: +2 if all matched, else -1"
    source = "huggingface/transformers, generation/candidate_generator.py, schedule 'heuristic'"
    tells: ClassVar[dict[str, Note]] = {
        "length": Note(
            "series", "length", "tokens", "of the draft, were there room", line="max_draft_tokens"
        ),
    }

    increment: int = param(
        2, low=1, high=16, unit="tokens", help="increase of the draft length after a fully accepted draft"
    )
    decrement: int = param(
        1, low=1, high=16, unit="tokens", help="decrease of the draft length after any other draft"
    )
    max_draft_tokens: int = param(20, low=1, high=64, unit="tokens", help="maximum length of a draft")

    def begin(self, ctx: Context) -> None:
        self._length: int | None = None

    def draft_limit(self, ctx: Context, length: int) -> int:
        if self._length is None:
            self._length = min(length, self.max_draft_tokens)
        return min(self._length, ctx.room)

    def observe(self, outcome: DraftOutcome) -> None:
        drafted = outcome.draft.drafted_count
        if drafted and self._length is not None:
            self._length = self.next_length(self._length, len(outcome.verdict.path) == drafted)

    def next_length(self, length: int, matched: bool) -> int:
        """The next length; matched: all of the draft was accepted."""
        return (
            min(length + self.increment, self.max_draft_tokens)
            if matched
            else max(length - self.decrement, 1)
        )

    def notes(self) -> dict[str, Any]:
        return {"schedule": {"length": self._length}}
