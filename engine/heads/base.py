"""Head: what the nets of draft heads share. Weights are read-only while decoding, so copies of a session share them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from ..decoder import Decoder

EPS = 1e-5


def normed(x: Tensor, weight: Tensor | None = None, eps: float = EPS) -> Tensor:
    """x [..., d] at unit mean square, times weight [d] if there is one; eps is added to the mean square."""
    return F.rms_norm(x, x.shape[-1:], None if weight is None else weight.to(x.dtype), eps)


class Head(nn.Module):
    """Base of every net of draft heads. It turns states of the target into features, of which the target's own unembedding
    makes logits; only published heads may bring vocabulary matrices of their own.

    kind:  its name, and that of its folder;  shape: the sizes that it was made with, as its file keeps them
    rates: per level of a draft (the last one serves all deeper levels), how often the guess of rank 0, 1, ... was the
           target's choice on held-out text; empty if nobody measured
    made_for: fingerprint of the target that it was trained on; empty: of none, or nobody said
    words: the heads' own vocabulary matrices, one each; None: they share the target's
    """

    kind: ClassVar[str]

    def __init__(self, **shape: int) -> None:
        super().__init__()
        self.shape = shape
        self.rates: tuple[tuple[float, ...], ...] = ()
        self.made_for = ""
        self.words: nn.ModuleList | None = None

    def __deepcopy__(self, memo: object) -> Head:
        return self

    @classmethod
    def around(cls, shape: Mapping[str, int], tensors: Mapping[str, Tensor]) -> Self:
        """The net of these sizes that holds `tensors`; no room is taken for others first."""
        with torch.device("meta"):
            made = cls(**shape)
        made.load_state_dict(tensors, assign=True)
        return made.requires_grad_(False)

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights."""
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def moved(self, **where: Any) -> Head:
        """The same net in another dtype or on another device; the keywords are those of Tensor.to. What is not a float
        keeps its type."""
        whole = {"device": where.get("device")}
        tensors = {name: x.to(**(where if x.is_floating_point() else whole)) for name, x in self.state_dict().items()}
        made = self.around(self.shape, tensors)
        made.rates, made.made_for = self.rates, self.made_for
        return made

    def logits(self, features: Tensor, decoder: Decoder, first: int = 0) -> Tensor:
        """Logits [K, ..., V] of features [K, ..., d], which heads `first`, `first` + 1, ... made; half types come out as
        float32."""
        if self.words is None:
            return decoder.unembed(features)
        mine = cast("list[nn.Module]", list(self.words))[first : first + len(features)]
        made = torch.stack([head(x) for head, x in zip(mine, features, strict=True)])[..., : decoder.vocab]
        return made if made.dtype in (torch.float32, torch.float64) else made.float()
