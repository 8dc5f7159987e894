"""Head sensitivity: the heads with the smallest effect of their gates on the loss are cut."""

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

from .shared.texts import calibration_texts, text_loss


@component
class HeadSensitivity(StructuredPruning):
    """Cut the heads with the smallest effect on the loss.

    Each head's context is multiplied by a gate g = 1. The score of a head is the mean over texts of |d loss / d g|: how fast
    the loss would change if the head became weaker. The heads with the smallest scores are cut, in `rounds` with the same
    number of heads each. Before each round the scores are computed again for the current model.

    Each text has its own backward pass, because the signs of several texts would cancel before the absolute value. Scores are
    divided by the norm of their layer (`normalize_by_layer`), as the authors do. With one round, the heads cut at a share are
    also cut at every larger share. A cut head loses its rows of the query projection and its columns of the output projection.
    With the last query head of a KV head, its keys and values go too. Lossy, without training. Cost: 3 passes over
    `calibration_tokens` per round.
    """

    title = "Head sensitivity (Michel)"
    source = "Michel, Levy and Neubig 2019, arXiv:1905.10650; rycolab/differentiable-subset-pruning, pruning_utils.py"
    reads = True
    finds: ClassVar[dict[str, Finding]] = {
        **StructuredPruning.finds,
        "score": Finding(
            "grid", "Score", what="how much the loss feels a head's gate; of a head that was cut, when it was",
            line="threshold", over="head",
        ),
        "order": Finding("grid", "Order", what="1 is the head that was cut first; a head that stays has none", over="head"),
        "threshold": Finding("series", "Threshold", what="the largest score of a head that was cut"),
    }  # fmt: skip

    cut_share: float = param(0.25, low=0.0, high=0.95, step=0.01, help="share of the heads that is cut")
    rounds: int = param(
        1,
        low=1,
        high=50,
        unit="rounds",
        help="number of rounds in which heads are cut; each one measures the scores again",
    )
    calibration_tokens: int = param(
        8192,
        low=64,
        high=32_768,
        unit="tokens",
        help="size of the calibration text from which the scores are computed",
    )
    normalize_by_layer: bool = param(True, help="divide the scores of a layer by their norm")

    def gates(self, model: Decoder, calibration: CalibrationData) -> Gates:
        order, scores = self.rank_heads(model, calibration_texts(calibration, self.calibration_tokens))
        there = [[(i, h) for h in range(model.spec.heads_at(i))] for i in range(model.spec.n_layers)]
        places = {x: k for k, x in enumerate(order, 1)}
        calibration.add_finding(self, "score", [[float(scores[x]) for x in row] for row in there])
        calibration.add_finding(self, "order", [[places.get(x) for x in row] for row in there])
        calibration.add_finding(self, "threshold", [max(float(scores[x]) for x in order)] if order else [])
        return Gates(head=closing_gates(order, len(order), model))

    def _cut_count(self, model: Decoder) -> int:
        spec = model.spec
        return round(self.cut_share * sum(map(spec.heads_at, range(spec.n_layers))))

    def order(self, model: Decoder, rows: Tensor) -> list[tuple[int, int]]:
        """(layer, head) in the order in which they are cut, as many as `cut_share` gives."""
        return self.rank_heads(model, rows)[0]

    def rank_heads(self, model: Decoder, rows: Tensor) -> tuple[list[tuple[int, int]], Tensor]:
        """The order, and the scores [L, H] that determined it: for a cut head those of its round, for the others those of the
        last round.
        """
        gone: list[tuple[int, int]] = []
        scores, count = torch.zeros(model.spec.n_layers, model.spec.n_heads), self._cut_count(model)
        for step in range(1, self.rounds + 1):
            until = round(count * step / self.rounds)
            if until > len(gone):
                anew = sensitivity(model, closing_gates(gone, len(gone), model), rows)
                anew = normalise_by_layer(anew) if self.normalize_by_layer else anew
                scores = torch.where(closing_gates(gone, len(gone), model).bool(), anew, scores.to(anew))
                gone += sort_heads(anew, gone, model)[: until - len(gone)]
        return gone, scores


def sensitivity(model: Decoder, head: Tensor, rows: Tensor) -> Tensor:
    """float [L, H]: the mean over texts int64 [N, T] of |d loss / d gate| at the gates `head`."""
    total = torch.zeros_like(head)
    for row in rows:
        gate = head.clone().requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(text_loss(apply_gates(model, Gates(head=gate)), row[None]), gate)
        total += slope.abs()
    return total / len(rows)


def normalise_by_layer(scores: Tensor) -> Tensor:
    """Scores [L, H] divided by the norm of their layer."""
    normalised: Tensor = scores / scores.norm(dim=1, keepdim=True).clamp_min(1e-30)
    return normalised


def sort_heads(scores: Tensor, gone: list[tuple[int, int]], model: Decoder) -> list[tuple[int, int]]:
    """The remaining heads that are not `gone`, the smallest score first."""
    there = [(i, h) for i in range(model.spec.n_layers) for h in range(model.spec.heads_at(i))]
    return sorted((x for x in there if x not in set(gone)), key=lambda x: (float(scores[x]), x))


def closing_gates(order: list[tuple[int, int]], count: int, model: Decoder) -> Tensor:
    """Gates [L, H] that close the first `count` heads of an order."""
    head = torch.ones(model.spec.n_layers, model.spec.n_heads, dtype=model.dtype)
    for i, h in order[:count]:
        head[i, h] = 0
    return head
