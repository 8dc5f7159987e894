"""Ada-KV: SnapKV, but the KV heads of a layer share a budget, so some heads keep more entries than others."""

from __future__ import annotations

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.policy import share_knob
from decodescope.engine.model.stores.cache import LayerStore

from .shared.observation_window import ObservationWindow


@component
class AdaKV(ObservationWindow):
    """Choose as SnapKV does, but let the heads of a layer compete.

    A head that attends to many entries keeps more of them than a head that attends to few. `prompt_budget` is the mean of a
    layer's heads.

    The best H_kv * `prompt_budget` votes of all heads together decide how many entries each head would get. Every head keeps at
    least the share f = `min_head_share` of the mean: a head that would get v gets v * (1 - f) + f * prompt_budget, rounded
    down. The remainder from rounding goes to the heads with the most valuable next entry. So a layer keeps exactly as many
    entries as under SnapKV, and their total worth is at least as high. With f = 1 it is SnapKV.

    The authors round to the nearest number, which may miss the sum by one or two. Their options to weigh heads by their own
    best entries, and to keep layers even, are left out here. Each head has its own memory: what a head gives up is freed.
    Defaults are theirs except for the size: a kernel of 7 (`pool_radius` = 3), the largest vote, a floor of one half.
    """

    title = "Ada-KV"
    source = "Feng et al. 2025, arXiv:2407.11550, algorithm 1; FFY0/AdaKV, adaptive_snapkv/monkeypatch/snapkv_utils.py"
    goes = (
        "When the prompt has been read the KV heads of a layer give up, together, the entries that got the fewest votes. What "
        "is written stays."
    )

    pool_radius: int = param(
        3,
        low=0,
        high=31,
        unit="entries",
        help="neighbours on each side whose votes are pooled with an entry's own; 0: no pooling",
    )
    pool: str = param(
        "max",
        choices=("mean", "max"),
        help="how the votes of neighbours are pooled: their mean or their maximum",
    )
    min_head_share: float = param(
        0.5,
        low=0.0,
        high=1.0,
        step=0.05,
        help="share of the average budget that every head keeps; 1: all heads keep as many",
    )
    budget_share: float = share_knob()

    def cut(self, store: LayerStore, worth: Tensor, keep: int, length: int) -> None:
        self.record_ranking(store, worth, length)
        before = length - self.window
        # the lower of equal ones first
        order = worth[..., :before].argsort(dim=2, descending=True, stable=True)
        best = worth.gather(2, order)  # [B, H_kv, n - w], from the best down
        caps = self.head_budgets(best, keep - self.window)
        assert self.settled is not None, "`prompt_end` has set a plan for even heads"
        self.settled.entries[store.layer] = (caps[0] + self.window).tolist()
        stays = torch.ones(worth.shape, dtype=torch.bool, device=worth.device)  # the window's too
        ranks = torch.arange(before, device=worth.device).expand(order.shape)
        stays.scatter_(2, order, ranks < caps[:, :, None])
        store.keep_where(stays)

    def head_budgets(self, best: Tensor, mean: int) -> Tensor:
        """int64 [B, H_kv]: how many entries each head keeps, `mean` of them on average.

        best: float [B, H_kv, m], the worth of each head's entries, from the best down.
        """
        batch, heads, m = best.shape
        # the head of each
        joint = best.flatten(1).argsort(dim=1, descending=True, stable=True)[:, : heads * mean] // m
        wanted = torch.zeros(batch, heads, dtype=torch.long, device=best.device)
        wanted.scatter_add_(1, joint, torch.ones_like(joint))
        caps = (wanted * (1 - self.min_head_share) + self.min_head_share * mean + 1e-9).long()
        following = best.gather(2, caps.clamp(max=m - 1)[..., None])[..., 0].masked_fill(
            caps == m, -torch.inf
        )
        left = heads * mean - caps.sum(1, keepdim=True)  # fewer than there are heads
        first = following.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        return caps + (first < left)
