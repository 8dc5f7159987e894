"""CaM: before an entry leaves, its value is added to the entries after it, with a probability that its attention gives."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.values.chance import keyed_uniforms
from decodescope.engine.model.layers.column import EntryColumn
from decodescope.engine.model.stores.cache import KVCache, LayerStore
from decodescope.engine.model.stores.merge import MergeResult
from decodescope.engine.trace.records.events import Piece

from .shared.interval import IntervalCuts
from .shared.key_scores import SCORER_HELP, SCORERS, score_entries


@component
class CaM(IntervalCuts):
    """Cache merging: what an evicted entry would have contributed is handed to the `merge_window` kept entries after it.

    The base decides what leaves: StreamingLLM (`scorer` = place, as in the paper) or another score, averaged over the KV
    heads, so that a layer keeps one set. Let A be the attention that an entry drew from the written tokens, and m the number
    of kept entries after it, at most `merge_window`. With probability

        p = min(1, A / mean of A over these m entries)

    its value, divided by m, is added to the value of each of them. Keys stay as they are. The expected update is p v / m;
    `merge` = "expected" adds that and draws nothing. Of a cut's victims only the best are merged, as many as tokens came
    since the last cut; the rest is dropped, so what leaves at the prompt's end is dropped.

    The coin of an entry is drawn from `seed`, layer, head and position, whichever run it is. Each merge is recorded with p
    (as the similarity) and 1 / m (as the weight; p / m if expected), and with the first of its m entries as the target. In
    kvpress a prompt stays whole until the first interval is over (`compress_prompt` off).
    """

    title = "CaM (cache merging)"
    source = (
        "Zhang et al., ICML 2024, openreview LCTmppB165, section 4; zyxxmu/cam, cam_hf/utils_hh/modify_llama_cam.py; "
        "NVIDIA/kvpress, kvpress/presses/cam_press.py"
    )
    does = frozenset({"evict", "merge"})
    needs: ClassVar[Needs] = Needs(attention="decode")
    columns = {"mass": EntryColumn()}  # noqa: RUF012 # a constant of the class
    column, weighs = "mass", "attention"
    goes = "Over its target each layer evicts the same entries in all heads; the value of one may be added to those after it."
    tells: ClassVar[dict[str, Note]] = {
        "probability": Note(
            "grid", "probability of a merge", what="mean of a layer's KV heads, at this step's cut"
        )
    }

    scorer: str = param("place", choices=SCORERS, help=SCORER_HELP)
    interval: int = param(
        1, low=1, high=65_536, unit="tokens", help="number of written tokens between two cuts"
    )
    merge_window: int = param(
        32, low=1, high=1024, unit="entries", help="number of kept entries that share an evicted value (m)"
    )
    merge: str = param(
        "drawn",
        choices=("drawn", "expected"),
        help="merge with probability p, or always with the value multiplied by p",
    )
    seed: int = param(0, low=0, high=2**31 - 1, help="seed of the coins")

    def begin(
        self,
        spec: ModelSpec,
        prompt: int,
        pieces: Callable[[int], Piece] | None = None,
        marks: Container[int] = (),
    ) -> None:
        super().begin(spec, prompt, pieces, marks)
        self._fresh = 0  # tokens since the last cut
        self._chances: dict[int, Tensor] = {}  # layer -> mean p of this step's cut

    def observe(self, layer: int, store: LayerStore, rows: Tensor) -> None:
        store.column("mass").add_(rows.sum(3).mean(2))

    def compress(self, cache: KVCache) -> None:
        self._fresh = 0 if self.since is None else cache.length - self.since
        super().compress(cache)

    def score(self, store: LayerStore) -> Tensor:
        scores = score_entries(store, self.scorer)
        if self.scorer == "place":
            return scores
        order = store.positions().expand(scores.shape).argsort(-1)
        mean = scores.gather(2, order).mean(1, keepdim=True).expand(scores.shape)  # of the heads, by place
        return torch.empty_like(scores).scatter_(2, order, mean)

    def discard(self, store: LayerStore, slots: Tensor) -> None:
        """Merge the values of the best of `slots` (int64 [B, H_kv, e], the worst first) into neighbours, and evict all."""
        if count := min(self._fresh, slots.shape[2]):
            self.merge_values(store, slots, count)
        store.evict(slots)

    def merge_values(self, store: LayerStore, slots: Tensor, count: int) -> None:
        """Add the values of the last `count` of the victims `slots` to kept entries, in place, and record it."""
        at = store.positions().expand(*slots.shape[:2], -1)  # [B, H_kv, n]
        order = at.argsort(-1)
        leaving = torch.zeros_like(at, dtype=torch.bool).scatter_(2, slots, True)
        kept = order[~leaving.gather(2, order)].view(*slots.shape[:2], -1)  # slots, in the order of the text
        source = slots[..., -count:]
        after = torch.searchsorted(at.gather(2, kept), at.gather(2, source), right=True)
        window = after[..., None] + torch.arange(self.merge_window, device=at.device)  # [B, H_kv, c, m]
        there = window < kept.shape[2]
        target = kept.gather(2, window.clamp(max=kept.shape[2] - 1).flatten(2))  # [B, H_kv, c * m]
        m = there.sum(-1).clamp(min=1)
        mass = store.column("mass")
        mean = (mass.gather(2, target).view(window.shape) * there).sum(-1) / m
        p = (mass.gather(2, source) / mean).nan_to_num(nan=0.0, posinf=1.0).clamp(0, 1) * there[..., 0]
        share = p if self.merge == "expected" else (self.coins(store, at.gather(2, source)) < p).to(p.dtype)
        values = store.v
        wide = source[..., None].expand(*source.shape, values.shape[3])
        added = values.gather(2, wide) * (share / m)[..., None].to(values.dtype)  # [B, H_kv, c, D]
        parts = (added[:, :, :, None] * there[..., None]).flatten(2, 3)  # [B, H_kv, c * m, D]
        values.scatter_add_(2, target[..., None].expand(parts.shape), parts)
        self._chances[store.layer] = p[0].mean()
        if store.merged is not None:
            first = target.view(window.shape)[..., 0]
            into = at.gather(2, first).masked_fill(share == 0, -1)
            store.merged.append(MergeResult(at.gather(2, source), into, p.float(), (share / m).float()))

    def coins(self, store: LayerStore, positions: Tensor) -> Tensor:
        """Uniforms of [0, 1) for the entries of a layer at `positions` (int64 [B, H_kv, c]): float64."""
        heads = torch.arange(positions.shape[1], device=positions.device)[:, None]
        return keyed_uniforms(self.seed, torch.full_like(heads, store.layer), heads, positions)

    def notes(self) -> dict[str, Any] | None:
        chances, self._chances = self._chances, {}
        if not chances:
            return None
        return {
            "probability": dict(
                zip(map(str, chances), torch.stack([*chances.values()]).tolist(), strict=True)
            )
        }
