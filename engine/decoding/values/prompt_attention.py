"""Prompt: what a policy may ask of the prompt that was read, once it has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from decodescope.engine.core.moments import Moments
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.attention.attention import TILE, attention_weights, upcast_half
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.layers.rope import rotate_
from decodescope.engine.model.stores.cache import LayerStore


class PromptLane(Protocol):
    """The lane that read a prompt, as a policy uses it when the prompt has ended. The words are those of `Lane`."""

    tokens: list[int]
    encode: Callable[[str], list[int]] | None

    def read_temporarily(self, tokens: list[int]) -> AbstractContextManager[Probe]:
        """Read `tokens` after what is committed, and forget them."""
        ...

    def open_side_lane(self, role: str) -> AbstractContextManager[Any]:
        """A lane of the model of `role`, for as long as this lasts."""
        ...


class PromptAttention:
    """Filled by the lane pass by pass, and dropped after the policy's `prompt_end`.

    Attention is computed on request, from the last queries and the keys of the cache, one layer at a time: the passes
    themselves stay fused, and nothing of the size prompt times prompt is ever allocated.

    length: tokens read so far;  shift: entries without tokens that come before the next
    lane:   the lane that read it, once it has ended
    """

    shift = 0
    lane: PromptLane

    def __init__(self, decoder: Decoder, needs: Needs):
        self.decoder = decoder
        self.spec = decoder.spec
        self.needs = needs
        self.length = 0
        self._queries: dict[int, Tensor] = {}  # layer -> [B, H_kv, g, w, D]
        self._at: dict[int, list[int]] = {}  # layer -> the place of each of them
        self._moments: dict[int, Moments] = {}

    def add(self, probe: Probe | None, rows: Sequence[int], fed: int) -> None:
        """Take in a pass of `fed` rows; `rows` (ascending) of them were committed."""
        before, self.length = self.length, self.length + len(rows)
        if probe is None:
            return
        most = self.needs.queries
        for i, queries in probe.queries.items():
            first = fed - queries.shape[3]  # row of the first that was kept
            kept = [(before + k, row - first) for k, row in enumerate(rows) if row >= first]
            new = queries[:, :, :, [row for _, row in kept]]
            both = torch.cat([self._queries[i], new], 3) if i in self._queries else new
            self._queries[i] = both[:, :, :, -most:]
            self._at[i] = [*self._at.get(i, []), *(at for at, _ in kept)][-most:]
        for i, moments in probe.moments.items():
            assert len(rows) == fed, "moments of rejected rows cannot be taken back"
            self._moments[i] = self._moments[i].merge(moments) if i in self._moments else moments

    def places(self, layer: int, count: int) -> list[int]:
        """The positions of the rows that `rows` gives, ascending."""
        return [x for x in self._at.get(layer, []) if x >= self.length - count]

    def rows(self, layer: int, store: LayerStore, count: int) -> Tensor:
        """float32 [B, H_kv, g, w, n]: what those of the prompt's last `count` tokens that went through the layer (all, unless a
        depth rule left early) give to the entries of its store, by slot; of the last `needs.queries` that did, at most."""
        last = len(self._at[layer])
        return self._weights(layer, store, slice(last - len(self.places(layer, count)), last))

    def _weights(self, layer: int, store: LayerStore, of: slice) -> Tensor:
        queries, at = self._queries[layer][:, :, :, of], self._at[layer][of]
        # [B, H_kv or 1, w, n]
        distance = torch.tensor(at, device=queries.device)[:, None] - store.positions()[:, :, None]
        seen = _visibility_mask(self.spec, layer, distance)
        return attention_weights(
            upcast_half(queries), upcast_half(store.k), seen, self.spec.score_scale, self.spec.attn_cap
        ).float()

    def tiles(self, layer: int, store: LayerStore, size: int = TILE) -> Iterator[tuple[list[int], Tensor]]:
        """`rows` for all tokens that kept their queries, `size` rows at a time, with the positions of those rows."""
        at = self._at.get(layer, [])
        for start in range(0, len(at), size):
            tile = slice(start, start + size)
            yield at[tile], self._weights(layer, store, tile)

    @contextmanager
    def lookahead(self, tokens: list[int]) -> Iterator[LookaheadAttention]:
        """Read `tokens` after the prompt, to see what they attend to; on exit they and their memory are freed."""
        with self.lane.read_temporarily(tokens) as probe:
            yield LookaheadAttention(self.spec, probe.queries)

    def future_query_moments(self, layer: int, future: int) -> tuple[Tensor, Tensor]:
        """Mean [B, H, D] and covariance [B, H, D, D], float32, of the prompt's queries from position `needs.moments` on, moved
        to the next `future` positions: rotated by the mean of the rotations there."""
        moments = self._moments[layer]
        mean, covariance = moments.mean.clone(), moments.covariance
        if layer not in self.spec.no_rope:
            first = self.length + self.shift
            last = first + future - 1
            both = self.decoder.rope_of(layer).at(torch.arange(first, last + 1, device=mean.device), last)
            cos, sin = (x.float().mean(0) for x in both)  # [1, dim]
            rotate_(mean, cos, sin)
            for _ in range(2):  # its rows, then its columns
                rotate_(covariance, cos, sin)
                covariance = covariance.mT.contiguous()
        return mean, covariance


class LookaheadAttention:
    """The attention of tokens read after a prompt to its entries. These tokens are pending in the cache meanwhile."""

    def __init__(self, spec: ModelSpec, queries: dict[int, Tensor]):
        self.spec, self._queries = spec, queries  # layer -> [B, H_kv, g, T, D]

    def tiles(
        self, layer: int, store: LayerStore, among: Tensor | None = None, size: int = TILE
    ) -> Iterator[Tensor]:
        """float32 [B, H_kv, g, t, k] for up to `size` of the tokens at a time: their weights on k committed entries, those of
        the slots `among` (int64 [k]; None: all). The softmax runs over these and the tokens up to the row's own."""
        pending = store.pending_positions()
        assert pending is not None
        n, device = store.n, pending.device
        chosen = torch.arange(n, device=device) if among is None else among
        slots = torch.cat([chosen, torch.arange(n, n + pending.shape[1], device=device)])
        held = store.positions()[:, :, chosen]
        places = torch.cat([held, pending[:, None].expand(-1, held.shape[1], -1)], 2)  # [B, H_kv or 1, S]
        keys = upcast_half(store.k.index_select(2, slots))
        for at in range(0, pending.shape[1], size):
            distance = pending[:, None, at : at + size, None] - places[:, :, None]
            seen = _visibility_mask(self.spec, layer, distance)
            queries = upcast_half(self._queries[layer][:, :, :, at : at + size])
            rows = attention_weights(queries, keys, seen, self.spec.score_scale, self.spec.attn_cap)
            yield rows[..., : len(chosen)].float()


def _visibility_mask(spec: ModelSpec, layer: int, distance: Tensor) -> Tensor:
    """bool, as `distance`: whether a row in `layer` sees an entry at this distance before it, by the model's own mask."""
    window = spec.window(layer)
    seen = distance >= 0 if spec.causal else torch.ones_like(distance, dtype=torch.bool)
    return seen if window is None else seen & (distance < window)
