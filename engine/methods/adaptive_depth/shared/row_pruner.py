"""Which rows of a pass go on: those that drew most of the attention of the layer below."""

from __future__ import annotations

import math
from collections.abc import Collection

import torch
from torch import Tensor

from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.forward.feed import Feed


class RowPruner:
    """The rows that are left of a pass. In front of each of some layers a share of them goes on, at least one: those to
    which the others gave most in the layer below, summed over heads and rows, as PoWER-BERT scores them. Rows whose
    logits are asked for always go on. Of a model that reads from left to right a row's sum is divided by how many could
    see it.

    left: int64 [R], ascending; None: all
    """

    def __init__(self, keep: float, at: Collection[int], causal: bool) -> None:
        """keep: the share that goes on;  at: the layers in front of which rows leave, 1 or above;  causal: the model reads from
        left to right."""
        self.keep = keep
        self.at = at
        self.causal = causal
        self.left: Tensor | None = None

    def begin(self, feed: Feed) -> None:
        """A pass begins: all of its rows are there."""
        self.left, self._asked = None, torch.arange(feed.length, device=feed.tokens.device)[feed.rows]

    def select(self, layer: int, rows: int, probe: Probe | None) -> Tensor | None:
        """The rows that run `layer`, of so many that were fed; probe: what the layers below have left behind."""
        drawn = None if probe is None or layer not in self.at else probe.attention_by_entry(layer - 1)
        if drawn is None:
            return self.left
        here = torch.arange(rows, device=drawn.device) if self.left is None else self.left
        score = drawn[0].sum(0)[-len(here) :]  # entries that were held before stand first
        if self.causal:
            score = score / torch.arange(len(here), 0, -1, device=score.device)
        score = score.masked_fill(torch.isin(here, self._asked), math.inf)
        count = max(math.ceil(self.keep * len(here)), len(self._asked), 1)
        if count < len(here):
            self.left = here[score.topk(count).indices.sort().values]
        return self.left


def attention_needs(keep: float, at: Collection[int]) -> Needs:
    """What is asked of a pass: the attention of the layers below those; nothing where all rows go on, since a pass that leaves
    attention behind rounds otherwise."""
    return Needs("columns", frozenset(layer - 1 for layer in at)) if keep < 1 and at else Needs()


def pruning_layer_conflict(name: str, at: tuple[int, ...], spec: ModelSpec) -> str | None:
    """What is wrong with the layers in front of which rows leave, of a model of this shape; None: nothing."""
    if not at or max(at) < spec.n_layers:
        return None
    way = spec.choose_below("adaptive_depth all_layers")
    return f"{name}.pruning_layers names layer {max(at)}, and {spec.name} has {spec.n_layers}; {way}."
