"""A multi-token-prediction module: one decoder layer that a model is trained with, for the token after the next one."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...stores.cache import LayerStore
from ..base import unit_rms_norm
from .eagle import EagleLayer


class MtpModule(EagleLayer):
    """Slot t holds the pair (h_t, e(t+1)): the target's state of token t and the embedding of the token after it.

    x = W [norm(h); norm(e)], y = x + attention(norm(x)), g = norm(y + FFN(norm(y))): a whole decoder layer, with norms around
    it. The target's unembedding makes of g the logits of token t + 2. For a further token g takes the place of h. The embedding
    of the first slot counts as zero, as in vLLM and SGLang: no text has a token before it.

    Form and names as in vllm-project/vllm, model_executor/models/mimo_mtp.py (XiaomiMiMo/MiMo-7B).

    before_norm = 1: h is the output of the target's last layer, before the final norm;  0: after it. The other sizes are those
    of EAGLE's layer, whose matrices these are; `plain` and `unbiased` are always 1.
    """

    kind = "mtp"

    def __init__(self, before_norm: int = 0, **layer: int) -> None:
        super().__init__(**{**layer, "plain": 1, "unbiased": 1})
        self.shape["before_norm"] = before_norm
        d, self.eps = self.shape["d"], self.shape["eps"] * 1e-9
        self.hidden, self.token = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))  # norms of h and e
        self.first, self.last = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))  # around the layer

    def places(self, n_layers: int) -> tuple[int | Literal["final"], ...]:
        """The place of a target of so many layers that has its state read."""
        return (n_layers,) if self.shape["before_norm"] else ("final",)

    def forward(
        self,
        features: Tensor,
        embedded: Tensor,
        start: int = 0,
        store: LayerStore | None = None,
        depth: int = 0,
        visible: Tensor | None = None,
    ) -> Tensor:
        """The outputs [B, T, d] for states and embeddings [B, T, d]; the rest is `DraftAttention.forward`'s."""
        if start + depth == 0:
            embedded = F.pad(embedded[:, 1:], (0, 0, 1, 0))
        h, e = unit_rms_norm(features, self.hidden, self.eps), unit_rms_norm(embedded, self.token, self.eps)
        x = self.fuse(torch.cat([h, e], -1))
        y = x + self.attention(unit_rms_norm(x, self.first, self.eps), start, store, depth, visible)
        return unit_rms_norm(self.block(y), self.last, self.eps)
