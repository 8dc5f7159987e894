"""WeightTransform: a model made of another, before any method runs on it. Calibration: the text that one may look at."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, cast

from torch import Tensor

from decodescope.engine.core.component import Component, build, component, param, parse_component
from decodescope.engine.core.note import Finding, downsample
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.layers.matrix import Matrix, bits_per_number, pack, unpack

from ..values.transform_result import TransformCache

MATRICES = ("qkv", "out", "gate_up", "down")  # of a layer, in the order of ModelSpec.bits


DIGITS = 6  # of a number that is reported


class CalibrationData:
    """Text that a transform may read, loaded at first use, and the findings that transforms reported of it.

    shelf: where a slow transform stores its result; None: nothing is kept
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

    def add_finding(self, of: WeightTransform, name: str, values: Sequence[Any]) -> None:
        """One of the findings that a transform declares, with its values; of a series with very many the means of stretches."""
        finding = of.finds[name]
        some = downsample(values) if finding.over == "round" else values
        self._findings[name] = replace(finding, values=[_round_value(x) for x in some])

    def restore_findings(self, findings: Mapping[str, Finding]) -> None:
        """Restore the findings of an earlier look, which is not repeated."""
        self._findings |= findings

    @property
    def findings(self) -> dict[str, Finding]:
        """The findings since they were last taken, by name."""
        return dict(self._findings)

    def take_findings(self) -> dict[str, Finding]:
        """Return the findings since the last call, by name, and clear them."""
        findings, self._findings = self._findings, {}
        return findings


def _round_value(x: Any) -> Any:
    """A value as it is reported: few digits, and None for what is not a number."""
    if isinstance(x, Tensor):
        x = x.tolist()
    if isinstance(x, list | tuple):
        return [_round_value(y) for y in x]
    if isinstance(x, float):
        return float(f"{x:.{DIGITS}g}") if math.isfinite(x) else None
    return x


class WeightTransform(Component):
    """Base of transforms that make a model from another. The other model is not changed; unchanged weights are shared.

    The result is real: matrices in fewer bytes are stored so (engine/model/layers/compressed_matrices.py). Parts that are cut
    are neither computed nor cached. The result is another model: a method that is lossless on it has the distribution of
    that model, not of the original.

    reads: True if it looks at the calibration text
    finds: what it reports of its look and of the model that it was given (`Calibration.tell`), by name
    """

    kind = "weights"
    reads: ClassVar[bool] = False
    finds: ClassVar[dict[str, Finding]] = {}

    def transform(self, model: Decoder, calibration: CalibrationData) -> Decoder:
        """The transformed `model`; its `spec` describes its shape. Raises a Refusal if it cannot be made."""
        raise NotImplementedError

    def stored_bits(self, bits: int) -> float | None:
        """Bits of a number in the matrices of the layers, once it was applied to a model whose numbers have `bits` bits.

        None where only the result tells, or where they stay as they are.
        """
        return None


class MatrixPlace(NamedTuple):
    """A matrix of a decoder: its layer, None for the head, and its name, one of MATRICES or "head"."""

    layer: int | None
    name: str

    def __str__(self) -> str:
        return self.name if self.layer is None else f"{self.name} of layer {self.layer}"


@component
class MatrixTransform(WeightTransform):
    """Base of transforms that store each matrix in a new form, by itself. The loss of each matrix is reported."""

    finds: ClassVar[dict[str, Finding]] = {
        "error": Finding(
            "grid", "Error", what="the norm of what a matrix lost, divided by its own", over="matrix"
        ),
        "range": Finding(
            "grid", "Range", what="the largest absolute value in a matrix, before", over="matrix"
        ),
        "group": Finding("grid", "Group", unit="weights", what="numbers that share one scale", over="matrix"),
    }

    include_lm_head: bool = param(
        False, help="also transform the unembedding matrix; the embedding stays as it is"
    )

    def compress_matrix(self, place: MatrixPlace, weight: Tensor) -> Tensor:
        """The matrix [out, in] that takes the place of these numbers."""
        raise NotImplementedError

    def transform(self, model: Decoder, calibration: CalibrationData) -> Decoder:
        decoder = replace_matrices(
            model, lambda place, x: self.compress_matrix(place, unpack(x)), self.include_lm_head
        )
        add_loss_findings(self, model, decoder, calibration)
        return decoder


def add_loss_findings(
    of: WeightTransform, model: Decoder, after: Decoder, calibration: CalibrationData
) -> None:
    """Report error, range and group of every matrix that is stored in a new form; None if it is unchanged, or empty."""
    pairs = [
        [(getattr(a, x), getattr(b, x)) for x in MATRICES]
        for a, b in zip(model.layers, after.layers, strict=True)
    ]
    pairs.append([(model.unembedding, after.unembedding)])
    losses = [[_matrix_loss(before, after) for before, after in row] for row in pairs]
    for i, name in enumerate(("error", "range", "group")):
        calibration.add_finding(of, name, [[x[i] for x in row] for row in losses])


def _matrix_loss(before: Tensor, after: Tensor) -> tuple[float | None, float | None, int | None]:
    """Error, range and group of a matrix."""
    if not before.numel() or not isinstance(after, Matrix) or after is before:
        return None, None, None
    was = unpack(before).double()
    lost = (unpack(after).double() - was).norm() / was.norm().clamp_min(1e-300)
    return float(lost), float(was.abs().max()), after.scale_group_size


def replace_matrices(
    model: Decoder, change: Callable[[MatrixPlace, Tensor], Tensor], head: bool = False
) -> Decoder:
    """`model` with each of its matrices, as it is stored, replaced by `change` of it; the head's only if `head`. What comes
    back as plain rows is packed for the processor."""
    decoder = copy.copy(model)
    decoder.forget_costs()
    decoder.layers = [
        replace(
            layer, **{name: pack(change(MatrixPlace(i, name), getattr(layer, name))) for name in MATRICES}
        )
        for i, layer in enumerate(model.layers)
    ]
    if head:
        decoder.head = decoder.unembedding = pack(change(MatrixPlace(None, "head"), model.head))
    return decoder


def bits_of(model: Decoder) -> tuple[tuple[float, ...], ...]:
    """As `ModelSpec.bits`, counted from the storages; empty if every matrix is in the model's own type."""
    weights = [[getattr(layer, name) for name in MATRICES] for layer in model.layers]
    rows = [*weights, [model.unembedding]]
    if not any(isinstance(x, Matrix) for row in rows for x in row):
        return ()
    return tuple(tuple(round(bits_per_number(x), 9) for x in row) for row in rows)


def parse_transform_list(text: str) -> list[WeightTransform]:
    """Those that a text names, in their order: "int4 group=64", "finequant + int8 include_lm_head=true". Raises ParamError."""
    return (
        [cast(WeightTransform, parse_component("weights", x.strip(), "weights")) for x in text.split("+")]
        if text.strip()
        else []
    )


def format_transform_list(parts: Sequence[WeightTransform]) -> str:
    """The shortest text that `parse_transform_list` reads back: knobs with their default values are left out."""
    words = []
    for one in parts:
        usual: Any = build("weights", one.name)
        said = [
            (p, getattr(one, p.name)) for p in one.params() if getattr(one, p.name) != getattr(usual, p.name)
        ]
        words.append(" ".join([one.name, *(f"{p.name}={p.spell(value)}" for p, value in said)]))
    return "+".join(words)
