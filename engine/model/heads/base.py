"""Head: what the nets of draft heads share. Weights are read-only while decoding, so copies of a session share them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from decodescope.engine.core.spec import Rope
from decodescope.engine.kernels.choice import kernels_for

from ..checkpoint.keys import KeyReading
from ..layers.faults import require_finite
from ..layers.matrix import linear, pack, unpack
from ..layers.vocabulary import Vocabulary

EPS = 1e-5


def unit_rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = EPS) -> Tensor:
    """x [..., d] at unit mean square, times weight [d] if there is one; eps is added to the mean square."""
    weight = None if weight is None else weight.to(x.dtype)
    if (kernels := kernels_for(x, weight)) is not None:
        return kernels.rms_norm(x, weight, eps)
    return F.rms_norm(x, x.shape[-1:], weight, eps)


class HeadLinear(nn.Linear):
    """x W^T + b for x [..., in]; W may be packed for this processor, and then it serves reading only."""

    __call__: Callable[..., Tensor]  # torch declares only that it is callable

    def forward(self, x: Tensor) -> Tensor:
        """float [..., out]."""
        return linear(x, self.weight, self.bias)


class FusedLinears(nn.Module):
    """Base of a part with linear maps `joins` that read the same input: separate in its file, one product once packed."""

    __call__: Callable[..., Tensor]

    joins: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        super().__init__()
        self._whole: tuple[Tensor, Tensor | None, list[int]] | None = (
            None  # matrix, bias, and how many rows each map has
        )

    def project_all(self, x: Tensor) -> Tensor:
        """The outputs [..., sum of out] of all of them, one after the other, for x [..., in]."""
        if self._whole is None:
            return torch.cat([getattr(self, name)(x) for name in self.joins], -1)
        return linear(x, *self._whole[:2])

    def fuse_linears(self) -> None:
        """Make one product of them, which takes their place."""
        layers = [cast(HeadLinear, getattr(self, name)) for name in self.joins]
        bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
        self._whole = (
            pack(torch.cat([layer.weight for layer in layers])),
            bias,
            [layer.out_features for layer in layers],
        )
        for name in self.joins:
            delattr(self, name)

    def split_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The rows of what was joined, by the names that its file has for them."""
        if self._whole is not None:
            weight, bias, widths = self._whole
            for kind, whole in (("weight", unpack(weight)), ("bias", bias)):
                if whole is not None:
                    yield from (
                        (f"{name}.{kind}", x) for name, x in zip(self.joins, whole.split(widths), strict=True)
                    )


class RotaryPart(FusedLinears):
    """Base of a part that rotates queries and keys. rope: how; its net's `shape` holds the base alone, so a scaled rotation is
    set once the net is made, before its first pass. window: a query sees the last `window` positions, itself included; 0: all.
    It is set in the same way. sizes: query heads, KV heads and the width of a head."""

    rope: Rope
    window: int = 0
    sizes: tuple[int, int, int]


class Head(nn.Module):
    """Base of every net of draft heads. It turns states of the target into features; the target's own unembedding turns
    these into logits. Only published heads may bring vocabulary matrices of their own.

    kind:  its name, and that of its folder;  shape: the sizes that it was made with, as its file keeps them
    rates: per level of a draft (the last one serves all deeper levels), how often the guess of rank 0, 1, ... was the
           target's choice on held-out text; empty if not measured
    threshold: for a head that says when to stop, the value that it was calibrated for, from its file; None: not calibrated
    made_for: fingerprint of the target that it was trained on; empty: none or unknown
    remarks: sentences about its files and how they were read: keys that are not read, an embedding of its own
    source: the files that it was read from, each with its size and time at that moment; empty: none
    layout: the project in whose layout its files are; empty: this one
    readings: the keys of its config.json, and what was made of each
    words: the heads' own vocabulary matrices, one each; None: they share the target's
    own_embed: its own embedding, float [V, d]; None: it reads the target's
    works: methods that drafting calls in addition to the net itself, for clocks
    of_target: sizes of `shape` that must be the target's, by the names of ModelSpec; d always is
    """

    kind: ClassVar[str]
    works: ClassVar[tuple[str, ...]] = ()
    of_target: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **shape: int) -> None:
        super().__init__()
        self.shape = shape
        self.rates: tuple[tuple[float, ...], ...] = ()
        self.threshold: float | None = None
        self.made_for = ""
        self.remarks: list[str] = []
        self.source: tuple[tuple[Path, int, int], ...] = ()
        self.layout = ""
        self.readings: list[KeyReading] = []
        self.words: nn.ModuleList | None = None
        self.own_embed: nn.Parameter | None = None

    def __deepcopy__(self, memo: object) -> Head:
        return self

    @classmethod
    def sizes(cls) -> dict[str, int | None]:
        """Every size that the net is made with, and what it is if it is not given; None: it must be.

        A net that takes the sizes of the net it is built on too (**) has them.
        """
        given = list(inspect.signature(cls.__init__).parameters.values())[1:]
        own = {
            x.name: None if x.default is inspect.Parameter.empty else x.default
            for x in given
            if x.kind is not x.VAR_KEYWORD
        }
        above = cast("type[Head]", cls.__mro__[1])
        return own if len(own) == len(given) else {**above.sizes(), **own}

    @classmethod
    def from_tensors(cls, shape: Mapping[str, int], tensors: Mapping[str, Tensor]) -> Self:
        """The net of these sizes that holds `tensors`; no room is taken for others first."""
        with torch.device("meta"):
            head = cls(**shape)
        head.load_state_dict(tensors, assign=True)
        return head.requires_grad_(False)

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights."""
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def copy_to(self, **where: Any) -> Self:
        """The same net in another dtype or on another device; the keywords are those of Tensor.to. What is not a float
        keeps its type."""
        whole: dict[str, Any] = {"device": where.get("device")}
        return self.with_tensors(
            {name: x.to(**(where if x.is_floating_point() else whole)) for name, x in self.tensors().items()}
        )

    def pack_weights(self) -> Self:
        """The same net with its matrices laid out for this processor, for decoding; the plain ones are not kept."""
        head = self.with_tensors(self.tensors())
        for part in [part for part in head.modules() if isinstance(part, FusedLinears)]:
            part.fuse_linears()
        for layer in head.modules():
            if isinstance(layer, HeadLinear):
                layer.weight = nn.Parameter(pack(layer.weight), requires_grad=False)
        return head

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor as its file has it, by its name there; packed or not, the same."""
        tensors = {name: unpack(x) for name, x in self.state_dict().items()}
        parts = [(place, part) for place, part in self.named_modules() if isinstance(part, FusedLinears)]
        return tensors | {f"{place}.{name}": x for place, part in parts for name, x in part.split_tensors()}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        """The same net, with its metadata, that holds `tensors` (names and forms as `tensors()` has them)."""
        return self._copy_metadata(self.from_tensors(self.shape, tensors))

    def _copy_metadata(self, head: Self) -> Self:
        """Give `head`, another form of this net, the metadata of this one; tensors are not copied."""
        head.rates = self.rates
        head.made_for = self.made_for
        head.remarks = self.remarks
        head.layout, head.readings = self.layout, self.readings
        head.source = self.source
        head.threshold = self.threshold
        for name, part in self.named_modules():
            if isinstance(part, RotaryPart):
                other = cast(RotaryPart, head.get_submodule(name))
                other.rope, other.window = part.rope, part.window
        return head

    def embedding(self, decoder: Vocabulary) -> Tensor:
        """The embedding [V, d] that it reads tokens by: its own, or the target's."""
        return decoder.embed if self.own_embed is None else self.own_embed

    def share_embedding(self, embed: Tensor, where: str) -> Self:
        """The net without its own embedding if that equals the target's, `embed` [V, d]; otherwise the net itself, with a
        remark. where: the owner of the embedding."""
        if self.own_embed is None:
            return self
        rows = len(self.own_embed)
        if self.own_embed.shape == embed.shape:
            rows = int((self.own_embed.to(embed) != embed).any(1).sum())
        if rows:
            many = f"{rows} of {len(embed)} rows differ from the target's"
            self.remarks = [
                *self.remarks,
                f"{where} has an embedding of its own ({many}): it drafts with that.",
            ]
            return self
        others = {name: x for name, x in self.tensors().items() if name != "own_embed"}
        return self._copy_metadata(self.from_tensors(self.shape | {"own_embed": 0}, others))

    def unembedding_input(self, features: Tensor) -> Tensor:
        """The input [..., d] of the unembedding for the features [..., d] that the net made: by default these features."""
        return features

    def logits(self, features: Tensor, decoder: Vocabulary, first: int = 0) -> Tensor:
        """Logits [K, ..., V] of features [K, ..., d], which heads `first`, `first` + 1, ... made; half types come out as
        float32. Raises EngineFault if they are not finite."""
        return require_finite(self._logits(features, decoder, first), f"the heads {self.kind}")

    def _logits(self, features: Tensor, decoder: Vocabulary, first: int) -> Tensor:
        if self.words is None:
            return decoder.unembed(self.unembedding_input(features))
        mine = cast("list[nn.Module]", list(self.words))[first : first + len(features)]
        logits = torch.stack([head(x) for head, x in zip(mine, features, strict=True)])[..., : decoder.vocab]
        return logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
