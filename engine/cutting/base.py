"""Cutting: the base of transforms that take parts of a model away, and the text that they may look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import Component
from decodescope.engine.model.decoder import Decoder
from decodescope.engine.model.gates import Gates
from decodescope.engine.model.slicing import sliced


@dataclass(frozen=True)
class Calibration:
    """Text that a transform may look at: tokens int64 [n], ids of the model."""

    tokens: Tensor


class Cutting(Component):
    """What the gates close is in no matrix afterwards, and neither computed nor cached (engine/model/slicing.py). Several go
    one behind the other. The model that comes out is another one: a method that is lossless on it has its law.

    reads: whether it looks at the calibration text
    """

    kind = "weights"
    reads: ClassVar[bool] = False

    def gates(self, model: Decoder, calibration: Calibration) -> Gates:
        """Hard gates for `model`, whose matrices are plain rows of float32 or float64, so that gradients can be had."""
        raise NotImplementedError

    def made(self, model: Decoder, calibration: Calibration) -> Decoder:
        """The model that is left of `model`, which stays as it is."""
        wide = torch.float64 if model.dtype == torch.float64 else torch.float32
        return sliced(model, self.gates(model.to(dtype=wide), calibration)).packed()
