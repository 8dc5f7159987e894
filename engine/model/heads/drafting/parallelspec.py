"""ParallelSpec's drafter: EAGLE's layer, with masks after its slots that guess further tokens in the same pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...stores.cache import LayerStore
from .attention import DraftAttention
from .eagle import EagleLayer
from .pairs import PairHead, group_rows


class ParallelSpecLayer(PairHead):
    """Slot t holds EAGLE's pair (f_t, e(t+1)) and outputs the feature of t + 1, from which the unembedding makes token t + 2.

    After it come masks, at positions t + 1, t + 2, ... Mask j (from 1) enters the layer as a trained vector [d] instead of a
    fused pair. It sees the slots up to t and the masks before it, and outputs the feature of t + 1 + j. So one pass over slot
    and k - 1 masks, a *group*, guesses k tokens; none knows the others' results. No slot ever sees a mask.

    The masks are the same after every slot. With k = 1 there are none, and the net is the EAGLE that it holds. The paper
    puts masks into Medusa and EAGLE; a vector for each place, instead of the fused pair, is how we read it [recalled].
    """

    kind = "parallelspec"
    works = ("group", "extend_leaves")

    def __init__(self, d: int, masks: int, n_heads: int, n_kv_heads: int, head_dim: int, d_ff: int) -> None:
        super().__init__(
            d=d, masks=masks, n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim, d_ff=d_ff
        )
        self.layer = EagleLayer(d, n_heads, n_kv_heads, head_dim, d_ff)
        self.masks = nn.Parameter(torch.randn(masks, d) * 0.1)

    @property
    def attention(self) -> DraftAttention:  # type: ignore[override] # a property where the others have a net of their own
        """The layer's attention, with the cache of a text."""
        return self.layer.attention

    def forward(
        self,
        features: Tensor,
        embedded: Tensor,
        start: int = 0,
        store: LayerStore | None = None,
        depth: int = 0,
        visible: Tensor | None = None,
    ) -> Tensor:
        """EAGLE's: the next features [B, T, d] for features and embeddings [B, T, d], no mask after them."""
        return self.layer(features, embedded, start, store, depth, visible)

    def group(self, features: Tensor, embedded: Tensor, store: LayerStore, k: int) -> Tensor:
        """The outputs [k, d] after the last of the pairs float [T, d], which go on in the store. The rows of its k - 1 masks
        are in the store after the pairs, all of them pending."""
        x = torch.cat([self.layer.fuse_inputs(features, embedded), self.masks[: k - 1]])
        return self.layer.next_features(x[None], store.n, store)[0, len(features) - 1 :]

    def extend_leaves(
        self,
        features: Tensor,
        embedded: Tensor,
        leaves: int,
        k: int,
        store: LayerStore,
        depth: Sequence[int],
        visible: Tensor,
    ) -> Tensor:
        """The outputs [T, d] of pairs float [P, d], followed by k - 1 masks for each of `leaves` pairs, leaf by leaf. These T
        rows are at `depth` after the text and see the pending ones `visible` (bool [T, m + T])."""
        x = torch.cat([self.layer.fuse_inputs(features, embedded), self.masks[: k - 1].repeat(leaves, 1)])
        return self.layer.next_features(x[None], store.n, store, depth, visible)[0]

    def unroll_groups(self, features: Tensor, embedded: Tensor, rows: Sequence[int]) -> list[Tensor]:
        """The outputs of a group after every slot of whole texts at once, as training sees them.

        features, embedded: [B, rows[0], d], the pairs;  rows: of each place of a group, for how many slots, falling.
        -> per place [B, rows_j, d]. What sees what: `group_rows`.
        """
        B, device = len(features), features.device
        masks = [self.masks[j].expand(B, R, -1) for j, R in enumerate(rows[1:])]
        x = torch.cat([self.layer.fuse_inputs(features, embedded), *masks], 1)
        positions, visible = group_rows(rows, device)
        q, kv = self.attention.project(x, positions[None].expand(B, -1), rows[0] + len(rows))
        y = self.layer.block(x + self.attention.mix(q, kv[0], kv[1], visible))
        return list(y.split(list(rows), 1))
