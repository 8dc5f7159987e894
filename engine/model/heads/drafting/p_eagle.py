"""P-EAGLE's drafter: EAGLE-3's net, with masks after its slots that guess all further tokens in the same pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...stores.cache import LayerStore
from .eagle3 import Eagle3Layer
from .pairs import group_rows


class PEagleLayer(Eagle3Layer):
    """Slot t holds EAGLE-3's pair (f_t, e(t+1)), and its output predicts token t + 2.

    After it come masks, at positions t + 1, t + 2, ... Each mask is the same pair: instead of a feature one learnt state,
    `mask_hidden` (float [states * d]), which goes through the same norms and map as the target's states; instead of the
    embedding of a token that of a mask token. Mask j (from 1) sees the slots up to t and the masks before it, and its output
    predicts token t + 2 + j. So one pass over slot and k - 1 masks, a *group*, guesses k tokens, for any k; no guess knows
    another. No slot ever sees a mask. Without masks it is EAGLE-3 with these weights.

    mask_row: the mask token's row in the embedding that the net reads, counted from 1, as published heads have it; 0: a vector
    of its own, `mask_embed` (float [d]), so that nothing else of the target's embedding has to be trained. The other sizes are
    those of `Eagle3Layer`.
    """

    kind = "p_eagle"
    works = ("logits", "enter", "group")

    def __init__(self, mask_row: int = 0, **eagle3: int) -> None:
        super().__init__(**eagle3)
        self.shape["mask_row"] = mask_row
        d, states = self.shape["d"], 1 if self.shape["unfused"] else self.shape["states"]
        self.mask_hidden = nn.Parameter(torch.randn(states * d))
        self.mask_embed = None if mask_row else nn.Parameter(torch.randn(d) * 0.1)

    def mask_pair(self, table: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The feature and the embedding [d] of every mask; table: float [V, d], the embeddings that the net reads, which only
        a net without `mask_embed` needs."""
        if self.mask_embed is not None:
            return self.enter(self.mask_hidden), self.mask_embed
        assert table is not None, "the mask's embedding is a row of the table"
        return self.enter(self.mask_hidden), table[self.shape["mask_row"] - 1]

    def group(
        self, features: Tensor, embedded: Tensor, mask: tuple[Tensor, Tensor], store: LayerStore, k: int
    ) -> Tensor:
        """The outputs [k, d] after the last of the pairs float [T, d], which go on in the store. The rows of its k - 1 masks,
        of `mask_pair`, are in the store after the pairs, all of them pending."""
        f, e = (
            torch.cat([x, y.expand(k - 1, -1)])[None] for x, y in zip((features, embedded), mask, strict=True)
        )
        return self.forward(f, e, store.n, store)[0, len(features) - 1 :]

    def unroll_groups(self, features: Tensor, embedded: Tensor, rows: Sequence[int]) -> list[Tensor]:
        """The outputs of a group after every slot of whole texts at once, as training sees them.

        features, embedded: [B, rows[0], d], the pairs;  rows: of each place of a group, for how many slots, falling.
        -> per place [B, rows_j, d]. What sees what: `group_rows`.
        """
        self.require_one_layer()
        B, masks = len(features), sum(rows[1:])
        pairs = zip((features, embedded), self.mask_pair(), strict=True)
        x, residual = self._pair(*(torch.cat([text, mask.expand(B, masks, -1)], 1) for text, mask in pairs))
        positions, visible = group_rows(rows, features.device)
        q, kv = self.attention.project(x, positions[None].expand(B, -1), rows[0] + len(rows))
        g = self._output(residual + self.attention.mix(q, kv[0], kv[1], visible))
        return list(g.split(list(rows), 1))
