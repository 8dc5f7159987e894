"""Latency fit: heads and columns are taken out so that a pass takes a wanted time on this machine, with the least error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Finding
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.progress import Progress
from decodescope.engine.decoding.bases.cutting import Cutting, exchanged, widened
from decodescope.engine.decoding.bases.weights import Calibration, Place
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.slicing import gated
from decodescope.engine.model.layers.gates import Gates
from decodescope.engine.model.layers.matrix import unpack

from .shared.surgeon import Fit, Level, grams, levels
from .shared.texts import divergence, logits, texts
from .shared.times import Times, measured, read, widths, within

LAST = ("out", "down")  # of a block, by which its structures go
SPREAD = 0.5  # of the logarithm of a weight that the search changes


@component
class LatencyFit(Cutting):
    """Inference-aware pruning. A table says what a block takes on this machine with so many heads or columns: time follows
    width in steps, so it is measured and not derived. In each block structures go one by one, a head or a column: the one
    for which tr(W_S (H^-1_SS)^-1 W_S^T) is smallest, W being the block's last matrix, H = X^T X of what enters it on the
    text; and what stays makes up for it, W -= W_S (H^-1_SS)^-1 H^-1_S:. So each width of each block has an error. A dynamic
    programme picks the widths that meet the time with the least sum of errors; the blocks' weights in the sum are then
    searched: `trials` times some change, and the plan stays if its law is nearer to the whole model's.

    With H diagonal the rule is size times activation. Lossy, without training. With no `times` the table is measured anew at
    each load, so two loads may be cut differently; one that was kept makes it repeatable. Cost: `tokens` read once, an inverse
    a block, a column at a time about F^2 numbers, the levels of all blocks in memory; `trials` texts read. Deviations: the
    authors train on, with distillation; the search's objective is KL, and it is short; the table holds heads by their number,
    while a KV head goes only with its last query head.
    """

    title = "Latency fit (ZipLM)"
    source = "Kurtic, Frantar and Alistarh 2023, arXiv:2302.04089 (recalled); search of weights after SPDY, arXiv:2201.13096"
    reads = True
    finds: ClassVar[dict[str, Finding]] = {
        **Cutting.finds,
        "width": Finding("grid", "Width", what="heads and columns that stay in a block", over="sublayer"),
        "lost": Finding(
            "grid", "Lost", what="share of a block's products that is lost on the text", over="sublayer"
        ),
        "time": Finding(
            "grid", "Time", unit="us", what="of a block as it is left, by the table", over="sublayer"
        ),
        "pass": Finding("series", "Pass", unit="us", what="what a pass takes by the table", over="model"),
        "before": Finding("series", "Before", unit="us", what="what it took", over="model"),
        "divergence": Finding(
            "series", "Divergence", unit="nats", what="KL to the whole model on the text", over="model"
        ),
    }

    faster: float = param(
        1.3, low=1.0, high=20.0, step=0.1, unit="times", help="as fast a pass as now, by the table"
    )
    rows: int = param(1, low=1, high=64, unit="rows", help="of the passes that are timed")
    times: str = param(
        "", file=True, help="a table of block times that was kept; empty: measured on this machine"
    )
    tokens: int = param(8192, low=64, high=32_768, unit="tokens", help="of the calibration text, read for H")
    trials: int = param(24, low=0, high=1000, unit="plans", help="of the search for the blocks' weights")
    judged: int = param(
        1024, low=16, high=32_768, unit="tokens", help="on which the search's plans are judged"
    )
    seed: int = param(0, low=0, high=2**31 - 1, help="of the search")

    def fitted(self, model: Decoder, calibration: Calibration) -> tuple[Gates, Mapping[Place, Tensor]]:
        table = (
            read(self.times, model.spec, f"{self.name}.times") if self.times else measured(model, self.rows)
        )
        whole = widened(model)
        fit = self.fit(whole, calibration, table)
        wide = [[len(a.inputs) // model.spec.head_dim, len(f.inputs)] for a, f in fit.levels]
        calibration.tell(self, "width", wide)
        calibration.tell(self, "lost", [[x.error for x in pair] for pair in fit.levels])
        calibration.tell(self, "time", [[table.at(k, x) for k, x in enumerate(pair)] for pair in wide])
        for name, value in (("pass", fit.us), ("before", fit.before), ("divergence", fit.kl)):
            calibration.tell(self, name, [value])
        return cut(whole, fit.levels)

    def fit(self, model: Decoder, calibration: Calibration, table: Times) -> Fit:
        """What is chosen by that table; the model is plain."""
        self._target(model, table)  # refused before the work
        blocks = _levels(model, texts(calibration, self.tokens))
        rows = texts(calibration, self.judged)
        with torch.no_grad():
            dense = logits(model, rows)
            return self._searched(model, blocks, table, rows, dense)

    def _target(self, model: Decoder, table: Times) -> tuple[float, float]:
        """(microseconds that the blocks may take, those of a whole pass now). Raises ParamError."""
        spec = model.spec
        now = (
            sum(table.at(0, spec.heads_at(i)) + table.at(1, spec.ff_at(i)) for i in range(spec.n_layers))
            + table.rest
        )
        budget = now / self.faster - table.rest
        if budget <= 0:
            raise ParamError(
                f"{self.name}.faster = {self.faster:g}: a pass of {spec.name} without any block is "
                f"{now / table.rest:.2g} times as fast; ask for less."
            )
        return budget, now

    def _searched(
        self, model: Decoder, blocks: list[list[Level]], table: Times, rows: Tensor, dense: Tensor
    ) -> Fit:
        budget, now = self._target(model, table)
        chance = Random(self.seed)
        weights = [1.0] * len(blocks)
        seen = dict[tuple[int, ...], float]()
        us = [[table.at(b % 2, _width(model, b, x)) for x in block] for b, block in enumerate(blocks)]

        def planned(weights: Sequence[float]) -> tuple[int, ...]:
            triples = zip(weights, us, blocks, strict=True)
            return tuple(
                within(
                    [[(t, w * x.error) for t, x in zip(ts, xs, strict=True)] for w, ts, xs in triples], budget
                )
            )

        def far(plan: tuple[int, ...]) -> float:
            if plan not in seen:
                gates, others = cut(model, _paired(blocks, plan))
                seen[plan] = divergence(dense, logits(gated(exchanged(model, others), gates), rows))
            return seen[plan]

        plan = planned(weights)
        with Progress("weighing blocks", self.trials, "plans") as progress:
            for _ in range(self.trials):
                other = [
                    w * chance.lognormvariate(0, SPREAD) if chance.random() < 0.3 else w for w in weights
                ]
                if far(came := planned(other)) < far(plan):
                    plan, weights = came, other
                progress.add()
        took = table.rest + sum(us[b][x] for b, x in enumerate(plan))
        return Fit(_paired(blocks, plan), took, now, far(plan), len(seen) - 1)


def _levels(model: Decoder, rows: Tensor) -> list[list[Level]]:
    """By block, attention and feed-forward by turns: its levels, the whole one first."""
    spec, (heads, columns), blocks = model.spec, grams(model, rows), list[list[Level]]()
    with Progress("taking structures out", 2 * spec.n_layers, "blocks") as progress:
        for i, layer in enumerate(model.layers):
            for name, gram, width, counts in (
                (LAST[0], heads[i], spec.head_dim, range(spec.heads_at(i) + 1)),
                (LAST[1], columns[i], 1, [spec.ff_at(i) - x for x in reversed(widths(spec.ff_at(i)))]),
            ):
                blocks.append(levels(unpack(getattr(layer, name)), gram, width, list(counts)))
                progress.add()
    return blocks


def _width(model: Decoder, block: int, level: Level) -> int:
    """Heads or columns that a block has at a level."""
    return len(level.inputs) // (1 if block % 2 else model.spec.head_dim)


def _paired(blocks: list[list[Level]], plan: Sequence[int]) -> list[tuple[Level, Level]]:
    chosen = [block[at] for block, at in zip(blocks, plan, strict=True)]
    return [*zip(chosen[::2], chosen[1::2], strict=True)]


def cut(model: Decoder, chosen: Sequence[tuple[Level, Level]]) -> tuple[Gates, dict[Place, Tensor]]:
    """Gates that close what is gone at these levels, and what the last matrices became."""
    spec, others = model.spec, dict[Place, Tensor]()
    tables = [torch.ones(spec.n_layers, n, dtype=model.dtype) for n in (spec.n_heads, spec.d_ff)]
    for i, pair in enumerate(chosen):
        for name, table, level in zip(LAST, tables, pair, strict=True):
            table[i, list(level.gone)] = 0
            if level.gone:
                others[Place(i, name)] = level.weight(unpack(getattr(model.layers[i], name)).shape[1])
    return Gates(*tables), others
