"""Strategy: the loop body, one decoding step from committed tokens to more committed tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ..component import Component

if TYPE_CHECKING:
    from ..state import Move, State


class Strategy(Component):
    """Base of every strategy. `uses`: the kinds of parts it consults; setting another is refused, not ignored."""

    kind = "strategy"
    uses: ClassVar[frozenset[str]] = frozenset()
    lossless: ClassVar[bool] = True

    def begin(self, s: State) -> None:
        """Called once, when the prompt has been read up to the root."""

    def step(self, s: State) -> Move:
        """Decide on more tokens, commit them, and say what happened."""
        raise NotImplementedError

