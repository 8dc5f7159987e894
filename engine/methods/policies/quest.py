"""Quest: read the pages of entries whose keys may score highest, by bounds on each channel."""

from __future__ import annotations

from collections.abc import Callable, Container

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.policy import MOST, CachePolicy
from decodescope.engine.model.attention.attention import upcast_half
from decodescope.engine.model.stores.cache import PAGE, LayerStore
from decodescope.engine.model.stores.pages import score_bound
from decodescope.engine.model.stores.sparse_read import SparseChoice, SparseRead, top_mask
from decodescope.engine.trace.records.events import Piece

DENSE = 2  # first layers that read everything, by default
LEAST = 3  # minimum number of pages to read, for any budget


@component
class Quest(CachePolicy):
    """Each query head reads `token_budget` entries of a layer, in whole pages of 16.

    It reads the page of its own token, and the pages with the largest bounds. The first `dense_layers` layers read everything,
    and so do the tokens of the prompt. A model with no more layers than these would have nothing to choose. The default then
    leaves one layer to choose in, and the header records it; other values are refused.

    For each full page, the smallest and the largest number of each key channel are kept. They bound the product of a query with
    any key of the page without reading the keys; the bounds are an eighth of the keys. A KV head reads the union of its query
    heads' choices; each query head attends to its own pages. All entries stay in memory.

    A row of a draft chooses as it would one by one, also among the pages that its own ancestors fill. So drafts change no text.
    Of equal bounds the first pages are read.

    The newest page counts in the budget and is always read, as in the authors' kernels (quest/utils/controller.py). In their
    evaluation script it competes with the others. That script reads at least three pages, as does this code.
    """

    title = "Quest (query-aware pages)"
    source = "Tang et al. 2024, arXiv:2406.10774, section 3; mit-han-lab/Quest, evaluation/quest_attention.py"
    does = frozenset({"select"})
    goes = "Nothing leaves: each query head reads the newest page and those whose keys may give the largest products."

    token_budget: int = param(
        256,
        low=1,
        high=MOST,
        unit="entries",
        help="entries that each query head reads, in whole pages of 16; at least 3 pages",
    )
    dense_layers: int = param(
        DENSE, low=0, high=256, unit="layers", help="number of first layers that read every entry"
    )

    @property
    def max_read_entries(self) -> int:
        return self.token_budget

    def held_bytes(self, spec: ModelSpec, bits: int, entries: int) -> int:
        """With the bounds of full pages, in the layers that choose what they read."""
        heads = sum(map(spec.kv_at, range(min(self.dense_layers, spec.n_layers - 1), spec.n_layers)))
        bounds = 2 * heads * (entries // PAGE) * spec.head_dim * bits // 8
        return super().held_bytes(spec, bits, entries) + bounds

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.dense_layers < spec.n_layers or self.dense_layers == DENSE:
            return None
        return (
            f"quest.dense_layers = {self.dense_layers}: {spec.name} has the layers 0 to {spec.n_layers - 1}, "
            "and all of them would read "
            f"everything; choose at most {spec.n_layers - 1}."
        )

    def begin(
        self,
        spec: ModelSpec,
        prompt: int,
        pieces: Callable[[int], Piece] | None = None,
        marks: Container[int] = (),
    ) -> None:
        super().begin(spec, prompt, pieces, marks)
        self.dense_layers = min(self.dense_layers, spec.n_layers - 1)

    def select(self, layer: int, store: LayerStore, q: Tensor, board: SparseRead) -> SparseChoice | None:
        count = max(LEAST, self.token_budget // PAGE)
        if layer < self.dense_layers or board.highest // PAGE < count:
            return None
        least, most = store.bounds()
        # own: int64 [B, T], the page of each row
        full = least.shape[2]
        own = board.positions // PAGE
        q = upcast_half(q)
        # there are `begun` + 1 pages: those that are full once the draft is read, and the last one
        begun = board.highest // PAGE - full
        at, board.bounds[layer] = _page_numbers(store, full), full
        tops = score_bound(
            q, least[:, :, None].to(q.dtype), most[:, :, None].to(q.dtype)
        )  # [B, H_kv, g, T, full]
        if begun:
            tops = torch.cat(
                [
                    tops,
                    *(
                        _pending_page_bound(store, q, board.seen, at == full + page, full)
                        for page in range(begun)
                    ),
                ],
                4,
            )
        older = torch.arange(full + begun, device=q.device) < own[:, None, None, :, None]
        chosen = top_mask(tops.masked_fill(~older, -torch.inf), count - 1)
        rest = F.pad(board.seen, (store.n - full * PAGE, 0), value=True)
        if begun:
            mine = torch.arange(begun + 1, device=q.device) == (own - full)[:, None, None, :, None]
            pages = F.pad(chosen[..., full:], (0, 1)) | mine  # [B, H_kv, g, T, begun + 1]
            rest = rest & pages.gather(4, (at - full)[:, None, None, None].expand(*pages.shape[:4], -1))
        return SparseChoice(chosen[..., :full], rest, PAGE)


def _page_numbers(store: LayerStore, full: int) -> Tensor:
    """int64 [B, R]: the page of each entry behind the `full` first pages, pending ones included."""
    pending = store.pending_positions()
    assert pending is not None, "the rows that choose are pending"
    tail = torch.arange(full * PAGE, store.n, device=pending.device).expand(len(pending), -1)
    return torch.cat([tail, pending], 1) // PAGE


def _pending_page_bound(store: LayerStore, q: Tensor, seen: Tensor, inside: Tensor, full: int) -> Tensor:
    """float [B, H_kv, g, T, 1]: the bound of a page that a draft has filled, for each row by the entries that it sees in it.

    inside: bool [B, R], which entries behind the `full` first pages are in this page.
    """
    keys = store.k[:, :, None, full * PAGE :].to(q.dtype)  # [B, H_kv, 1, R, D]
    # [B, 1, T, R]
    sees = F.pad(seen, (store.n - full * PAGE, 0), value=True)[:, :, 0] & inside[:, None, None]
    least = keys.masked_fill(~sees[..., None], torch.inf).amin(3)  # [B, H_kv, T, D]
    most = keys.masked_fill(~sees[..., None], -torch.inf).amax(3)
    return score_bound(q[..., None, :], least[:, :, None, :, None], most[:, :, None, :, None])[..., 0]
