"""Latency fit: removes heads and columns so that a pass takes a given time on this machine, with the least error."""

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
from decodescope.engine.decoding.bases.pruning import StructuredPruning, replace_layer_matrices, unpack_model
from decodescope.engine.decoding.bases.weights import CalibrationData, MatrixPlace
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.slicing import apply_gates
from decodescope.engine.model.layers.gates import Gates
from decodescope.engine.model.layers.matrix import unpack

from .shared.block_times import BlockTimes, choose_within_budget, load_times, measure_times, measured_widths
from .shared.surgeon import LatencyResult, PruningLevel, input_grams, pruning_levels
from .shared.texts import calibration_texts, kl_divergence, text_logits

LAST = ("out", "down")  # last matrix of a block; its structures are removed by this matrix
SPREAD = 0.5  # spread of the change of a weight's logarithm in the search


@component
class LatencyFit(StructuredPruning):
    """Inference-aware pruning.

    A table holds the time of a block on this machine with each number of heads or columns. Time follows width in steps, so it
    is measured and not derived. In each block, structures (heads or columns) are removed one by one: always the one with the
    smallest tr(W_S (H^-1_SS)^-1 W_S^T). W is the block's last matrix, and H = X^T X of its inputs X on the text. The rest
    compensates for it, W -= W_S (H^-1_SS)^-1 H^-1_S:. So each width of each block has an error. A dynamic programme picks the
    widths that meet the time with the least sum of errors. The blocks' weights in the sum are then searched. `search_trials`
    times some of them change, and the plan is kept if its distribution is nearer to the whole model's.

    With H diagonal the rule is size times activation. Lossy, without training. Without `timing_table` the table is measured
    again at each load, so two loads may be cut differently; a stored table makes it repeatable. Cost: `calibration_tokens` read
    once, one inverse per block, about F^2 numbers per removed column, the levels of all blocks in memory; `search_trials` texts
    read. Deviations: the authors continue training, with distillation. The search's objective is KL, and the search is short.
    The table holds heads by their number, while a KV head goes only with its last query head.
    """

    title = "Latency fit (ZipLM)"
    source = "Kurtic, Frantar and Alistarh 2023, arXiv:2302.04089 (recalled); search of weights after SPDY, arXiv:2201.13096"
    reads = True
    finds: ClassVar[dict[str, Finding]] = {
        **StructuredPruning.finds,
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

    speedup: float = param(
        1.3,
        low=1.0,
        high=20.0,
        step=0.1,
        unit="times",
        help="how much faster a pass must become, according to the timing table",
    )
    timed_rows: int = param(
        1, low=1, high=64, unit="rows", help="number of tokens in the passes that are timed"
    )
    timing_table: str = param(
        "", file=True, help="file of saved block times; empty: measured on this machine"
    )
    calibration_tokens: int = param(
        8192,
        low=64,
        high=32_768,
        unit="tokens",
        help="size of the calibration text from which the input statistics (H) are computed",
    )
    search_trials: int = param(
        24,
        low=0,
        high=1000,
        unit="plans",
        help="number of attempts to improve the blocks' weights; 0: all blocks weigh the same",
    )
    evaluation_tokens: int = param(
        1024,
        low=16,
        high=32_768,
        unit="tokens",
        help="size of the calibration text on which the search compares plans",
    )
    seed: int = param(0, low=0, high=2**31 - 1, help="seed of the search")

    def fit_gates(
        self, model: Decoder, calibration: CalibrationData
    ) -> tuple[Gates, Mapping[MatrixPlace, Tensor]]:
        table = (
            load_times(self.timing_table, model.spec, f"{self.name}.timing_table")
            if self.timing_table
            else measure_times(model, self.timed_rows)
        )
        whole = unpack_model(model)
        fit = self.fit(whole, calibration, table)
        wide = [[len(a.inputs) // model.spec.head_dim, len(f.inputs)] for a, f in fit.levels]
        calibration.add_finding(self, "width", wide)
        calibration.add_finding(self, "lost", [[x.error for x in pair] for pair in fit.levels])
        calibration.add_finding(
            self, "time", [[table.time_of(k, x) for k, x in enumerate(pair)] for pair in wide]
        )
        for name, value in (("pass", fit.us), ("before", fit.before), ("divergence", fit.kl)):
            calibration.add_finding(self, name, [value])
        return cut_structures(whole, fit.levels)

    def fit(self, model: Decoder, calibration: CalibrationData, table: BlockTimes) -> LatencyResult:
        """The choice for this table; the model must be unmodified."""
        self._target(model, table)  # refuse before the work
        blocks = _block_levels(model, calibration_texts(calibration, self.calibration_tokens))
        rows = calibration_texts(calibration, self.evaluation_tokens)
        with torch.no_grad():
            dense = text_logits(model, rows)
            return self._search_fit(model, blocks, table, rows, dense)

    def _target(self, model: Decoder, table: BlockTimes) -> tuple[float, float]:
        """(microseconds that the blocks may take, microseconds of a whole pass now). Raises ParamError."""
        spec = model.spec
        now = (
            sum(
                table.time_of(0, spec.heads_at(i)) + table.time_of(1, spec.ff_at(i))
                for i in range(spec.n_layers)
            )
            + table.rest
        )
        budget = now / self.speedup - table.rest
        if budget <= 0:
            raise ParamError(
                f"{self.name}.speedup = {self.speedup:g}: a pass of {spec.name} without any block is "
                f"{now / table.rest:.2g} times as fast; ask for less."
            )
        return budget, now

    def _search_fit(
        self, model: Decoder, blocks: list[list[PruningLevel]], table: BlockTimes, rows: Tensor, dense: Tensor
    ) -> LatencyResult:
        budget, now = self._target(model, table)
        chance = Random(self.seed)
        weights = [1.0] * len(blocks)
        seen = dict[tuple[int, ...], float]()
        us = [
            [table.time_of(b % 2, _level_width(model, b, x)) for x in block] for b, block in enumerate(blocks)
        ]

        def planned(weights: Sequence[float]) -> tuple[int, ...]:
            triples = zip(weights, us, blocks, strict=True)
            return tuple(
                choose_within_budget(
                    [[(t, w * x.error) for t, x in zip(ts, xs, strict=True)] for w, ts, xs in triples], budget
                )
            )

        def far(plan: tuple[int, ...]) -> float:
            if plan not in seen:
                gates, others = cut_structures(model, _layer_pairs(blocks, plan))
                seen[plan] = kl_divergence(
                    dense, text_logits(apply_gates(replace_layer_matrices(model, others), gates), rows)
                )
            return seen[plan]

        plan = planned(weights)
        with Progress("weighing blocks", self.search_trials, "plans") as progress:
            for _ in range(self.search_trials):
                other = [
                    w * chance.lognormvariate(0, SPREAD) if chance.random() < 0.3 else w for w in weights
                ]
                if far(came := planned(other)) < far(plan):
                    plan, weights = came, other
                progress.add()
        took = table.rest + sum(us[b][x] for b, x in enumerate(plan))
        return LatencyResult(_layer_pairs(blocks, plan), took, now, far(plan), len(seen) - 1)


def _block_levels(model: Decoder, rows: Tensor) -> list[list[PruningLevel]]:
    """The levels of each block, attention and feed-forward alternating; the whole level first."""
    spec = model.spec
    heads, columns = input_grams(model, rows)
    blocks: list[list[PruningLevel]] = []
    with Progress("taking structures out", 2 * spec.n_layers, "blocks") as progress:
        for i, layer in enumerate(model.layers):
            for name, gram, width, counts in (
                (LAST[0], heads[i], spec.head_dim, range(spec.heads_at(i) + 1)),
                (
                    LAST[1],
                    columns[i],
                    1,
                    [spec.ff_at(i) - x for x in reversed(measured_widths(spec.ff_at(i)))],
                ),
            ):
                blocks.append(pruning_levels(unpack(getattr(layer, name)), gram, width, list(counts)))
                progress.add()
    return blocks


def _level_width(model: Decoder, block: int, level: PruningLevel) -> int:
    """The number of heads or columns of a block at a level."""
    return len(level.inputs) // (1 if block % 2 else model.spec.head_dim)


def _layer_pairs(
    blocks: list[list[PruningLevel]], plan: Sequence[int]
) -> list[tuple[PruningLevel, PruningLevel]]:
    chosen = [block[at] for block, at in zip(blocks, plan, strict=True)]
    return [*zip(chosen[::2], chosen[1::2], strict=True)]


def cut_structures(
    model: Decoder, chosen: Sequence[tuple[PruningLevel, PruningLevel]]
) -> tuple[Gates, dict[MatrixPlace, Tensor]]:
    """Gates that close the structures removed at these levels, and the updated last matrices."""
    spec, others = model.spec, dict[MatrixPlace, Tensor]()
    tables = [torch.ones(spec.n_layers, n, dtype=model.dtype) for n in (spec.n_heads, spec.d_ff)]
    for i, pair in enumerate(chosen):
        for name, table, level in zip(LAST, tables, pair, strict=True):
            table[i, list(level.gone)] = 0
            if level.gone:
                others[MatrixPlace(i, name)] = level.weight(unpack(getattr(model.layers[i], name)).shape[1])
    return Gates(*tables), others
