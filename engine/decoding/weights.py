"""WeightTransform: a model made of another, before any method runs on it. Calibration: the text that one may look at."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, cast

from torch import Tensor

from decodescope.engine.core.component import Component, build, component, param, written
from decodescope.engine.model.decoder import Decoder
from decodescope.engine.model.matrix import Matrix, bits, pack, unpack

MATRICES = ("qkv", "out", "gate_up", "down")  # of a layer, in the order of ModelSpec.bits


class Calibration:
    """Text that a transform may look at, read when it is first asked for."""

    def __init__(self, read: Callable[[], Tensor]):
        self._read = read

    @cached_property
    def tokens(self) -> Tensor:
        """int64 [n], ids of the model's own vocabulary. May raise a Refusal."""
        return self._read()

    def batches(self, rows: int, length: int) -> Iterator[Tensor]:
        """The text from its beginning, in batches int64 [rows, length]; what does not fill one is left out."""
        whole = len(self.tokens) // (rows * length)
        yield from self.tokens[: whole * rows * length].view(whole, rows, length)


class WeightTransform(Component):
    """Base of what makes a model of another. The other is not changed; weights that stay as they are are shared.

    What is made is real: matrices in fewer bytes are stored in these (engine/model/narrow.py), what is cut is neither computed
    nor cached. It is another model: a method that is lossless on it has its law, not that of the model that it was made of.

    reads: whether it looks at the calibration text
    """

    kind = "weights"
    reads: ClassVar[bool] = False

    def made(self, model: Decoder, calibration: Calibration) -> Decoder:
        """The model made of `model`, whose `spec` says its shape. Raises a Refusal where it cannot be made."""
        raise NotImplementedError


class Place(NamedTuple):
    """A matrix of a decoder: its layer, None for the head, and its name, one of MATRICES or "head"."""

    layer: int | None
    name: str

    def __str__(self) -> str:
        return self.name if self.layer is None else f"{self.name} of layer {self.layer}"


@component
class Rewriting(WeightTransform):
    """Base of transforms that store each matrix anew, by itself."""

    head: bool = param(False, help="the unembedding too, beside an embedding that stays as it is")

    def stored(self, place: Place, weight: Tensor) -> Tensor:
        """The matrix [out, in] that takes the place of these numbers."""
        raise NotImplementedError

    def made(self, model: Decoder, calibration: Calibration) -> Decoder:
        return rewritten(model, lambda place, x: self.stored(place, unpack(x)), self.head)


def rewritten(model: Decoder, change: Callable[[Place, Tensor], Tensor], head: bool = False) -> Decoder:
    """`model` with each of its matrices, as it is stored, replaced by `change` of it; the head's only if `head`. What comes
    back as plain rows is packed for the processor."""
    decoder = copy.copy(model)
    decoder.costs = {}
    decoder.layers = [
        replace(layer, **{name: pack(change(Place(i, name), getattr(layer, name))) for name in MATRICES})
        for i, layer in enumerate(model.layers)
    ]
    if head:
        decoder.head = decoder.unembedding = pack(change(Place(None, "head"), model.head))
    return decoder


def bits_of(model: Decoder) -> tuple[tuple[float, ...], ...]:
    """As `ModelSpec.bits` says it, counted from the storages; empty where every matrix stands in the model's own type."""
    weights = [[getattr(layer, name) for name in MATRICES] for layer in model.layers]
    rows = [*weights, [model.unembedding]]
    if not any(isinstance(x, Matrix) for row in rows for x in row):
        return ()
    return tuple(tuple(round(bits(x), 9) for x in row) for row in rows)


def transforms(text: str) -> list[WeightTransform]:
    """Those that a text names, in their order: "int4 group=64", "finequant + int8 head=true". Raises ParamError."""
    return [cast(WeightTransform, written("weights", x.strip(), "weights")) for x in text.split("+")] if text.strip() else []


def spelled(parts: Sequence[WeightTransform]) -> str:
    """What `transforms` reads, with no more than has to be said: knobs that are as they come are left out."""
    words = []
    for one in parts:
        usual: Any = build("weights", one.name)
        said = [(p, getattr(one, p.name)) for p in one.params() if getattr(one, p.name) != getattr(usual, p.name)]
        words.append(" ".join([one.name, *(f"{p.name}={p.spell(value)}" for p, value in said)]))
    return "+".join(words)
