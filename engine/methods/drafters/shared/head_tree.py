"""HeadState and HeadTree: shared by drafters that read guesses from heads on the target's last state."""

from __future__ import annotations

from typing import ClassVar, cast

from torch import Tensor

from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.files import missing_reason

from .trees import SHAPED, shaped_tree


class HeadState(Drafter):
    """Keeps the target's final feature of the token before the root; the heads `reads` guess from it."""

    needs: ClassVar[Needs] = Needs(hidden=frozenset({"final"}))
    reads: ClassVar[str]

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return missing_reason(self.reads, spec)

    def begin(self, ctx: Context) -> None:
        self._heads = cast(Head, ctx.target.decoder.heads[self.reads])
        probe = ctx.target.probe
        self._state: Tensor | None = None if probe is None else probe.hidden["final"][0, -1].clone()

    def observe(self, outcome: DraftOutcome) -> None:
        last = outcome.verdict.path[-1] + 1 if outcome.verdict.path else 0
        self._state = outcome.hidden["final"][0, last]  # of the token before the next root


class HeadTree(HeadState):
    """A HeadState with a tree of `nodes` nodes, shaped by the heads' rank accuracies, or by `rates` if their file does not
    record them.
    """

    tells: ClassVar[dict[str, Note]] = SHAPED
    rates: ClassVar[tuple[tuple[float, ...], ...]]
    nodes: int

    @property
    def branches(self) -> bool:
        return self.nodes > 1

    def begin(self, ctx: Context) -> None:
        super().begin(ctx)
        self._template = shaped_tree(
            (self._heads.rates or self.rates)[: self._heads.shape["heads"]], self.nodes
        )
