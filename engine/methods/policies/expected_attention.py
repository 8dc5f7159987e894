"""Expected Attention: keep the entries that future queries are expected to attend to."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.probe import Needs
from decodescope.engine.decoding.bases.policy import MOST, share_knob
from decodescope.engine.decoding.bases.prefill_eviction import PrefillEviction
from decodescope.engine.decoding.values.prompt_attention import PromptAttention
from decodescope.engine.model.attention.attention import upcast_half
from decodescope.engine.model.stores.cache import LayerStore
from decodescope.engine.trace.records.parts import Zone


@component
class ExpectedAttention(PrefillEviction):
    """Cut the prompt once, after it has been read, by the expected attention of future queries.

    The queries are assumed to be distributed as the prompt's own.

    The unrotated queries of a head are modelled as a Gaussian with mu and Sigma, over the prompt without its first
    `sink_tokens` tokens. The mean rotation R of the next `future_positions` positions gives mu' = R mu and Sigma' = R Sigma
    R^T. The mean of exp(s q k) is then e^z with z = s k mu' + s^2 k Sigma' k / 2, s = 1 / sqrt(D). The worth of an entry is the
    softmax of z over all entries, averaged over the query heads of its group, plus `epsilon`, times the norm of its value.
    Sinks always stay.

    The policy needs no attention weights: mean and covariance are accumulated chunk by chunk in float32, and the prompt's
    passes stay fused. A cap on the scores is left out of z. The authors keep a share of the prompt; this code has both
    `prompt_budget` and `budget_share`.
    """

    title = "Expected Attention"
    source = (
        "Devoto et al. 2025, arXiv:2510.00636; NVIDIA/kvpress, kvpress/presses/expected_attention_press.py"
    )
    goes = (
        "When the prompt has been read each KV head gives up the entries from which the queries to come are expected to draw "
        "least. What is written stays."
    )

    sink_tokens: int = param(
        4,
        low=0,
        high=64,
        unit="entries",
        help="first entries, always kept; their queries do not count in the statistics",
    )
    prompt_budget: int = param(
        60,
        low=1,
        high=MOST,
        unit="entries",
        help="prompt entries kept for the attention that they are expected to get",
    )
    future_positions: int = param(
        512,
        low=1,
        high=8192,
        unit="tokens",
        help="number of future positions over which the rotation is averaged",
    )
    use_covariance: bool = param(True, help="use the covariance of the queries, not only their mean")
    use_value_norm: bool = param(True, help="weight the expected attention by the norm of the value")
    epsilon: float = param(
        0.0,
        low=0.0,
        high=1.0,
        step=0.01,
        help="constant added to the expected attention before the value norm weights it",
    )
    budget_share: float = share_knob()

    @property
    def needs(self) -> Needs:
        return Needs(moments=self.sink_tokens)

    @property
    def zones(self) -> tuple[Zone, ...]:
        return Zone("sinks", "first", self.sink_tokens), Zone("expected", "chosen", self.prompt_budget)

    def set_budget(self, budget: int) -> None:
        self.prompt_budget = max(1, budget - self.sink_tokens)

    def entry_scores(self, layer: int, store: LayerStore, prompt: PromptAttention) -> Tensor:
        mean, covariance = prompt.future_query_moments(
            layer, self.future_positions
        )  # [B, H, D], [B, H, D, D]
        scale, groups = prompt.spec.score_scale, (prompt.spec.n_kv_heads, prompt.spec.group)
        k = upcast_half(store.k)[:, :, self.sink_tokens :].float()  # [B, H_kv, n - S, D]
        z = scale * (k @ mean.unflatten(1, groups).mT).mT  # [B, H_kv, g, n - S]
        if self.use_covariance:
            across = k[:, :, None] @ covariance.unflatten(1, groups)  # [B, H_kv, g, n - S, D]
            z = z + scale**2 / 2 * (across * k[:, :, None]).sum(-1)
        expected = z.softmax(-1).mean(2) + self.epsilon
        if self.use_value_norm:
            expected = expected * store.v[:, :, self.sink_tokens :].float().norm(dim=-1)
        return F.pad(expected, (self.sink_tokens, 0))
