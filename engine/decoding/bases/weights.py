"""WeightTransform: a model made of another, before any method runs on it. Calibration: the text that one may look at."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, cast

from torch import Tensor

from decodescope.engine.core.component import Component, build, component, param, written
from decodescope.engine.core.note import Finding, thinned
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.layers.matrix import Matrix, bits, pack, unpack

from ..values.transform_result import TransformCache

MATRICES = ("qkv", "out", "gate_up", "down")  # of a layer, in the order of ModelSpec.bits


DIGITS = 6  # of a number that is told


class Calibration:
    """Text that a transform may look at, read when it is first asked for, and what transforms told of their look.

    shelf: where a slow one leaves what it ends with; None: nothing is kept
    """

    shelf: TransformCache | None = None

    def __init__(self, read: Callable[[], Tensor]):
        self._read = read
        self._findings = dict[str, Finding]()

    @cached_property
    def tokens(self) -> Tensor:
        """int64 [n], ids of the model's own vocabulary. May raise a Refusal."""
        return self._read()

    def batches(self, rows: int, length: int) -> Iterator[Tensor]:
        """The text from its beginning, in batches int64 [rows, length]; what does not fill one is left out."""
        whole = len(self.tokens) // (rows * length)
        yield from self.tokens[: whole * rows * length].view(whole, rows, length)

    def tell(self, of: WeightTransform, name: str, values: Sequence[Any]) -> None:
        """One of the findings that a transform declares, with its values; of a series with very many the means of stretches."""
        finding = of.finds[name]
        some = thinned(values) if finding.over == "round" else values
        self._findings[name] = replace(finding, values=[_rounded(x) for x in some])

    def again(self, findings: Mapping[str, Finding]) -> None:
        """What was told of an earlier look, which is not made anew."""
        self._findings |= findings

    @property
    def findings(self) -> dict[str, Finding]:
        """What was told since it was taken, by name."""
        return dict(self._findings)

    def taken(self) -> dict[str, Finding]:
        """What was told since this was asked last, by name."""
        findings, self._findings = self._findings, {}
        return findings


def _rounded(x: Any) -> Any:
    """A value as it is told: few digits, and None for what is no number."""
    if isinstance(x, Tensor):
        x = x.tolist()
    if isinstance(x, list | tuple):
        return [_rounded(y) for y in x]
    if isinstance(x, float):
        return float(f"{x:.{DIGITS}g}") if math.isfinite(x) else None
    return x


class WeightTransform(Component):
    """Base of what makes a model of another. The other is not changed; weights that stay as they are are shared.

    What is made is real: matrices in fewer bytes are stored in these (engine/model/layers/compressed_matrices.py),
    what is cut is
    neither computed
    nor cached. It is another model: a method that is lossless on it has its law, not that of the model that it was made of.

    reads: whether it looks at the calibration text
    finds: what it tells of its look and of the model that it was given (`Calibration.tell`), by name
    """

    kind = "weights"
    reads: ClassVar[bool] = False
    finds: ClassVar[dict[str, Finding]] = {}

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
    """Base of transforms that store each matrix anew, by itself. What each of them lost is told."""

    finds: ClassVar[dict[str, Finding]] = {
        "error": Finding(
            "grid", "Error", what="the norm of what a matrix lost, divided by its own", over="matrix"
        ),
        "range": Finding(
            "grid", "Range", what="the largest absolute value in a matrix, before", over="matrix"
        ),
        "group": Finding("grid", "Group", unit="weights", what="numbers that share one scale", over="matrix"),
    }

    head: bool = param(False, help="the unembedding too, beside an embedding that stays as it is")

    def stored(self, place: Place, weight: Tensor) -> Tensor:
        """The matrix [out, in] that takes the place of these numbers."""
        raise NotImplementedError

    def made(self, model: Decoder, calibration: Calibration) -> Decoder:
        decoder = rewritten(model, lambda place, x: self.stored(place, unpack(x)), self.head)
        tell_losses(self, model, decoder, calibration)
        return decoder


def tell_losses(of: WeightTransform, model: Decoder, after: Decoder, calibration: Calibration) -> None:
    """Tell of every matrix that is stored anew its error, range and group; None where it is as it was, or empty."""
    pairs = [
        [(getattr(a, x), getattr(b, x)) for x in MATRICES]
        for a, b in zip(model.layers, after.layers, strict=True)
    ]
    pairs.append([(model.unembedding, after.unembedding)])
    losses = [[_loss(before, after) for before, after in row] for row in pairs]
    for i, name in enumerate(("error", "range", "group")):
        calibration.tell(of, name, [[x[i] for x in row] for row in losses])


def _loss(before: Tensor, after: Tensor) -> tuple[float | None, float | None, int | None]:
    """Error, range and group of a matrix."""
    if not before.numel() or not isinstance(after, Matrix) or after is before:
        return None, None, None
    was = unpack(before).double()
    lost = (unpack(after).double() - was).norm() / was.norm().clamp_min(1e-300)
    return float(lost), float(was.abs().max()), after.sharing


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
    return (
        [cast(WeightTransform, written("weights", x.strip(), "weights")) for x in text.split("+")]
        if text.strip()
        else []
    )


def spelled(parts: Sequence[WeightTransform]) -> str:
    """What `transforms` reads, with no more than has to be said: knobs that are as they come are left out."""
    words = []
    for one in parts:
        usual: Any = build("weights", one.name)
        said = [
            (p, getattr(one, p.name)) for p in one.params() if getattr(one, p.name) != getattr(usual, p.name)
        ]
        words.append(" ".join([one.name, *(f"{p.name}={p.spell(value)}" for p, value in said)]))
    return "+".join(words)
