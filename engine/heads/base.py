"""Head: what the nets of draft heads share. Weights are read-only while decoding, so copies of a session share them."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EPS = 1e-5


def normed(x: Tensor, weight: Tensor | None = None) -> Tensor:
    """x [..., d] at unit mean square, times weight [d] if there is one."""
    return F.rms_norm(x, x.shape[-1:], None if weight is None else weight.to(x.dtype), EPS)


class Head(nn.Module):
    """Base of every net of draft heads. It turns states of the target into features, of which the target's own unembedding
    makes logits: no head has a vocabulary matrix.

    kind:  its name, and that of its folder;  shape: the sizes that it was made with, as its file keeps them
    rates: per level of a draft (the last one serves all deeper levels), how often the guess of rank 0, 1, ... was the
           target's choice on held-out text; empty if nobody measured
    made_for: fingerprint of the target that it was trained on; empty: of none
    """

    kind: ClassVar[str]

    def __init__(self, **shape: int) -> None:
        super().__init__()
        self.shape = shape
        self.rates: tuple[tuple[float, ...], ...] = ()
        self.made_for = ""

    def __deepcopy__(self, memo: object) -> Head:
        return self

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights."""
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def moved(self, **where: Any) -> Head:
        """The same net in another dtype or on another device; the keywords are those of Tensor.to."""
        made = type(self)(**self.shape)
        made.load_state_dict(self.state_dict())
        made.rates, made.made_for = self.rates, self.made_for
        return made.to(**where).requires_grad_(False)
