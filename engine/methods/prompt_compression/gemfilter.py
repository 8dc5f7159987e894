"""GemFilter: an early layer finds the prompt tokens that matter, and the model reads only those."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.roles import TARGET
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.prompt_compression import (
    PromptCompression,
    UnreadPrompt,
    share_knob,
    tokens_from_share,
)
from decodescope.engine.trace.records.events import Cut

from .shared.pooling import pool_scores
from .shared.units import PromptText


@component
class GemFilter(PromptCompression):
    """Read the prompt twice: first through the layers below r alone, then the `prompt_budget` tokens that layer r finds,
    through all layers.

    At layer r, the scores are inner products of the last token's rotated queries [H, D] and the rotated keys of all tokens
    [H_kv, n, D]. They are neither scaled nor put through a softmax. They are summed over all query heads and averaged over
    `kernel` neighbours. The best tokens, in the order of the text, are the prompt of the second pass, at consecutive positions.
    The cache of the first pass is freed by then. So memory is the larger of both passes and not their sum: n entries in r + 1
    layers, then `prompt_budget` in all.

    Differences from the authors' code: the last token is always kept; theirs leaves that to its score. Layer r computes only
    queries, keys and values, because nothing reads its output. A prompt of at most `prompt_budget` tokens is read once. As in
    the authors' code, the second pass knows nothing about positions: the distance between two tokens is lost.
    """

    title = "GemFilter"
    source = "Shi et al. 2024, arXiv:2409.17422, algorithm 1; SalesforceAIResearch/GemFilter, my_baseline/GemFilter"

    prompt_budget: int = param(
        64, low=1, high=65_536, unit="tokens", help="number of prompt tokens that the target reads (k)"
    )
    layer: int = param(
        0,
        low=0,
        high=511,
        help="layer whose keys score the tokens (r); 0: the last layer of the model's lower half",
    )
    kernel: int = param(
        5,
        low=1,
        high=255,
        step=2,
        unit="tokens",
        help="number of neighbouring scores averaged into one; must be odd",
    )
    budget_share: float = share_knob()

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.layer >= spec.n_layers:
            return f"gemfilter.layer = {self.layer}: {spec.name} has the layers 0 to {spec.n_layers - 1}; choose one of them."
        return (
            None
            if self.kernel % 2
            else f"gemfilter.kernel = {self.kernel}: choose an odd number, so that it has a middle."
        )

    @property
    def budget(self) -> int:
        return self.prompt_budget

    def begin(self, prompt: int) -> None:
        if self.budget_share:
            self.prompt_budget = tokens_from_share(self.budget_share, prompt)

    def filter_layer(self, spec: ModelSpec) -> int:
        """The layer r of a model of this shape."""
        return self.layer or (spec.n_layers + 1) // 2 - 1

    def cut(self, reading: UnreadPrompt) -> Cut | None:
        if len(reading.tokens) <= self.prompt_budget:
            return None
        with reading.lane(TARGET) as lane:
            layer = self.filter_layer(lane.decoder.spec)
            queries = lane.read_to_layer(reading.tokens, layer, reading.between(TARGET))
            scores = self.scores(queries, lane.cache.layers[layer].k[0])
        last = np.arange(len(scores)) == len(scores) - 1
        return PromptText(reading).shorten_by_character(
            scores.float().cpu().numpy(), last, self.prompt_budget, layers=[layer]
        )

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        """float [n]: the score of each token, from the last token's queries [H, D] and all keys [H_kv, n, D].

        Half types are summed as float32.
        """
        H_kv, _, D = keys.shape
        wide = torch.promote_types(keys.dtype, torch.float32)
        # query heads that share keys are summed first: the result is the same
        asked = queries.to(wide).view(H_kv, -1, D).sum(1)
        products = torch.einsum("hd,hnd->n", asked, keys.to(wide))
        return pool_scores(products, self.kernel, "mean")
