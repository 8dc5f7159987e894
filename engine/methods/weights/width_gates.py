"""Width gates: gates on heads and groups of columns close until a given share of the weights is cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Finding
from decodescope.engine.decoding.bases.pruning import StructuredPruning, replace_layer_matrices, unpack_model
from decodescope.engine.decoding.bases.weights import CalibrationData, MatrixPlace
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.slicing import apply_gates
from decodescope.engine.model.layers.gates import Gates
from decodescope.engine.model.layers.matrix import unpack

from .shared.gate_sizes import GateSizes
from .shared.gating import hard_concrete, probability_open, train_tables
from .shared.texts import calibration_texts, text_loss

HEAT = 2 / 3  # of the gates
STIFF, PUSH = 1000.0, 5.0  # initial l2, and the step size of the multipliers
SMALL = 0.02  # initial scale of an adapter's first matrix; the second one begins at 0


@component
class WidthGates(StructuredPruning):
    """Train hard concrete gates for heads and groups of feed-forward columns towards a target size.

    The gates are drawn as for heads alone. s is the expected share of removed layer weights, from each gate's P(0). A KV head's
    keys and values go when all its query heads do. The objective is the loss on a text + l1 (s - s*) + l2 (s - s*)^2. It is an
    augmented Lagrangian: the gates and the adapter descend, and the multipliers l1 and l2 ascend, so that they grow until the
    target is met. The target rises linearly over the first `warmup_share` of the steps; then the rates fall to 0. At the end,
    heads and groups are closed in the order of their gates until the really removed share is nearest to `cut_share`, and are
    cut out.

    `rank` adds an adapter B A to queries and values. It is trained together with the gates and added to the weights at the end,
    so it costs nothing in decoding. The rest of the model is frozen. Lossy. Cost: a forward and a backward pass over `steps`
    texts of 256 tokens. Deviations: there is no gate on the width of the states, which affects all matrices and every norm. No
    instruction informs the model that it is being cut. There is no tuning afterwards. l2 begins at 1000 and not at 0, because
    steps are few. The authors round the expected count of each layer.
    """

    title = "Width gates (Compresso)"
    source = "Guo et al. 2023, arXiv:2310.05015; microsoft/Moonlit, Compresso/models/l0_module.py"
    reads = True
    finds: ClassVar[dict[str, Finding]] = {
        **StructuredPruning.finds,
        "gate": Finding("grid", "Gate", what="a head's gate at the end, without noise", over="head"),
        "width": Finding("grid", "Width", what="heads and columns that stay in a block", over="sublayer"),
        "gone": Finding(
            "series",
            "Gone",
            what="share of the weights that is expected to be gone, step by step",
            over="round",
        ),
        "wanted": Finding("series", "Wanted", what="what it was to be", over="round"),
    }

    cut_share: float = param(
        0.3, low=0.0, high=0.95, step=0.01, help="share of the layers' weights that is cut"
    )
    columns_per_gate: int = param(
        32, low=1, high=1024, unit="columns", help="number of feed-forward columns that share a gate"
    )
    rank: int = param(
        0, low=0, high=64, help="rank of the adapter on queries and values; 0: no adapter; the authors use 8"
    )
    steps: int = param(
        120,
        low=2,
        high=25_000,
        unit="steps",
        help="length of the training; each step reads a text of 256 tokens",
    )
    warmup_share: float = param(
        0.5, low=0.0, high=1.0, step=0.05, help="share of the training steps in which the target share rises"
    )
    learning_rate: float = param(0.2, low=0.0, high=10.0, help="learning rate of the gates")
    adapter_learning_rate: float = param(0.001, low=0.0, high=1.0, help="learning rate of the adapter")
    initial_log_odds: float = param(2.0, low=-5.0, high=10.0, help="initial log-odds that a gate is open")
    seed: int = param(
        0, low=0, high=2**31 - 1, help="seed of the noise on the gates and of the adapter's first values"
    )

    def fit_gates(
        self, model: Decoder, calibration: CalibrationData
    ) -> tuple[Gates, Mapping[MatrixPlace, Tensor]]:
        sizes, whole = GateSizes(model.spec, self.columns_per_gate), unpack_model(model)
        (heads, groups), others, gone = self.train_gates(
            whole, calibration_texts(calibration, len(calibration.tokens))
        )
        head, group = sizes.close_gates(heads, groups, self.cut_share)
        gates = Gates(head.to(whole.dtype), sizes.expand_groups(group).to(whole.dtype))
        soft, spec = hard_concrete(heads), model.spec
        calibration.add_finding(self, "gate", [row[: spec.heads_at(i)] for i, row in enumerate(soft)])
        calibration.add_finding(self, "width", [[int(x) for x in pair] for pair in sizes.widths(head, group)])
        calibration.add_finding(self, "gone", gone)
        calibration.add_finding(self, "wanted", [self.target_share(step) for step in range(self.steps)])
        return gates, others

    def target_share(self, step: int) -> float:
        """s* of a step."""
        return self.cut_share * min(1.0, (step + 1) / max(1.0, self.warmup_share * self.steps))

    def train_gates(
        self, model: Decoder, rows: Tensor
    ) -> tuple[tuple[Tensor, Tensor], dict[MatrixPlace, Tensor], list[float]]:
        """Train on texts int64 [N, T].

        Returns the gates' parameters, [L, H] and [L, groups], the matrices with an adapter, and s at each step.
        """
        sizes, g = GateSizes(model.spec, self.columns_per_gate), torch.Generator().manual_seed(self.seed)
        tables = [torch.full(shape, self.initial_log_odds, dtype=torch.float64) for shape in sizes.shapes]
        multipliers, gone = torch.tensor([0.0, STIFF], dtype=torch.float64), list[float]()
        adapters = [self._adapter(model, i, g) for i in range(model.spec.n_layers)] if self.rank else []

        def objective(row: Tensor, step: int) -> Tensor:
            noise = [torch.rand(x.shape, generator=g, dtype=x.dtype).clamp_(1e-8, 1 - 1e-8) for x in tables]
            head, group = (hard_concrete(a, u, HEAT) for a, u in zip(tables, noise, strict=True))
            s = sizes.removed_share(*(probability_open(a, HEAT) for a in tables))
            off = s - self.target_share(step)
            gone.append(float(s.detach()))
            masked = apply_gates(
                replace_layer_matrices(model, self._add_adapters(model, adapters)),
                Gates(head, sizes.expand_groups(group)),
            )
            multipliers.add_(torch.stack([off, off.square()]).detach(), alpha=PUSH)  # gradient ascent
            return text_loss(masked, row) + multipliers[0] * off + multipliers[1] * off.square()

        further = (
            [{"params": [x for pair in adapters for x in pair], "lr": self.adapter_learning_rate}]
            if adapters
            else []
        )
        train_tables(
            tables,
            objective,
            rows,
            self.steps,
            self.learning_rate,
            "closing gates",
            further,
            settle=1 - self.warmup_share,
        )
        gone.append(float(sizes.removed_share(*(probability_open(a, HEAT) for a in tables))))
        return (tables[0], tables[1]), self._add_adapters(model, adapters), gone

    def _adapter(self, model: Decoder, i: int, g: torch.Generator) -> tuple[Tensor, Tensor]:
        """A [rank, d_model] and B [queries and values, rank] of layer i."""
        rows, d = (model.spec.heads_at(i) + model.spec.kv_at(i)) * model.spec.head_dim, model.spec.d_model
        first = (
            torch.randn(self.rank, d, generator=g, dtype=torch.float64)
            .mul_(SMALL)
            .to(model.device, model.dtype)
        )
        return first, torch.zeros(rows, self.rank, dtype=model.dtype, device=model.device)

    def _add_adapters(
        self, model: Decoder, adapters: list[tuple[Tensor, Tensor]]
    ) -> dict[MatrixPlace, Tensor]:
        """The matrices with their adapters added: to the rows of queries and values, not to those of keys."""
        others = dict[MatrixPlace, Tensor]()
        for i, (a, b) in enumerate(adapters):
            spec = model.spec
            q, kv = spec.heads_at(i) * spec.head_dim, spec.kv_at(i) * spec.head_dim
            keys = a.new_zeros(kv, a.shape[1])
            others[MatrixPlace(i, "qkv")] = unpack(model.layers[i].qkv) + torch.cat(
                [b[:q] @ a, keys, b[q:] @ a]
            )
        return others
