"""Expected Attention: keep what the queries to come are expected to look at."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.probe import Needs
from decodescope.engine.decoding.bases.once import Once
from decodescope.engine.decoding.bases.policy import MOST, share
from decodescope.engine.decoding.values.prompt import Prompt
from decodescope.engine.model.attention.attention import widened
from decodescope.engine.model.stores.cache import LayerStore
from decodescope.engine.trace.records.parts import Zone


@component
class ExpectedAttention(Once):
    """Cut the prompt once, when it has been read, by the attention that its entries would draw of queries that are distributed
    as the prompt's own were.

    Before their rotation the queries of a head are taken for a Gaussian: mu and Sigma, over the prompt but its first `sinks`
    tokens. The mean rotation R of the next `future` positions makes it mu' = R mu and Sigma' = R Sigma R^T, for which the mean
    of exp(s q k) is e^z with z = s k mu' + s^2 k Sigma' k / 2, s = 1 / sqrt(D). An entry is worth the softmax of z over all
    entries, in the mean over the query heads of its group, plus `epsilon`, times the norm of its value. Sinks always stay.

    No attention is asked for: mean and covariance are added up chunk by chunk in float32, and the prompt's passes stay fused. A
    cap on the scores is left out of z. The authors keep a share of the prompt; `chosen` and `share` are both here.
    """

    title = "Expected Attention"
    source = (
        "Devoto et al. 2025, arXiv:2510.00636; NVIDIA/kvpress, kvpress/presses/expected_attention_press.py"
    )
    goes = (
        "When the prompt has been read each KV head gives up the entries from which the queries to come are expected to draw "
        "least. What is written stays."
    )

    sinks: int = param(
        4, low=0, high=64, unit="entries", help="first entries kept for good; their queries do not count"
    )
    chosen: int = param(
        60, low=1, high=MOST, unit="entries", help="entries of the prompt kept for the attention expected"
    )
    future: int = param(
        512, low=1, high=8192, unit="tokens", help="positions ahead over which rotations are averaged"
    )
    spread: bool = param(True, help="whether the covariance of the queries counts, and not their mean alone")
    values: bool = param(True, help="whether the expected attention is weighed by the norm of the value")
    epsilon: float = param(
        0.0, low=0.0, high=1.0, step=0.01, help="added to the expected attention before it is weighed"
    )
    share: float = share()

    @property
    def needs(self) -> Needs:
        return Needs(moments=self.sinks)

    @property
    def zones(self) -> tuple[Zone, ...]:
        return Zone("sinks", "first", self.sinks), Zone("expected", "chosen", self.chosen)

    def divide(self, budget: int) -> None:
        self.chosen = max(1, budget - self.sinks)

    def worth(self, layer: int, store: LayerStore, prompt: Prompt) -> Tensor:
        mean, covariance = prompt.ahead(layer, self.future)  # [B, H, D], [B, H, D, D]
        scale, groups = prompt.spec.score_scale, (prompt.spec.n_kv_heads, prompt.spec.group)
        k = widened(store.k)[:, :, self.sinks :].float()  # [B, H_kv, n - S, D]
        z = scale * (k @ mean.unflatten(1, groups).mT).mT  # [B, H_kv, g, n - S]
        if self.spread:
            across = k[:, :, None] @ covariance.unflatten(1, groups)  # [B, H_kv, g, n - S, D]
            z = z + scale**2 / 2 * (across * k[:, :, None]).sum(-1)
        expected = z.softmax(-1).mean(2) + self.epsilon
        if self.values:
            expected = expected * store.v[:, :, self.sinks :].float().norm(dim=-1)
        return F.pad(expected, (self.sinks, 0))
