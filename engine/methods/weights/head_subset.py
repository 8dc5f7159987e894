"""Head subset: exactly K heads stay, and training chooses them."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Finding
from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.bases.pruning import StructuredPruning
from decodescope.engine.decoding.bases.weights import CalibrationData
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.slicing import apply_gates
from decodescope.engine.model.layers.gates import Gates

from .shared.gating import gumbel_noise, soft_top, train_tables
from .shared.texts import calibration_texts, text_loss


@component
class HeadSubset(StructuredPruning):
    """Differentiable subset pruning.

    Each head has a weight, 0 at first. At each step Gumbel noise is added, and K consecutive softmaxes choose K heads softly.
    Their sum is used as the gates of the heads, and the loss on a text updates the weights. The temperature falls from
    `start_temperature` to `end_temperature` by the same factor each step, over the first `cooling_share` of the steps, so the
    gates end as 0 and 1. The K heads with the largest weights stay, without noise.

    The gates sum to K at any temperature, in doubles; single ones may exceed 1 on the way. Only the weights are trained; the
    model is frozen (the authors tune it as well). If all query heads of a KV head are cut, its keys and values go too. Lossy.
    Cost: a forward and a backward pass over `steps` texts of 256 tokens.
    """

    title = "Head subset (exactly K)"
    source = "Li, Cotterell and Sachan 2021, arXiv:2108.04657; rycolab/differentiable-subset-pruning, gated_bert_utilities.py"
    reads = True
    finds: ClassVar[dict[str, Finding]] = {
        **StructuredPruning.finds,
        "weight": Finding(
            "grid", "Weight", what="what training made of a head's weight; the largest stay", over="head"
        ),
        "loss": Finding(
            "series", "Loss", unit="nats", what="of the softly cut model, step by step", over="round"
        ),
    }

    kept_heads: int = param(
        36, low=1, high=20_000, unit="heads", help="number of heads that stay, of all layers together (K)"
    )
    steps: int = param(
        120,
        low=1,
        high=25_000,
        unit="steps",
        help="length of the training; each step reads a text of 256 tokens",
    )
    cooling_share: float = param(
        0.75, low=0.05, high=1.0, step=0.05, help="share of the training steps in which the temperature falls"
    )
    start_temperature: float = param(
        1.0,
        low=1e-8,
        high=1000.0,
        help="temperature of the head choice at the start; the authors use 1000 for 25,000 steps",
    )
    end_temperature: float = param(
        1e-8, low=1e-12, high=1000.0, help="temperature of the head choice at the end"
    )
    learning_rate: float = param(
        0.1, low=0.0, high=10.0, help="learning rate of the head weights; the authors use 0.5"
    )
    seed: int = param(0, low=0, high=2**31 - 1, help="seed of the Gumbel noise")

    def gates(self, model: Decoder, calibration: CalibrationData) -> Gates:
        weights, losses = self.train_weights(model, calibration_texts(calibration, len(calibration.tokens)))
        grid = scatter_gates(weights, heads_of(model), model)
        calibration.add_finding(self, "weight", [row[: model.spec.heads_at(i)] for i, row in enumerate(grid)])
        calibration.add_finding(self, "loss", losses)
        return Gates(head=self.subset_gates(weights, model))

    def head_weights(self, model: Decoder, rows: Tensor) -> Tensor:
        """float64 [heads]: the weights of the existing heads, in order, after training on texts int64 [N, T]."""
        return self.train_weights(model, rows)[0]

    def train_weights(self, model: Decoder, rows: Tensor) -> tuple[Tensor, list[float]]:
        """Train the weights; return them and the loss of each step."""
        there, g = heads_of(model), torch.Generator().manual_seed(self.seed)
        if self.kept_heads > len(there):
            raise ParamError(
                f"{self.name}.kept_heads = {self.kept_heads}: {model.spec.name} has {len(there)} heads; keep fewer."
            )
        weights = torch.zeros(len(there), dtype=torch.float64)

        def objective(row: Tensor, step: int) -> Tensor:
            mask = soft_top(weights + gumbel_noise(weights, g), self.kept_heads, self.temperature_at(step))
            return text_loss(apply_gates(model, Gates(head=scatter_gates(mask, there, model))), row)

        return weights, train_tables(
            [weights], objective, rows, self.steps, self.learning_rate, "choosing heads"
        )

    def temperature_at(self, step: int) -> float:
        """The temperature of a step."""
        done = min(1.0, step / max(1, self.cooling_share * self.steps))
        return float(self.start_temperature * (self.end_temperature / self.start_temperature) ** done)

    def subset_gates(self, weights: Tensor, model: Decoder) -> Tensor:
        """Gates [L, H] that keep the heads with the largest weights."""
        mask = torch.zeros_like(weights)
        mask[weights.topk(self.kept_heads).indices] = 1
        return scatter_gates(mask, heads_of(model), model)


def heads_of(model: Decoder) -> list[tuple[int, int]]:
    """(layer, head) of each existing head."""
    return [(i, h) for i in range(model.spec.n_layers) for h in range(model.spec.heads_at(i))]


def scatter_gates(mask: Tensor, there: list[tuple[int, int]], model: Decoder) -> Tensor:
    """Convert a mask over the existing heads to gates [L, H]."""
    layers, heads = zip(*there, strict=True)
    gates = mask.new_zeros(model.spec.n_layers, model.spec.n_heads)
    return gates.index_put((torch.tensor(layers), torch.tensor(heads)), mask)
