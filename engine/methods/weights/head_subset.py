"""Head subset: exactly K heads stay, and which ones is learnt."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Finding
from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.bases.cutting import Cutting
from decodescope.engine.decoding.bases.weights import Calibration
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.slicing import gated
from decodescope.engine.model.layers.gates import Gates

from .shared.gating import gumbel, soft_top, train
from .shared.texts import loss, texts


@component
class HeadSubset(Cutting):
    """Differentiable subset pruning. A weight for each head, all 0 at first; at each step Gumbel noise is added, K softmaxes
    in a row choose K heads softly, their sum stands as the gates of the heads, and the loss on a text moves the weights. The
    temperature falls from `hot` to `cold` by the same factor each step, over the first `cooling` of them: the gates end as 0
    and 1. What stays are the K largest weights, without noise.

    The gates sum to K at any temperature, in doubles; single ones may exceed 1 on the way. Only the weights are trained, the
    model is frozen (the authors tune it as well). Of a KV head all of whose query heads go, keys and values go too. Lossy.
    Cost: a forward and a backward pass over `steps` texts of 256 tokens.
    """

    title = "Head subset (exactly K)"
    source = "Li, Cotterell and Sachan 2021, arXiv:2108.04657; rycolab/differentiable-subset-pruning, gated_bert_utilities.py"
    reads = True
    finds: ClassVar[dict[str, Finding]] = {
        **Cutting.finds,
        "weight": Finding(
            "grid", "Weight", what="what training made of a head's weight; the largest stay", over="head"
        ),
        "loss": Finding(
            "series", "Loss", unit="nats", what="of the softly cut model, step by step", over="round"
        ),
    }

    keep: int = param(36, low=1, high=20_000, unit="heads", help="heads that stay, of all layers together")
    steps: int = param(
        120, low=1, high=25_000, unit="steps", help="of training, each on a text of 256 tokens"
    )
    cooling: float = param(
        0.75, low=0.05, high=1.0, step=0.05, help="share of the steps in which the temperature falls"
    )
    hot: float = param(
        1.0, low=1e-8, high=1000.0, help="temperature at the beginning; the authors' 1000 is for 25,000 steps"
    )
    cold: float = param(1e-8, low=1e-12, high=1000.0, help="temperature at the end")
    rate: float = param(0.1, low=0.0, high=10.0, help="how far a step moves the weights; the authors' is 0.5")
    seed: int = param(0, low=0, high=2**31 - 1, help="of the noise")

    def gates(self, model: Decoder, calibration: Calibration) -> Gates:
        weights, losses = self.trained(model, texts(calibration, len(calibration.tokens)))
        grid = table(weights, heads_of(model), model)
        calibration.tell(self, "weight", [row[: model.spec.heads_at(i)] for i, row in enumerate(grid)])
        calibration.tell(self, "loss", losses)
        return Gates(head=self.chosen(weights, model))

    def weights(self, model: Decoder, rows: Tensor) -> Tensor:
        """float64 [heads]: what training on texts int64 [N, T] makes of them, of the heads that are there in their order."""
        return self.trained(model, rows)[0]

    def trained(self, model: Decoder, rows: Tensor) -> tuple[Tensor, list[float]]:
        """These, and the loss of each step."""
        there, g = heads_of(model), torch.Generator().manual_seed(self.seed)
        if self.keep > len(there):
            raise ParamError(
                f"{self.name}.keep = {self.keep}: {model.spec.name} has {len(there)} heads; keep fewer."
            )
        weights = torch.zeros(len(there), dtype=torch.float64)

        def objective(row: Tensor, step: int) -> Tensor:
            mask = soft_top(weights + gumbel(weights, g), self.keep, self.heat(step))
            return loss(gated(model, Gates(head=table(mask, there, model))), row)

        return weights, train([weights], objective, rows, self.steps, self.rate, "choosing heads")

    def heat(self, step: int) -> float:
        """The temperature of a step."""
        done = min(1.0, step / max(1, self.cooling * self.steps))
        return float(self.hot * (self.cold / self.hot) ** done)

    def chosen(self, weights: Tensor, model: Decoder) -> Tensor:
        """Gates [L, H] that leave the heads with the largest weights."""
        mask = torch.zeros_like(weights)
        mask[weights.topk(self.keep).indices] = 1
        return table(mask, heads_of(model), model)


def heads_of(model: Decoder) -> list[tuple[int, int]]:
    """(layer, head) of each that is there."""
    return [(i, h) for i in range(model.spec.n_layers) for h in range(model.spec.heads_at(i))]


def table(mask: Tensor, there: list[tuple[int, int]], model: Decoder) -> Tensor:
    """A mask over the heads that are there as gates [L, H]."""
    layers, heads = zip(*there, strict=True)
    gates = mask.new_zeros(model.spec.n_layers, model.spec.n_heads)
    return gates.index_put((torch.tensor(layers), torch.tensor(heads)), mask)
