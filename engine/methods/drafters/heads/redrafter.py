"""ReDrafter: a small recurrent net drafts by beam search, and the target reads the beams as one tree."""

from __future__ import annotations

from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.model.heads.drafting.redrafter import ReDrafterNet as Net
from decodescope.engine.model.layers.faults import require_finite

from ..shared.head_tree import HeadState
from ..shared.union import merge_trees


@component
class ReDrafter(HeadState):
    """The net reads the target's final feature of the token before the root, and the tokens from the root on, one per step.

    The feature stays the same for the whole draft. Beam search: each of `width` beams continues with any of the `top_k`
    likeliest tokens of its distribution, normalised over these. Of all new beams, the `width` with the highest probability of
    the whole beam stay. After `depth` steps the beams become a tree. The tree holds shared prefixes once, so the target reads
    them once. Its logits are those that it would give each beam alone.

    Beams are chosen, not drawn. The authors' code accepts their tokens with min(1, p / q), where q is the net's distribution,
    and takes the beam that is accepted furthest. Both favour the net's likely tokens. So under a random sampler, their text no
    longer has the target's distribution (`tests/methods/test_redrafter.py` measures the difference). Here nodes are one-hot for
    the rule, and accepted with the rest of p. So it is lossless under any sampler with the rule `lossless`; under a greedy
    sampler both are the same.

    The authors' defaults are 10 beams of 4 tokens, including the root; their examples run 45 of 5. Costs one step of the net
    and the unembedding per level, all beams at once. At the first step after a prompt of one token, the target has no state yet
    and nothing is drafted. Notes: `scores` of the beams, in nats, best first; `nodes`, for each beam the nodes of its tokens;
    `merged`, how many tokens are in the tree already for another beam.
    """

    title = "ReDrafter (recurrent head)"
    source = "Zhang et al. 2024, arXiv:2403.09919; apple/ml-recurrent-drafter, recurrent_drafting/modeling_drafter.py"
    reads = "redrafter"
    tells: ClassVar[dict[str, Note]] = {
        "scores": Note("grid", "beams", "nats", "log-probability of each beam, best first"),
        "nodes": Note("set", "paths", "node", "the nodes at which the tokens of each beam stand"),
        "merged": Note("series", "merged", "tokens", "that stand in the tree for another beam already"),
    }

    width: int = param(
        10, low=1, high=64, unit="beams", help="number of beams kept after each step of the beam search"
    )
    depth: int = param(
        3, low=1, high=16, unit="tokens", help="length of each beam, not counting the root token"
    )
    top_k: int = param(
        50,
        low=1,
        high=1024,
        unit="tokens",
        help="likeliest next tokens considered for each beam at every step",
    )

    @property
    def branches(self) -> bool:
        return self.width > 1

    def propose(self, ctx: Context) -> Draft:
        if self._state is None or ctx.room == 0:
            return Draft()
        # [1, d]
        net = cast(Net, self._heads)
        decoder = ctx.target.decoder
        h = self._state[None]
        state = net.begin(h)  # [R, inner] for R beams
        last = torch.tensor([ctx.tokens[-1]], device=decoder.device)
        beams, scores = last.new_empty(1, 0), state.new_zeros(1)
        above = last.new_empty(1, 0)  # [R, k]: the row of each level that a beam is from
        levels: list[Tensor] = []
        for _ in range(min(self.depth, ctx.room)):
            state = net.step(state, F.embedding(last, decoder.embed))
            logits = decoder.unembed(net.feature(h.expand(len(state), -1), state))  # [R, V]
            logits = require_finite(logits, f"the heads {net.kind}")
            likely = logits.topk(min(self.top_k, logits.shape[-1]))
            grown = (scores[:, None] + likely.values.log_softmax(-1)).flatten()
            scores, at = grown.topk(min(self.width, len(grown)))
            levels.append(logits)
            beam, last = at // likely.values.shape[1], likely.indices.flatten()[at]
            beams, state = torch.cat([beams[beam], last[:, None]], 1), state[beam]
            above = torch.cat([above[beam], beam[:, None]], 1)
        tokens, parents, nodes = merge_trees((row, range(-1, len(row) - 1)) for row in beams.tolist())
        merged = sum(map(len, nodes)) - len(tokens)
        notes = {"scores": [round(x, 4) for x in scores.tolist()], "nodes": nodes, "merged": merged}
        draft = Draft(tokens, parents, source="ReDrafter beams", notes=notes)
        for path, rows in zip(nodes, above.tolist() if ctx.records else [], strict=False):
            of = [logits[row] for logits, row in zip(levels, rows, strict=True)]
            draft.logits |= ctx.keep_logits([ROOT, *path[:-1]], of)
        return draft
