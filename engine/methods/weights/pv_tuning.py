"""PV-Tuning: tunes codes of few bits on a text: the scales by their gradient, and a few codes in each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Finding
from decodescope.engine.core.progress import Progress
from decodescope.engine.decoding.bases.pruning import replace_layer_matrices, unpack_model
from decodescope.engine.decoding.bases.weights import (
    MATRICES,
    CalibrationData,
    MatrixPlace,
    MatrixTransform,
    WeightTransform,
    add_loss_findings,
    replace_matrices,
)
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.layers.matrix import unpack

from .shared.grid import Grid, TuningStep
from .shared.rounding import check_group
from .shared.texts import calibration_texts, kl_divergence, kl_loss, text_logits

HELD = 8  # held-out texts that no step reads; they judge the intermediate states
LOOKS = 8  # how often they are judged


@component
class PVTuning(WeightTransform):
    """Tune rounded codes, w = q s + z in groups of a row, so that the model's distribution returns towards the whole model's.

    The loss is KL(whole | rounded) on a text. One backward pass per step gives its slope at s, z and every weight. P step: s
    and z take a step of Adam, and the codes stay. V step: s and z stay, and each weight's desired value moves a little down its
    slope. At most `max_changed_share` of the codes of a matrix change to the code nearest to the desired value: those that are
    furthest from it. The others wait, and their desired moves add up. If all were rounded again, nothing would move at small
    steps, and too much at large ones.

    `max_changed_share` 0: no V step, only scales and offsets are tuned; `learning_rate` 0: no P step; `steps` 0: plain
    rounding. The best state on held-out texts is kept, including the first one, so tuning does no harm there. The bits are
    those without tuning: k + 2 b / group. Lossy. Cost: a forward and a backward pass and a forward pass of the whole model over
    `steps` texts of 256 tokens; 3 numbers per weight are held during tuning. Deviations: a code is one number; the authors' is
    a vector of a codebook. Both steps share a slope, as in their program. Norms and embedding stay as they are. Step sizes are
    in steps of the grid; the authors' rates (3e-4, 1e-2) are for other units.
    """

    title = "PV-Tuning"
    source = "Malinovskii et al. 2024, arXiv:2405.14852; Vahe1994/AQLM, finetune.py, with scalar codes"
    reads = True
    finds: ClassVar[dict[str, Finding]] = {
        **MatrixTransform.finds,
        "divergence": Finding(
            "series", "Divergence", unit="nats", what="KL to the whole model on a step's text", over="round"
        ),
        "changed": Finding("series", "Changed", what="share of all codes that a step changed", over="round"),
        "held": Finding(
            "series", "Held", unit="nats", what="KL on held texts: at first, and at each look", over="round"
        ),
    }

    bits: int = param(
        2,
        choices=(2, 3, 4),
        unit="bits",
        help="precision of a weight; scale and offset of its group are stored in addition",
    )
    group: int = param(
        32, choices=(16, 32, 64, 128), unit="weights", help="consecutive inputs that share scale and offset"
    )
    steps: int = param(
        120,
        low=0,
        high=25_000,
        unit="steps",
        help="length of the tuning; each step reads a text of 256 tokens; 0: plain rounding",
    )
    learning_rate: float = param(
        0.005,
        low=0.0,
        high=1.0,
        help="learning rate of scales and offsets, relative to the mean scale; 0: no P step",
    )
    code_learning_rate: float = param(
        0.003, low=0.0, high=10.0, help="learning rate of the codes, as a fraction of a quantisation step"
    )
    max_changed_share: float = param(
        0.01,
        low=0.0,
        high=1.0,
        help="maximum share of a matrix's codes that one step may change; 0: no V step",
    )

    def transform(self, model: Decoder, calibration: CalibrationData) -> Decoder:
        grids = self.grids(model)
        history, first = list[TuningStep](), list[float]()
        if self.steps:
            grids, history, first = self.tune(
                model, grids, calibration_texts(calibration, len(calibration.tokens))
            )
        numbers = max(1, sum(x.q.numel() for x in grids.values()))
        calibration.add_finding(self, "divergence", [x.loss for x in history])
        calibration.add_finding(self, "changed", [sum(x.changed.values()) / numbers for x in history])
        calibration.add_finding(self, "held", [*first, *(x.judged for x in history if x.judged is not None)])
        decoder = replace_matrices(
            model, lambda at, x: grids[at].to_matrix(model.dtype) if at in grids else x
        )
        add_loss_findings(self, model, decoder, calibration)
        return decoder

    def grids(self, model: Decoder) -> dict[MatrixPlace, Grid]:
        """Each matrix of the layers, rounded, without fully removed ones."""
        kept, wide = dict[MatrixPlace, Grid](), torch.promote_types(model.dtype, torch.float32)
        for i, layer in enumerate(model.layers):
            for name in MATRICES:
                weight, place = unpack(getattr(layer, name)), MatrixPlace(i, name)
                if weight.numel():
                    kept[place] = Grid.from_weight(
                        weight, check_group(self.group, weight, place, self.name), self.bits, wide
                    )
        return kept

    def tune(
        self, model: Decoder, grids: dict[MatrixPlace, Grid], rows: Tensor
    ) -> tuple[dict[MatrixPlace, Grid], list[TuningStep], list[float]]:
        """Tune on texts int64 [N, T]; `grids` ends as the last state.

        Returns the best state as it is stored, all steps, and the judgement of the first state.
        """
        whole, history = unpack_model(model), list[TuningStep]()
        # kinds of text are adjacent
        rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]
        seen, held = (rows[:-HELD], rows[-HELD:]) if len(rows) > 2 * HELD else (rows, rows)
        with torch.no_grad():
            dense = text_logits(whole, held)
        judge = self._judge(whole, dense, held, model.dtype)
        best = judge(grids)
        first = [best[0]]
        optimiser = torch.optim.Adam(
            [
                {"params": [x.scale, x.zero], "lr": self.learning_rate * float(x.scale.mean())}
                for x in grids.values()
            ],
            betas=(0.9, 0.95),
        )
        often = max(1, self.steps // LOOKS)
        with Progress("tuning codes", self.steps, "steps") as progress:
            for step in range(self.steps):
                at = step % len(seen)
                loss, slopes = _gradients(whole, grids, seen[at : at + 1])
                if self.learning_rate:
                    optimiser.step()
                    for x in grids.values():
                        x.scale.clamp_(min=torch.finfo(x.scale.dtype).tiny)
                changed = {
                    place: x.step(slopes[place], self.code_learning_rate, self.max_changed_share)
                    for place, x in grids.items()
                }
                looked = judge(grids) if step % often == often - 1 or step == self.steps - 1 else None
                history.append(TuningStep(loss, changed, looked and looked[0]))
                best = best if looked is None or looked[0] >= best[0] else looked
                progress.add()
        return best[1], history, first

    def _judge(
        self, whole: Decoder, dense: Tensor, held: Tensor, dtype: torch.dtype
    ) -> Callable[[Mapping[MatrixPlace, Grid]], tuple[float, dict[MatrixPlace, Grid]]]:
        @torch.no_grad()
        def judge(grids: Mapping[MatrixPlace, Grid]) -> tuple[float, dict[MatrixPlace, Grid]]:
            kept = {place: x.round_scales(dtype) for place, x in grids.items()}
            return kl_divergence(
                dense,
                text_logits(
                    replace_layer_matrices(whole, {place: x.weight() for place, x in kept.items()}), held
                ),
            ), kept

        return judge


def _gradients(
    whole: Decoder, grids: Mapping[MatrixPlace, Grid], row: Tensor
) -> tuple[float, dict[MatrixPlace, Tensor]]:
    """The loss on a text int64 [1, T], and its slope at each matrix; the slope at scales and offsets is in their `grad`."""
    with torch.no_grad():
        dense = text_logits(whole, row)
    for x in grids.values():
        x.scale.requires_grad_().grad = x.zero.requires_grad_().grad = None
    with torch.enable_grad():
        weights = {place: x.weight() for place, x in grids.items()}
        for w in weights.values():
            w.retain_grad()
        loss = kl_loss(dense, text_logits(replace_layer_matrices(whole, weights), row))
        loss.backward()
    for x in grids.values():
        x.scale.requires_grad_(False)
        x.zero.requires_grad_(False)
    return float(loss.detach()), {place: w.grad for place, w in weights.items() if w.grad is not None}
