"""PV-Tuning: codes of few bits that are tuned to a text, scales by their gradient and a few codes a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Finding
from decodescope.engine.core.progress import Progress
from decodescope.engine.decoding.bases.cutting import exchanged, widened
from decodescope.engine.decoding.bases.weights import (
    MATRICES,
    Calibration,
    Place,
    Rewriting,
    WeightTransform,
    rewritten,
    tell_losses,
)
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.layers.matrix import unpack

from .shared.grid import Grid, Step
from .shared.rounding import checked
from .shared.texts import divergence, logits, parting, texts

HELD = 8  # texts that no step reads: what the states on the way are judged on
LOOKS = 8  # how often they are


@component
class PVTuning(WeightTransform):
    """Begins with rounded codes, w = q s + z in groups of a row, and brings the model's law back towards the whole model's: the
    loss is KL(whole | rounded) on a text. One backward pass a step gives its slope at s, z and every weight. P step: s and z
    take a step of Adam, the codes stay. V step: s and z stay, and each weight wishes itself a little down its slope; at most
    `share` of the codes of a matrix, those whose weights wish themselves furthest away, become what is nearest to the wish.
    The others wait: wishes add up. If all were rounded anew nothing would move at small steps, and too much at large ones.

    `share` 0: no V step, scales and offsets alone are tuned; `rate` 0: no P step; `steps` 0: rounding as it is. The state on
    the way that is best on held texts is kept, the first one included, so tuning does no harm there. Bits as without tuning:
    k + 2 b / group. Lossy. Cost: a forward and a backward pass and a forward pass of the whole model over `steps` texts of
    256 tokens; 3 numbers a weight are held meanwhile. Deviations: a code is one number where the authors' is a vector of a
    codebook; both steps share a slope, as in their program; norms and embedding stay as they are; a step is told in steps of
    the grid, and their rates (3e-4, 1e-2) are for other units.
    """

    title = "PV-Tuning"
    source = "Malinovskii et al. 2024, arXiv:2405.14852; Vahe1994/AQLM, finetune.py, with scalar codes"
    reads = True
    finds: ClassVar[dict[str, Finding]] = {
        **Rewriting.finds,
        "divergence": Finding(
            "series", "Divergence", unit="nats", what="KL to the whole model on a step's text", over="round"
        ),
        "changed": Finding("series", "Changed", what="share of all codes that a step changed", over="round"),
        "held": Finding(
            "series", "Held", unit="nats", what="KL on held texts: at first, and at each look", over="round"
        ),
    }

    bits: int = param(2, choices=(2, 3, 4), unit="bits", help="of a weight, without scale and offset")
    group: int = param(
        32, choices=(16, 32, 64, 128), unit="weights", help="consecutive inputs that share scale and offset"
    )
    steps: int = param(120, low=0, high=25_000, unit="steps", help="of tuning, each on a text of 256 tokens")
    rate: float = param(
        0.005,
        low=0.0,
        high=1.0,
        help="of scales and offsets, in parts of a matrix's mean scale; 0: no P step",
    )
    code_rate: float = param(
        0.003, low=0.0, high=10.0, help="how far a step moves a wish, in steps of the grid"
    )
    share: float = param(
        0.01, low=0.0, high=1.0, help="of a matrix's codes that one step may change; 0: no V step"
    )

    def made(self, model: Decoder, calibration: Calibration) -> Decoder:
        grids = self.grids(model)
        history, first = list[Step](), list[float]()
        if self.steps:
            grids, history, first = self.tuned(model, grids, texts(calibration, len(calibration.tokens)))
        numbers = max(1, sum(x.q.numel() for x in grids.values()))
        calibration.tell(self, "divergence", [x.loss for x in history])
        calibration.tell(self, "changed", [sum(x.changed.values()) / numbers for x in history])
        calibration.tell(self, "held", [*first, *(x.judged for x in history if x.judged is not None)])
        decoder = rewritten(model, lambda at, x: grids[at].stored(model.dtype) if at in grids else x)
        tell_losses(self, model, decoder, calibration)
        return decoder

    def grids(self, model: Decoder) -> dict[Place, Grid]:
        """Each matrix of the layers, rounded; those of which nothing is left are not among them."""
        kept, wide = dict[Place, Grid](), torch.promote_types(model.dtype, torch.float32)
        for i, layer in enumerate(model.layers):
            for name in MATRICES:
                weight, place = unpack(getattr(layer, name)), Place(i, name)
                if weight.numel():
                    kept[place] = Grid.of(
                        weight, checked(self.group, weight, place, self.name), self.bits, wide
                    )
        return kept

    def tuned(
        self, model: Decoder, grids: dict[Place, Grid], rows: Tensor
    ) -> tuple[dict[Place, Grid], list[Step], list[float]]:
        """The best state on the way, as it is stored, all steps, and what the first state was judged; texts int64 [N, T].
        `grids` ends as the last state."""
        whole, history = widened(model), list[Step]()
        # kinds of text lie side by side
        rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]
        seen, held = (rows[:-HELD], rows[-HELD:]) if len(rows) > 2 * HELD else (rows, rows)
        with torch.no_grad():
            dense = logits(whole, held)
        judge = self._judge(whole, dense, held, model.dtype)
        best = judge(grids)
        first = [best[0]]
        optimiser = torch.optim.Adam(
            [{"params": [x.scale, x.zero], "lr": self.rate * float(x.scale.mean())} for x in grids.values()],
            betas=(0.9, 0.95),
        )
        often = max(1, self.steps // LOOKS)
        with Progress("tuning codes", self.steps, "steps") as progress:
            for step in range(self.steps):
                at = step % len(seen)
                loss, slopes = _slopes(whole, grids, seen[at : at + 1])
                if self.rate:
                    optimiser.step()
                    for x in grids.values():
                        x.scale.clamp_(min=torch.finfo(x.scale.dtype).tiny)
                changed = {
                    place: x.stepped(slopes[place], self.code_rate, self.share) for place, x in grids.items()
                }
                looked = judge(grids) if step % often == often - 1 or step == self.steps - 1 else None
                history.append(Step(loss, changed, looked and looked[0]))
                best = best if looked is None or looked[0] >= best[0] else looked
                progress.add()
        return best[1], history, first

    def _judge(
        self, whole: Decoder, dense: Tensor, held: Tensor, dtype: torch.dtype
    ) -> Callable[[Mapping[Place, Grid]], tuple[float, dict[Place, Grid]]]:
        @torch.no_grad()
        def judge(grids: Mapping[Place, Grid]) -> tuple[float, dict[Place, Grid]]:
            kept = {place: x.rounded(dtype) for place, x in grids.items()}
            return divergence(
                dense, logits(exchanged(whole, {place: x.weight() for place, x in kept.items()}), held)
            ), kept

        return judge


def _slopes(whole: Decoder, grids: Mapping[Place, Grid], row: Tensor) -> tuple[float, dict[Place, Tensor]]:
    """The loss on a text int64 [1, T], and its slope at each matrix; at scales and offsets it is left in their `grad`."""
    with torch.no_grad():
        dense = logits(whole, row)
    for x in grids.values():
        x.scale.requires_grad_().grad = x.zero.requires_grad_().grad = None
    with torch.enable_grad():
        weights = {place: x.weight() for place, x in grids.items()}
        for w in weights.values():
            w.retain_grad()
        loss = parting(dense, logits(exchanged(whole, weights), row))
        loss.backward()
    for x in grids.values():
        x.scale.requires_grad_(False)
        x.zero.requires_grad_(False)
    return float(loss.detach()), {place: w.grad for place, w in weights.items() if w.grad is not None}
