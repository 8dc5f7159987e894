"""Strategy: the loop body, one decoding step from committed tokens to more committed tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from decodescope.engine.core.component import Component

if TYPE_CHECKING:
    from .state import Move, State


class Strategy(Component):
    """Base of every strategy.

    uses:     the kinds of parts it consults; setting another is refused, not ignored
    lossless: whether the text keeps the target's law;  changes: if not, why the text may differ, in a few words
    verdicts: whether a step is a draft, its tests by the acceptance rule and a token of the target's own, so that a record
              tells its verdict again, and one can be forced
    """

    kind = "strategy"
    uses: ClassVar[frozenset[str]] = frozenset()
    verdicts: ClassVar[bool] = False
    lossless: ClassVar[bool] = True
    changes: ClassVar[str] = ""

    def says(self) -> dict[str, Any]:
        return {"uses": sorted(self.uses), "verdicts": self.verdicts}

    def begin(self, s: State) -> None:
        """Called once, when the prompt has been read up to the root."""

    def step(self, s: State) -> Move:
        """Decide on more tokens, commit them, and say what happened."""
        raise NotImplementedError

