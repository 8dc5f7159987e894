"""Cut layers: a fixed list of attention and feed-forward blocks is removed from the model."""

from __future__ import annotations

import torch

from decodescope.engine.core.component import component, param
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.pruning import StructuredPruning
from decodescope.engine.decoding.bases.weights import CalibrationData
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.layers.gates import Gates
from decodescope.engine.model.layers.partial_pass import Skip, parse_skip


@component
class CutLayers(StructuredPruning):
    """Remove the listed blocks from the model.

    None of their weights are held, and no pass runs them, not even for a prompt. A removed attention block has no cache. Layers
    keep their numbers. The list has the same form as for the adaptive-depth rule that skips the same blocks in every decoding
    pass, in a model that still holds them.

    A list may come from a search. Lossy, without training, at no cost.
    """

    title = "Cut layers (fixed list)"
    source = "control; lists as in Sieberling et al. 2024, arXiv:2410.14649; IST-DASLab/EvoPress, evo_drop_search.py"

    skip: tuple[str, ...] = param(
        (),
        least=0,
        help="blocks to cut, e.g. a2,f3,l5 (a: attention, f: feed-forward, l: both), at least one",
    )

    def gates(self, model: Decoder, calibration: CalibrationData) -> Gates:
        if not self.skip:
            raise ParamError(
                f"{self.name}.skip names no block, so the model would stay whole: write one or more, e.g. a2,f3,l5, or leave "
                f"{self.name} out."
            )
        try:
            return block_gates(parse_skip(self.skip, model.spec, f"{self.name}.skip"), model.spec)
        except ValueError as error:
            raise ParamError(str(error)) from None


def block_gates(plan: Skip, spec: ModelSpec) -> Gates:
    """Gates that close the blocks of a plan."""
    sub = torch.ones(spec.n_layers, 2)
    for column, blocks in enumerate((plan.attn, plan.ffn)):
        sub[sorted(blocks), column] = 0
    return Gates(sub=sub)
