"""Cutting: the base of transforms that take parts of a model away: heads, columns, whole blocks."""

from __future__ import annotations

from typing import ClassVar

import torch

from decodescope.engine.core.note import Finding
from decodescope.engine.core.params import ParamError
from decodescope.engine.model.decoder import Decoder
from decodescope.engine.model.gates import Gates
from decodescope.engine.model.matrix import Matrix
from decodescope.engine.model.slicing import kept, sliced

from .weights import MATRICES, Calibration, WeightTransform


class Cutting(WeightTransform):
    """What the gates close is in no matrix afterwards, and neither computed nor cached (engine/model/slicing.py). Several go
    one behind the other, before what stores matrices in fewer bits. Which heads stay is told."""

    finds: ClassVar[dict[str, Finding]] = {
        "stays": Finding("grid", "Stays", what="whether a query head is in the model that was made", over="head")
    }

    def gates(self, model: Decoder, calibration: Calibration) -> Gates:
        """Hard gates for `model`, whose matrices are plain rows of float32 or float64, so that gradients can be had."""
        raise NotImplementedError

    def made(self, model: Decoder, calibration: Calibration) -> Decoder:
        if any(isinstance(getattr(layer, name), Matrix) for layer in model.layers for name in MATRICES):
            raise ParamError(f"{self.name} cuts plain matrices: name it before what stores them in fewer bits.")
        wide = torch.float64 if model.dtype == torch.float64 else torch.float32
        gates, spec = self.gates(model.to(dtype=wide), calibration), model.spec
        left = [set(x) for x in kept(spec, gates)]
        calibration.tell(self, "stays", [[h in x for h in range(spec.heads_at(i))] for i, x in enumerate(left)])
        return sliced(model, gates).packed()
