"""HeadState and HeadTree: what drafters share that read guesses from heads on the target's last state."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from .drafters.base import Context, Drafter, Outcome
from .heads.base import Head
from .heads.files import missing
from .probe import Needs
from .spec import ModelSpec
from .trees import shaped_tree

if TYPE_CHECKING:
    from .method import Method


class HeadState(Drafter):
    """Keeps the target's final feature of the token before the root, which the heads `reads` guess from."""

    needs = Needs(hidden=frozenset({"final"}))
    reads: ClassVar[str]

    def refuse(self, method: Method, spec: ModelSpec) -> str | None:
        return missing(self.reads, spec)

    def begin(self, ctx: Context) -> None:
        self._heads: Head = ctx.target.decoder.heads[self.reads]
        probe = ctx.target.probe
        self._state: Tensor | None = None if probe is None else probe.hidden["final"][0, -1].clone()

    def observe(self, outcome: Outcome) -> None:
        last = outcome.verdict.path[-1] + 1 if outcome.verdict.path else 0
        self._state = outcome.hidden["final"][0, last]  # of the token before the next root


class HeadTree(HeadState):
    """The same, and a tree of `nodes` nodes that is shaped by the heads' rank accuracies, or by `rates` where their file does
    not tell them."""

    rates: ClassVar[tuple[tuple[float, ...], ...]]
    nodes: int

    @property
    def branches(self) -> bool:
        return self.nodes > 1

    def begin(self, ctx: Context) -> None:
        super().begin(ctx)
        self._template = shaped_tree((self._heads.rates or self.rates)[: self._heads.shape["heads"]], self.nodes)
