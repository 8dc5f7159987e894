"""Cutting: the base of transforms that take parts of a model away: heads, columns, whole blocks."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.note import Finding
from decodescope.engine.core.params import ParamError
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.slicing import kept_heads, slice_by_gates
from decodescope.engine.model.layers.gates import Gates
from decodescope.engine.model.layers.matrix import Matrix

from .weights import MATRICES, CalibrationData, MatrixPlace, WeightTransform, format_transform_list


class StructuredPruning(WeightTransform):
    """Remove the parts with closed gates: they are in no matrix afterwards, and are neither computed nor cached
    (engine/model/forward/slicing.py).

    Several prunings run one after the other, before transforms that store matrices in fewer bits. The remaining heads are
    recorded. A pruning that looks at a text is slow: its result is kept (`Calibration.shelf`), unless it also changes the
    weights that stay."""

    finds: ClassVar[dict[str, Finding]] = {
        "stays": Finding(
            "grid", "Stays", what="whether a query head is in the model that was made", over="head"
        )
    }

    def gates(self, model: Decoder, calibration: CalibrationData) -> Gates:
        """Hard gates for `model`, whose matrices are plain rows of float32 or float64, so that gradients can be had."""
        raise NotImplementedError

    def fit_gates(
        self, model: Decoder, calibration: CalibrationData
    ) -> tuple[Gates, Mapping[MatrixPlace, Tensor]]:
        """`gates` for the model as it is, and those matrices [out, in] that are others than its own, in its whole shape: what
        stays was trained along, or makes up for what goes."""
        return self.gates(unpack_model(model), calibration), {}

    def transform(self, model: Decoder, calibration: CalibrationData) -> Decoder:
        if any(isinstance(getattr(layer, name), Matrix) for layer in model.layers for name in MATRICES):
            raise ParamError(
                f"{self.name} cuts plain matrices: name it before what stores them in fewer bits."
            )
        spec = model.spec
        shelf = calibration.shelf if self.reads else None
        words = format_transform_list([self])
        others: Mapping[MatrixPlace, Tensor] = {}
        before = None if shelf is None else shelf.get(words, spec)
        if before is None:
            gates, others = self.fit_gates(model, calibration)
        else:
            gates = before[0]
            calibration.restore_findings(before[1])
        smaller = slice_by_gates(replace_layer_matrices(model, others), gates).pack_weights()
        if shelf is not None and before is None and not others:
            shelf.put(words, gates, calibration.findings)
        left = [set(x) for x in kept_heads(spec, gates)]
        calibration.add_finding(
            self, "stays", [[h in x for h in range(spec.heads_at(i))] for i, x in enumerate(left)]
        )
        return smaller


def unpack_model(model: Decoder) -> Decoder:
    """The model in plain rows of float32, or float64 if it is that."""
    return model.to(dtype=torch.float64 if model.dtype == torch.float64 else torch.float32)


def replace_layer_matrices(model: Decoder, others: Mapping[MatrixPlace, Tensor]) -> Decoder:
    """`model` with these matrices of its layers instead of its own, cast to its type. They may carry a gradient."""
    decoder = copy.copy(model)
    decoder.forget_costs()
    decoder.layers = [
        replace(
            layer,
            **{x: others[MatrixPlace(i, x)].to(model.dtype) for x in MATRICES if MatrixPlace(i, x) in others},
        )
        for i, layer in enumerate(model.layers)
    ]
    return decoder
