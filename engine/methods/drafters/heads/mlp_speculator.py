"""MLP speculator: a sequence of heads; each also reads the token chosen before it, and the most probable paths are drafted."""

from __future__ import annotations

from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.model.heads.drafting.mlp_speculator import MLPSpeculatorNet as Net
from decodescope.engine.model.layers.faults import require_finite

from ..shared.head_tree import HeadState
from ..shared.model_tree import MOST, tree_size_conflict
from ..shared.union import merge_trees


@component
class MLPSpeculator(HeadState):
    """Head k reads a state and the token before the one that it guesses.

    The state begins as the target's final feature of the token before the root. Level by level, each path continues with the
    likeliest tokens of its head, as many as `branching` gives: 5 x 4 x 3 paths. The `max_paths` paths of the highest
    probability, the product of the heads' probabilities, are drafted. They form a tree, which holds shared prefixes once.

    The draft is chosen without chance: lossless under any sampler with the lossless rule. Costs one step of the net and the
    unembedding per level, all paths at once. At the first step after a prompt of one token, the target has no state yet and
    nothing is drafted. The draft is always a tree; the official code sends the paths one by one if that takes no more rows.
    """

    title = "MLP speculator (IBM)"
    source = "Wertheimer et al. 2024, arXiv:2404.19124; fms-extras, fms_extras/models/speculator.py, utils/generation.py"
    reads = "mlp_speculator"
    tells: ClassVar[dict[str, Note]] = {
        "scores": Note("grid", "paths", "nats", "log-probability of each path that is kept, best first"),
        "dropped": Note("series", "dropped", "paths"),
    }

    branching: tuple[int, ...] = param(
        (5, 4, 3),
        low=1,
        high=MOST,
        most=MOST,
        unit="tokens",
        help="continuations of each path, one number per level, e.g. 5,4,3",
    )
    max_paths: int = param(5, low=1, high=32, unit="paths", help="number of likeliest paths to draft")

    @property
    def branches(self) -> bool:
        return self.max_paths > 1

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return tree_size_conflict(self.branching, "mlp_speculator.branching") or super().refuse(method, spec)

    def propose(self, ctx: Context) -> Draft:
        if self._state is None or ctx.room == 0:
            return Draft()
        net, decoder = cast(Net, self._heads), ctx.target.decoder
        widths = self.branching[: min(net.shape["heads"], ctx.room)]
        state = net.begin(self._state)[None]  # [R, d] for R paths
        paths = torch.empty(1, 0, dtype=torch.int64, device=decoder.device)  # [R, k]
        scores = state.new_zeros(1)
        last = torch.tensor([ctx.tokens[-1]], device=decoder.device)
        levels: list[Tensor] = []  # [R, V] of each level
        for k, width in enumerate(widths):
            state = net.step(k, state, F.embedding(last, decoder.embed))
            laws = require_finite(decoder.unembed(net.feature(state)), f"the heads {net.kind}").log_softmax(
                -1
            )  # [R, V]
            levels.append(laws)
            best = laws.topk(min(width, laws.shape[-1]))
            n = best.indices.shape[1]
            scores = (scores[:, None] + best.values).flatten()  # [R] -> [R x n]
            last = best.indices.flatten()
            paths = torch.cat([paths.repeat_interleave(n, 0), last[:, None]], 1)
            state = state.repeat_interleave(n, 0)
        top = scores.topk(min(self.max_paths, len(scores)))
        tokens, parents, nodes = merge_trees(
            (row, range(-1, len(row) - 1)) for row in paths[top.indices].tolist()
        )
        notes = {
            "scores": [round(x, 4) for x in top.values.tolist()],
            "dropped": len(scores) - len(top.values),
        }
        draft = Draft(tokens, parents, source="MLP speculator", notes=notes)
        for path, at in zip(top.indices.tolist() if ctx.records else [], nodes, strict=False):
            # the paths of a level are in the order of those above
            rows = [laws[path * len(laws) // len(scores)] for laws in levels]
            draft.logits |= ctx.keep_logits([ROOT, *at[:-1]], rows)
        return draft
