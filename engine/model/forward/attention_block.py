"""AttentionBlock: the attention blocks of one forward pass."""

from __future__ import annotations

import torch
from torch import Tensor

from decodescope.engine.core.moments import Moments
from decodescope.engine.core.probe import Probe

from ..attention.attention import AttentionRequest
from ..attention.dispatch import attend
from ..attention.groups import pad_groups, unpad_groups
from ..attention.segments import RopeMode
from ..layers.matrix import linear
from ..layers.rope import RopeTable, rotate_
from ..layers.row_routing import SkippedRows
from ..layers.stack import LayerStack
from ..stores.cache import KVCache, LayerStore
from .feed import Feed
from .layer_read import LayerRead
from .masks import PassMasks


class AttentionBlock:
    """The attention blocks of one forward pass, with what its layers share: rotations and masks.

    passing: rows that run no attention, and yet leave keys and values among those of the pass; None: there are none
    """

    def __init__(
        self,
        stack: LayerStack,
        feed: Feed,
        cache: KVCache | None,
        probe: Probe | None,
        passing: SkippedRows | None = None,
    ):
        self.stack = stack
        self.spec = stack.spec
        self.feed = feed
        self.cache = cache
        self.probe = probe
        self.rotations: dict[RopeTable, tuple[Tensor, Tensor]] = {}
        self.sight = PassMasks(stack.spec, feed)
        self.turns_apart = feed.sinks is not None or feed.prefix is not None  # queries of several rotations
        self.far: dict[tuple[RopeTable, int], tuple[Tensor, Tensor]] = {}
        self.passing = passing

    def rotate(self, i: int, x: Tensor) -> None:
        """Rotate x [B, T, heads, D] in place as layer i does at the fed positions, if it does."""
        if i in self.spec.no_rope:
            return
        table = self.stack.rope_of(i)
        if table not in self.rotations:
            self.rotations[table] = table.at(self.feed.places, self.feed.highest + self.feed.shift)
        rotate_(x, *self.rotations[table])

    def project(self, i: int, x: Tensor) -> Tensor:
        """Queries, keys and values of layer i from x [B, T, d_model]: [B, T, H + 2 H_kv, D], rotated."""
        qkv = self.stack.layers[i].queries_keys_values(x, self.spec, i)
        self.rotate(i, qkv[:, :, : self.spec.heads_at(i) + self.spec.kv_at(i)])
        return qkv

    def _moments(self, i: int, q: Tensor, probe: Probe, first: int) -> None:
        """Leave the moments of the queries q [B, T, H, D] of a chain, from position `first` on."""
        before = max(0, first - (self.feed.highest - self.feed.length + 1))
        if before < self.feed.length:
            probe.moments[i] = Moments.of(q[:, before:].transpose(1, 2))

    def store_kv(self, i: int, qkv: Tensor) -> LayerStore | None:
        """Append the keys and values of qkv as pending rows of layer i."""
        if self.cache is None:
            return None
        store, kv = self.cache.layers[i], self._pairs(qkv[:, :, self.spec.heads_at(i) :])
        store.append(kv, self.feed.positions if self.passing is None else self.passing.positions)
        return store

    def _pairs(self, kv: Tensor) -> Tensor:
        """Keys and values [B, T, 2 H_kv, D] as a store takes them: [2, B, H_kv, T, D], with those of rows that pass by."""
        kv = kv.unflatten(2, (2, kv.shape[2] // 2)).permute(2, 0, 3, 1, 4)
        return kv if self.passing is None else self.passing.merge_kv(kv)

    def keys_values(self, i: int, x: Tensor) -> Tensor:
        """Keys and values of layer i from x [B, T, d_model], rotated, as a store takes them; no query is made."""
        kv = self.stack.layers[i].keys_values(x, self.spec, i)
        self.rotate(i, kv[:, :, : self.spec.kv_at(i)])
        return self._pairs(kv)

    def attend(self, i: int, x: Tensor) -> Tensor:
        """x + attention block of layer i."""
        w = self.stack.layers[i]
        if not self.spec.kv_at(i):
            self.store_kv(i, x.new_empty(*x.shape[:2], 0, self.spec.head_dim))
            return self.stack.add_bias(x, w.out_bias, w.attn_post, i, 0)
        y = self.contexts(i, w.queries_keys_values(x, self.spec, i))
        return self.stack.add(x, linear(y, w.out, w.out_bias), w.attn_post, i, 0)

    def contexts(self, i: int, qkv: Tensor) -> Tensor:
        """The head outputs of layer i from queries, keys and values [B, T, H + 2 H_kv, D] before rotation, which are
        overwritten; times their gates: [B, T, H * D]."""
        s = self.spec
        heads = self.spec.heads_at(i)
        feed = self.feed
        probe = self.probe
        if probe is not None and probe.needs.moments is not None:
            self._moments(i, qkv[:, :, :heads], probe, probe.needs.moments)
        copies = self._copies(i, qkv[:, :, :heads]) if self.turns_apart else {}
        self.rotate(i, qkv[:, :, : heads + s.kv_at(i)])
        store = self.store_kv(i, qkv)
        queries: dict[RopeMode, Tensor] = {"original": self._group_queries(i, qkv)}
        if probe is not None and probe.needs.queries:
            # which rows of a draft stay is not known yet
            last = probe.needs.queries if feed.logits == "last" else feed.length
            probe.queries[i] = queries["original"][:, :, :, -last:].clone()
        for rope, copy in copies.items():
            self._rotate_copy(i, rope, copy, store)
            queries[rope] = self._group_queries(i, copy)
        fresh = self._pairs(qkv[:, :, heads:]) if store is None else None
        outside = () if self.cache is None else self.cache.outside
        read = LayerRead(i, self.stack, self.sight, queries, store, fresh, outside)
        y = attend(s, i, read, self._attention_request(i))
        y = y.permute(0, 3, 1, 2, 4).flatten(2, 3)  # [B, H_kv, g, T, D] -> [B, T, H_kv * g, D]
        if uneven := s.uneven_at(i):
            y = unpad_groups(uneven, y)
        return self.stack.gates.gate_heads(i, y).flatten(2)

    def _copies(self, i: int, q: Tensor) -> dict[RopeMode, Tensor]:
        """Copies of the queries q [B, T, H, D] of layer i before rotation, one for each rotation unlike the text's."""
        copies: dict[RopeMode, Tensor] = {}
        if (
            self.sight.sinks is not None
            and self.cache is not None
            and i not in self.spec.no_rope
            and self.sight.has_moved_sinks(self.cache.layers[i])
        ):
            copies[self.sight.rope] = q.clone()
            if self.sight.middle_read(i) is not None:
                copies["inserted"] = q.clone()
        if self.feed.prefix is not None:
            copies["unrotated"] = q.clone()
        return copies

    def _rotate_copy(self, i: int, rope: RopeMode, q: Tensor, store: LayerStore | None) -> None:
        """Rotate queries q [B, T, H, D] of layer i in place as `rope` defines, once the rows of the pass were appended."""
        if rope == "unrotated" or store is None:
            return
        if rope == "inserted":
            middle = self.sight.middle_read(i)
            assert middle is not None
            away = torch.full_like(self.feed.positions, middle.away)
            return rotate_(q, *self.stack.rope_of(i).at(away, middle.away))
        key = (self.stack.rope_of(i), store.n)
        if key not in self.far:
            self.far[key] = key[0].at(*self.sight.sink_query_positions(store))
        rotate_(q, *self.far[key])

    def _group_queries(self, i: int, qkv: Tensor) -> Tensor:
        """The queries, first among the heads of [B, T, heads, D], by the KV head that they read: [B, H_kv, g, T, D]."""
        q, kv = qkv[:, :, : self.spec.heads_at(i)], self.spec.kv_at(i)
        if uneven := self.spec.uneven_at(i):
            q = pad_groups(uneven, q)
        grouped: Tensor = q.unflatten(2, (kv, q.shape[2] // kv)).permute(0, 2, 3, 1, 4)
        return grouped

    def _attention_request(self, i: int) -> AttentionRequest | None:
        """The weights of layer i that the probe wants; None: it wants none."""
        prefill = self.feed.logits == "last"
        if self.probe is None or not self.probe.wants_attention(i, prefill):
            return None
        return AttentionRequest(self.probe, i, self.probe.needs.attention == "columns" and prefill)
