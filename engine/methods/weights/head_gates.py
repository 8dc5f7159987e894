"""Head gates: hard concrete gates are trained with a penalty on open gates, and the heads that close are cut."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Finding
from decodescope.engine.decoding.bases.pruning import StructuredPruning
from decodescope.engine.decoding.bases.weights import CalibrationData
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.slicing import apply_gates
from decodescope.engine.model.layers.gates import Gates

from .shared.gating import hard_concrete, probability_open, train_tables
from .shared.texts import calibration_texts, text_loss


@component
class HeadGates(StructuredPruning):
    """Train a gate in [0, 1] for each head, and cut the heads with closed gates.

    At each step a gate is drawn again from a distribution with some of its mass at exactly 0 and some at exactly 1. So it has a
    gradient nearly everywhere. The objective is the loss on a text plus `l0_penalty` times the expected number of open gates
    over the number of heads. The price determines how many heads stay, not the other way round. At the end each gate is
    evaluated without noise, and a head with a gate of at most 1/2 is cut.

    Gates begin at `initial_log_odds`, nearly open. P(gate = 0) = 1 - sigmoid(a - T log(0.1 / 1.1)), 0.31 at a = 0. Only the
    gates are trained; the model is frozen (the authors tune it as well). Lossy. Cost: a forward and a backward pass over
    `steps` texts of 256 tokens.
    """

    title = "Head gates (L0)"
    source = "Voita et al. 2019, arXiv:1905.09418; lena-voita/the-story-of-heads, lib/layers/concrete_gate.py"
    reads = True
    finds: ClassVar[dict[str, Finding]] = {
        **StructuredPruning.finds,
        "gate": Finding(
            "grid", "Gate", what="a head's gate at the end, without noise; at most 1/2 is cut", over="head"
        ),
        "objective": Finding(
            "series", "Objective", unit="nats", what="the loss and the price, step by step", over="round"
        ),
    }

    l0_penalty: float = param(
        1.0, low=0.0, high=100.0, help="penalty if all heads are open, in nats of loss; 0: all heads stay"
    )
    steps: int = param(
        120,
        low=1,
        high=25_000,
        unit="steps",
        help="length of the training; each step reads a text of 256 tokens",
    )
    learning_rate: float = param(0.1, low=0.0, high=10.0, help="learning rate of the gates")
    initial_log_odds: float = param(2.0, low=-5.0, high=10.0, help="initial log-odds that a gate is open")
    seed: int = param(0, low=0, high=2**31 - 1, help="seed of the noise on the gates")

    def gates(self, model: Decoder, calibration: CalibrationData) -> Gates:
        log_a, objectives = self.train_gates(model, calibration_texts(calibration, len(calibration.tokens)))
        gates = hard_concrete(log_a)
        calibration.add_finding(self, "gate", [row[: model.spec.heads_at(i)] for i, row in enumerate(gates)])
        calibration.add_finding(self, "objective", objectives)
        return Gates(head=(gates > 0.5).to(model.dtype))

    def gate_logits(self, model: Decoder, rows: Tensor) -> Tensor:
        """float [L, H]: the gates after training on texts int64 [N, T]."""
        return self.train_gates(model, rows)[0]

    def train_gates(self, model: Decoder, rows: Tensor) -> tuple[Tensor, list[float]]:
        """Train the gates; return their values and the objective of each step."""
        g = torch.Generator().manual_seed(self.seed)
        log_a = torch.full(
            (model.spec.n_layers, model.spec.n_heads), self.initial_log_odds, dtype=torch.float64
        )

        def objective(row: Tensor, step: int) -> Tensor:
            u = torch.rand(log_a.shape, generator=g, dtype=log_a.dtype).clamp_(1e-8, 1 - 1e-8)
            return (
                text_loss(apply_gates(model, Gates(head=hard_concrete(log_a, u))), row)
                + self.l0_penalty * probability_open(log_a).mean()
            )

        return log_a, train_tables([log_a], objective, rows, self.steps, self.learning_rate, "closing gates")
