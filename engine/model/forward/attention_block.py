"""AttentionBlock: the attention blocks of one forward pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from decodescope.engine.core.moments import Moments
from decodescope.engine.core.probe import Probe

from ..attention.attention import by_head, explicit, fused, square
from ..attention.groups import by_size, narrowed_from, widened_to
from ..attention.segments import RopeMode, Segment, attended
from ..layers.column import PROPAGATED
from ..layers.deferred import Waiting
from ..layers.matrix import linear
from ..layers.partial import Ran
from ..layers.rope import RopeTable, rotate_
from ..layers.row_routing import Passing, without
from ..layers.stack import LayerStack
from ..stores.cache import KVCache, LayerStore
from .feed import Feed
from .masks import Sight
from .skipped_kv import fill


class AttentionBlock:
    """The attention blocks of one forward pass, with what its layers share: rotations and masks."""

    def __init__(self, stack: LayerStack, feed: Feed, cache: KVCache | None, probe: Probe | None):
        self.stack, self.spec, self.feed, self.cache, self.probe = stack, stack.spec, feed, cache, probe
        self.rotations: dict[RopeTable, tuple[Tensor, Tensor]] = {}
        self.sight = Sight(stack.spec, feed)
        self.far: dict[tuple[RopeTable, int], tuple[Tensor, Tensor]] = {}
        self.passing: Passing | None = None  # rows that leave keys and values among those of the pass

    def rotate(self, i: int, x: Tensor) -> None:
        """Rotate x [B, T, heads, D] in place as layer i does at the fed positions, if it does."""
        if i in self.spec.no_rope:
            return
        table = self.stack.rope_of(i)
        if table not in self.rotations:
            self.rotations[table] = table.at(self.feed.places, self.feed.highest + self.feed.shift)
        rotate_(x, *self.rotations[table])

    def _rotate_far(self, i: int, q: Tensor, store: LayerStore) -> None:
        """Rotate queries q [B, T, H, D] in place to where they stand for sinks, in layer i and after its rows were appended."""
        key = (self.stack.rope_of(i), store.n)
        if key not in self.far:
            self.far[key] = key[0].at(*self.sight.far(store))
        rotate_(q, *self.far[key])

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
        return kv if self.passing is None else self.passing.among(kv)

    def keys_values(self, i: int, x: Tensor) -> Tensor:
        """Keys and values of layer i from x [B, T, d_model], rotated, as a store takes them; no query is made."""
        kv = self.stack.layers[i].keys_values(x, self.spec, i)
        self.rotate(i, kv[:, :, : self.spec.kv_at(i)])
        return self._pairs(kv)

    def joined(self, waiting: Waiting, x: Tensor, ran: Ran) -> tuple[AttentionBlock, Tensor]:
        """The pass with what has waited before its rows, whose states are x [B, T, d_model], and the states of both."""
        ran.joined[waiting.layer] = len(waiting)
        feed = self.feed.after(waiting.tokens, waiting.positions)
        if feed.board is not None:
            feed.board.joined(waiting.positions)
        return AttentionBlock(self.stack, feed, self.cache, self.probe), torch.cat([waiting.states, x], 1)

    def fill(self, layers: Iterable[int], x: Tensor, gap: str, ran: Ran) -> None:
        """Give `layers`, ascending, whose attention does not run what `gap` says, for rows whose state is x [B, T, d_model]."""
        fill(self.cache, self.feed, layers, x, gap, ran, self.keys_values)

    def attend(self, i: int, x: Tensor) -> Tensor:
        """x + attention block of layer i."""
        w = self.stack.layers[i]
        if not self.spec.kv_at(i):
            self.store_kv(i, x.new_empty(*x.shape[:2], 0, self.spec.head_dim))
            return self.stack.add_bias(x, w.out_bias, w.attn_post, i, 0)
        y = self.contexts(i, w.queries_keys_values(x, self.spec, i))
        return self.stack.add(x, linear(y, w.out, w.out_bias), w.attn_post, i, 0)

    def contexts(self, i: int, qkv: Tensor) -> Tensor:
        """What the heads of layer i make of queries, keys and values [B, T, H + 2 H_kv, D] before rotation, which are written
        over; times their gates: [B, T, H * D]."""
        s = self.spec
        T = qkv.shape[1]
        heads = self.spec.heads_at(i)
        kv = self.spec.kv_at(i)
        if self.probe is not None and self.probe.needs.moments is not None:
            self._moments(i, qkv[:, :, :heads], self.probe, self.probe.needs.moments)
        parted = i not in s.no_rope and self.cache is not None and self.sight.parted(self.cache.layers[i])
        far = qkv[:, :, :heads].clone() if parted else None
        plain = far.clone() if far is not None and self.sight.middle(i) is not None else None
        bare = None if self.feed.prefix is None else self._grouped(i, qkv[:, :, :heads].clone())
        self.rotate(i, qkv[:, :, : heads + kv])
        store = self.store_kv(i, qkv)
        q = self._grouped(i, qkv)
        if self.probe is not None and self.probe.needs.queries:
            # which rows of a draft stay is not known yet
            last = self.probe.needs.queries if self.feed.logits == "last" else T
            self.probe.queries[i] = q[:, :, :, -last:].clone()
        if store is not None and far is not None:
            self._rotate_far(i, far, store)
            y = self._in_segments(i, *self._parted(i, q, far, plain, store), store, bare)
        elif store is not None and (chosen := self._chosen(i, q, store)) is not None:
            y = self._in_segments(i, chosen, {"original": q}, store, bare)
        elif store is not None and (
            store.segmented or bare is not None or (self.cache is not None and self.cache.outside)
        ):
            y = self._in_segments(i, store.segments(self.sight.mask(i, store)), {"original": q}, store, bare)
        else:
            y = self._at_once(i, q, qkv, store)
        y = y.permute(0, 3, 1, 2, 4).flatten(2, 3)  # [B, H_kv, g, T, D] -> [B, T, H_kv * g, D]
        if uneven := s.uneven_at(i):
            y = narrowed_from(uneven, y)
        return self.stack.gates.heads(i, y).flatten(2)

    def attend_some(self, i: int, x: Tensor, rows: Tensor, gap: str, ran: Ran) -> Tensor:
        """`attend` for the `rows` of x (int64 [R], ascending) alone. The state of the others passes by; what layer i
        gets of them says `gap`."""
        ran.left_out(i, "attn", rows)
        if not len(rows):
            self.fill((i,), x, gap, ran)
            return x
        store, ran.gap = None if self.cache is None else self.cache.layers[i], gap
        filled = gap == "propagate"
        feed = self.feed.some(rows, 0 if store is None else store.m, filled and self.spec.causal, filled)
        job = AttentionBlock(self.stack, feed, self.cache, self.probe)
        if filled:
            others = without(rows, x.shape[1])
            part = AttentionBlock(self.stack, self.feed.some(others, 0, False, False), None, None)
            job.passing = Passing(part.keys_values(i, x[:, others]), rows, others, self.feed.positions)
        else:
            ran.pending[i] = rows.tolist()
        x = x.index_copy(1, rows, job.attend(i, x[:, rows]))
        if job.passing is not None and store is not None and "origin" in store.columns:
            store.mark(PROPAGATED, self.feed.length, job.passing.others)
        return x

    def _chosen(self, i: int, q: Tensor, store: LayerStore) -> list[Segment] | None:
        """What layer i reads of its store; None: all that its rows may see, as a layer with a window of its own does."""
        board = self.feed.board
        if board is None or self.spec.window(i) is not None:
            return None
        return board.segments(i, store, q, self.sight.mask(i, store))

    def _parted(
        self, i: int, q: Tensor, far: Tensor, plain: Tensor | None, store: LayerStore
    ) -> tuple[list[Segment], dict[RopeMode, Tensor]]:
        """Segments and queries of a layer whose sinks stand elsewhere than in the text. far: queries [B, T, H, D] rotated for
        those;  plain: queries before rotation, where something between is read too."""
        rope, middle = self.stack.rope_of(i), self.sight.middle(i)
        segments = self.sight.segments(i, store, rope)
        queries: dict[RopeMode, Tensor] = {"original": q, self.sight.rope: self._grouped(i, far)}
        if plain is not None and middle is not None:
            rotate_(plain, *rope.at(torch.full_like(self.feed.positions, middle.away), middle.away))
            queries["inserted"] = self._grouped(i, plain)
            between = self.sight.inserted(store, queries["inserted"], rope, middle)
            segments += [] if between is None else [between]
        return segments, queries

    def _grouped(self, i: int, qkv: Tensor) -> Tensor:
        """The queries, first among the heads of [B, T, heads, D], by the KV head that they read: [B, H_kv, g, T, D]."""
        q, kv = qkv[:, :, : self.spec.heads_at(i)], self.spec.kv_at(i)
        if uneven := self.spec.uneven_at(i):
            q = widened_to(uneven, q)
        return q.unflatten(2, (kv, q.shape[2] // kv)).permute(0, 2, 3, 1, 4)

    def _asked(self, i: int) -> tuple[Probe | None, bool]:
        """The probe, if it wants the attention of layer i, and whether column sums are what it wants."""
        prefill = self.feed.logits == "last"
        probe = self.probe if self.probe is not None and self.probe.wants_attention(i, prefill) else None
        return probe, probe is not None and probe.needs.attention == "columns" and prefill

    def _in_segments(
        self,
        i: int,
        segments: Sequence[Segment],
        queries: Mapping[RopeMode, Tensor],
        store: LayerStore,
        bare: Tensor | None = None,
    ) -> Tensor:
        """Attention [B, H_kv, g, T, D] of queries in that shape, by rotation, over the segments of a store and what stands
        beside it. bare: queries that are not rotated, where slots see a prefix."""
        if self.cache is not None and self.cache.outside:
            rope = self.sight.rope if self.sight.rope in queries else "original"
            segments = [*segments, *self.sight.aside(i, self.cache.outside, rope)]
        if bare is not None:
            segments, queries = [*segments, self.sight.prefix(i)], {**queries, "unrotated": bare}
        (probe, columns), scale, cap = self._asked(i), self.spec.score_scale, self.spec.attn_cap
        slots = store.n + store.m
        return attended(segments, queries, scale, cap, slots=slots, probe=probe, layer=i, columns=columns)

    def _at_once(self, i: int, q: Tensor, qkv: Tensor, store: LayerStore | None) -> Tensor:
        """Attention [B, H_kv, g, T, D] of q in that shape over all entries of a store, or over those of the pass alone."""
        s, (probe, columns) = self.spec, self._asked(i)
        explicitly = s.attn_cap is not None or probe is not None
        if store is None:
            k, v = self._pairs(qkv[:, :, s.heads_at(i) :])
        elif store.heads is not None and not explicitly:
            mask = self.sight.mask(i, store, padded=False)
            return by_head(q, store.heads, store.n, store.m, mask, s.score_scale)
        else:
            k, v = store.k, store.v
        if explicitly:
            return explicit(q, k, v, self.sight.mask(i, store), s.score_scale, s.attn_cap, probe, i, columns)
        whole, uneven = self.sight.square(i, store), s.uneven_at(i)
        if uneven is not None:
            return by_size(
                uneven, q, k, v, None if whole else self.sight.mask(i, store), s.score_scale, causal=whole
            )
        if whole:
            return square(q, k, v, s.score_scale)
        return fused(q, k, v, self.sight.mask(i, store), s.score_scale)
