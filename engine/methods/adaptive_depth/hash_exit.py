"""Hash exit: the id of the token that is read decides how many layers its pass runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.adaptive_depth import AdaptiveDepth
from decodescope.engine.decoding.bases.exit_rule import CAUTION, FILLED, FILLS, gap_conflict
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import NOTHING, Skip
from decodescope.engine.trace.records.events import Exit


@component
class HashExit(AdaptiveDepth):
    """HashEE: the layers that a pass runs are a fixed function of the token that it reads.

    They are known before the pass begins, so there is no test and no cost of testing. It is the baseline that every criterion
    has to beat. Tokens are split into `buckets`, with depths evenly spaced from `min_layers` to all layers. `skipped_kv`
    decides what the layers above hold, as for other exits. With several rows, the deepest decides for all.

    by: "order" cuts the ids, in order, into buckets of one size. For a byte-pair vocabulary this is roughly the order of
    frequency (the paper's default sorts by counted frequency). "random" draws each id's bucket by `seed`. The paper trains with
    its table; this code does not. Lossy.
    """

    title = "Hash exit (HashEE)"
    source = "Sun et al. 2022, Findings of ACL, 'A Simple Hash-Based Early Exiting Approach'; txsun1997/HashEE, train_token.py"
    caution = CAUTION
    tells: ClassVar[dict[str, Note]] = {
        "depth": Note("series", "left after", "layers", "that ran for this pass")
    }

    buckets: int = param(
        6, low=2, high=64, help="number of groups of token ids; each group runs its own number of layers"
    )
    bucket_assignment: str = param(
        "order",
        choices=("order", "random"),
        help="how token ids are assigned to buckets: in their order, or at random",
    )
    min_layers: int = param(
        2,
        low=1,
        high=512,
        unit="layers",
        help="number of layers that the first bucket runs, the fewest of all",
    )
    seed: int = param(0, low=0, high=2**31 - 1, help="seed of the random assignment to buckets")
    skipped_kv: str = param("propagate", choices=FILLS, help=FILLED)

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.min_layers <= spec.n_layers:
            return gap_conflict(self, method)
        return f"{self.name}.min_layers = {self.min_layers}: {spec.name} has {spec.n_layers} layers; choose at most so many."

    def begin(self, spec: ModelSpec) -> None:
        self._layers = spec.n_layers
        self._depth = spec.n_layers
        self._rows: list[int] = []
        ids, step = torch.arange(spec.vocab), (spec.n_layers - self.min_layers) / (self.buckets - 1)
        if self.bucket_assignment == "random":
            ids = torch.randperm(spec.vocab, generator=torch.Generator().manual_seed(self.seed))
        self.table = (self.min_layers + step * (ids * self.buckets // spec.vocab)).round().long()

    def plan(self, position: int, feed: Feed) -> Skip:
        # the rows that decide
        read = feed.tokens[:, feed.logits] if isinstance(feed.logits, list) else feed.tokens
        self._rows = self.table[read.to("cpu")].flatten().tolist()
        self._depth = max(self._rows)
        return NOTHING

    def leave(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> bool:
        return layer >= self._depth

    def take_exit(self) -> Exit | None:
        return Exit(self._depth, self.bucket_assignment, rows=self._rows if len(self._rows) > 1 else None)
