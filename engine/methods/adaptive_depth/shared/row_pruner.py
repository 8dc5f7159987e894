"""Select the rows of a pass that go on: those that drew the most attention in the layer below."""

from __future__ import annotations

import math
from collections.abc import Collection

import torch
from torch import Tensor

from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.forward.feed import Feed


class RowPruner:
    """The remaining rows of a pass.

    In front of each of the given layers, a share of them goes on, at least one. These are the rows that received the most
    attention in the layer below, summed over heads and rows (PoWER-BERT leaves out a row's own). Rows with requested logits
    always go on. In a model that reads from left to right, a row's sum is divided by the number of rows that could see it.

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
        """Begin a pass with all of its rows."""
        self.left, self._asked = None, torch.arange(feed.length, device=feed.tokens.device)[feed.rows]

    def select(self, layer: int, rows: int, probe: Probe | None) -> Tensor | None:
        """Select which of the `rows` fed rows run `layer`; None: all. probe: the attention recorded in the layers below."""
        drawn = None if probe is None or layer not in self.at else probe.attention_by_entry(layer - 1)
        if drawn is None:
            return self.left
        here = torch.arange(rows, device=drawn.device) if self.left is None else self.left
        score = drawn[0].sum(0)[-len(here) :]  # earlier cache entries come first
        if self.causal:
            score = score / torch.arange(len(here), 0, -1, device=score.device)
        score = score.masked_fill(torch.isin(here, self._asked), math.inf)
        count = max(math.ceil(self.keep * len(here)), len(self._asked), 1)
        if count < len(here):
            self.left = here[score.topk(count).indices.sort().values]
        return self.left


def attention_needs(keep: float, at: Collection[int]) -> Needs:
    """What the pass must record: the attention of the layers below those in `at`.

    Nothing if all rows go on, because a pass that records attention rounds differently.
    """
    return Needs("columns", frozenset(layer - 1 for layer in at)) if keep < 1 and at else Needs()


def pruning_layer_conflict(name: str, at: tuple[int, ...], spec: ModelSpec) -> str | None:
    """Explain why a model of this shape cannot prune rows in front of these layers; None: it can."""
    if not at or max(at) < spec.n_layers:
        return None
    way = spec.choose_below("adaptive_depth all_layers")
    return f"{name}.pruning_layers names layer {max(at)}, and {spec.name} has {spec.n_layers}; {way}."
