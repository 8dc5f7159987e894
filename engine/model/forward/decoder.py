"""Decoder: a Llama-style transformer that reads a Feed against a KVCache, and says what it did when asked."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.moments import Moments
from decodescope.engine.core.probe import Probe
from decodescope.engine.core.spec import ModelSpec

from ..attention.attention import by_head, capped, explicit, fused, square, widened
from ..attention.groups import by_size, narrowed_from, widened_to
from ..attention.segments import RopeMode, Segment, attended
from ..layers.column import PROPAGATED
from ..layers.deferred import Waiting
from ..layers.gates import OPEN
from ..layers.layer import Layer as Layer
from ..layers.matrix import linear, moved, pack
from ..layers.norm import doubled, rms_norm, single
from ..layers.partial import NOTHING, Answer, Ran, Rule, Skip
from ..layers.rope import RopeTable, rotate_
from ..layers.row_routing import Passing, chosen, without
from ..layers.vocabulary import Companion
from ..stores.cache import KVCache, LayerStore
from . import plain as straight
from .compiled import Compiled
from .feed import Feed
from .masks import Sight
from .skipped_kv import fill


class Decoder:
    """The model: `spec`, the weights, and `forward`. Weights are read-only while decoding, so copies share them.

    head: the unembedding as loaded (the embedding itself where they are tied);  unembedding: the same, perhaps packed
    """

    def __init__(self, spec: ModelSpec, embed: Tensor, layers: list[Layer], norm: Tensor, head: Tensor):
        self.spec = spec
        self.embed = embed
        self.layers = layers
        self.norm = norm
        self.head = head
        self.unembedding = head
        more = min(spec.max_positions, 8192), embed.dtype, embed.device, spec.max_positions
        self.rope = RopeTable(spec.rope, *more)
        self.local_rope = self.rope if spec.local_rope is None else RopeTable(spec.local_rope, *more)
        self.usable: int | None = (
            None  # ids below this may be emitted; the rows above pad the matrix and get no logit
        )
        self.costs: dict[int, float] = {}  # rows of a pass -> microseconds, once measured
        self.heads: Mapping[str, Companion] = {}  # draft heads trained on this model, by name
        self.gates = OPEN
        self.compiled: Compiled | None = None  # what short passes do between two attentions

    def __deepcopy__(self, memo: object) -> Decoder:
        return self

    @property
    def vocab(self) -> int:
        """V, the number of ids that get a logit."""
        return self.spec.vocab if self.usable is None else min(self.usable, self.spec.vocab)

    def share(self, other: Decoder) -> None:
        """Be that model, weights and all, in a class that adds to what a decoder does; it takes the place of `__init__`."""
        self.__dict__.update(vars(other))

    def limited(self, vocab: int) -> Decoder:
        """The same model, weights shared, of whose ids only those below `vocab` may be emitted."""
        if vocab >= self.vocab:
            return self
        decoder = copy.copy(self)
        decoder.usable = vocab
        return decoder

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights and of the cache."""
        return self.embed.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embed.device

    def rope_of(self, layer: int) -> RopeTable:
        """The rotation of `layer`: layers with a window may have their own."""
        return self.rope if self.spec.window(layer) is None else self.local_rope

    def to(self, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Decoder:
        """The same model in another type or place."""
        given: tuple[tuple[str, torch.dtype | torch.device | str | None], ...] = (
            ("dtype", dtype),
            ("device", device),
        )
        where = {name: x for name, x in given if x is not None}
        embed = self.embed.to(**where)  # type: ignore[call-overload] # keywords of Tensor.to
        head = embed if self.head is self.embed else moved(self.head, **where)
        norm = single(self.norm, self.spec.d_model).to(**where)  # type: ignore[call-overload] # as above
        decoder = Decoder(self.spec, embed, [layer.to(**where) for layer in self.layers], norm, head)
        decoder.usable, decoder.gates = self.usable, self.gates
        decoder.heads = {name: head.moved(**where) for name, head in self.heads.items()}
        return decoder

    def packed(self) -> Decoder:
        """The same model with its matrices laid out for this processor; the plain ones are not kept, but for a tied
        embedding, whose rows are still looked up. Memory stays the same otherwise."""
        decoder = copy.copy(self)
        decoder.layers = [layer.packed() for layer in self.layers]
        decoder.norm = doubled(single(self.norm, self.spec.d_model))
        decoder.unembedding = pack(self.head)
        decoder.head = self.head if self.head is self.embed else decoder.unembedding
        decoder.costs = {}
        return decoder

    def forward(  # noqa: C901, PLR0915
        self,
        feed: Feed,
        cache: KVCache | None,
        probe: Probe | None = None,
        skip: Skip | None = None,
        depth: Rule | None = None,
        ran: Ran | None = None,
    ) -> Tensor:
        """Logits float32 (float64 if the model is) [B, T, V], or [B, R, V] of those R rows that the feed names.

        Every layer that runs appends T pending rows to its store. What the others get, where `skip` leaves attention out or
        `depth` leaves early, each of them says (`gap`). What the pass did is entered in `ran`. A rule that is `whole` has the
        layers above an exit run all the same; the answer stays that of the exit. Under the gap "defer" the rows take along what
        waits in front of a layer that they run (`KVCache.waiting`): it then runs the rest with them. A rule that `routes` says
        of each sub-layer which rows run it; the others are not in its products.
        """
        if probe is skip is depth is ran is None and straight.fits(self.spec, self.gates, feed, cache):
            x = straight.run(
                self.spec, self.layers, self.rope, feed, cache, self.embed_rows(feed), self.compiled
            )
            return self._logits(x, None, feed, None)
        x = self.embed_rows(feed) if feed.states is None else feed.states
        job, ran, skip = _Pass(self, feed, cache, probe), ran or Ran(), skip or NOTHING
        closed, states, late = set(skip.ffn), x, 0 if feed.entries is None else feed.length
        answer: Answer | None = None
        routed = depth if depth is not None and depth.routes else None
        x, ran.fed, waiting = (
            x[:, late:],
            feed.length,
            {} if depth is None or cache is None else cache.waiting,
        )
        for i in range(feed.enter, self.spec.n_layers):
            if feed.waiting(i) < late:
                joining, late = slice(feed.waiting(i), late), feed.waiting(i)
                x, job = torch.cat([states[:, joining], x], 1), _Pass(self, feed.behind(late), cache, probe)
            if probe is not None and i in probe.needs.hidden:
                probe.hidden[i] = x[:, -feed.length :] if waiting else x
            if depth is not None:
                own = feed.deciding(x)
                if answer is None and depth.leave(i, own, asked := self.answer(own)):
                    answer = asked
                    if not depth.whole:
                        job.fill(range(i, self.spec.n_layers), x, depth.gap, ran)
                        break
                if i in waiting:
                    job, x = job.joined(waiting[i], x, ran)
            if i in skip.attn:
                job.fill((i,), x, skip.gap, ran)
            elif routed is not None and (rows := chosen(routed, i, "attn", x, probe)) is not None:
                x = job.attend_some(i, x, rows, routed.gap, ran)
            else:
                x = job.attend(i, x)
                ran.attn.append(i)
                if ran.joined:
                    ran.pending[i] = [-1] * (x.shape[1] - feed.length) + [*range(feed.length)]
            if i not in closed:
                before, some = x, None if routed is None else chosen(routed, i, "ffn", x, probe)
                x = self._ffn(i, x) if some is None else self._ffn_some(i, x, some, ran)
                if some is None:
                    ran.ffn.append(i)
                if depth is not None:
                    closed.update(depth.gate(i, before[:, -feed.length :], x[:, -feed.length :]))
            if late:
                ran.rows[i] = feed.length - late
        return self._logits(x[:, -feed.length :] if ran.joined else x, answer, feed, probe)

    def _logits(self, x: Tensor, answer: Answer | None, feed: Feed, probe: Probe | None) -> Tensor:
        """Those that a pass asks for, of its last states x [B, T, d_model], or the `answer` of an exit."""
        rows = feed.rows
        if answer is None:
            if probe is None or "final" not in probe.needs.hidden:
                x, rows = x[:, rows], slice(None)
            answer = self.answer(x)
        elif isinstance(rows, list):
            rows = slice(None)
        if probe is not None and "final" in probe.needs.hidden:
            probe.hidden["final"] = answer.feature
        return answer.logits(rows)

    def answer(self, x: Tensor) -> Answer:
        """The logits of the states x [B, T, d_model], which some layer has left: not yet worked out."""
        return Answer(x, self.normed, self.unembed, self.spec.name)

    def shallow(self, feed: Feed, cache: KVCache | None, until: int) -> Tensor:
        """The states [B, T, d_model] that enter layer `until`. The layers below it, from where the feed enters, run and append
        T pending rows each."""
        return self._below(until, _Pass(self, feed, cache, None))

    def queries(self, feed: Feed, cache: KVCache, layer: int) -> Tensor:
        """The queries [B, T, H, D] of `layer`, rotated. The layers below it run; of its own, keys and values alone are made: T
        rows are pending in it as in those."""
        job = _Pass(self, feed, cache, None)
        qkv = job.project(layer, self._below(layer, job))
        job.store_kv(layer, qkv)
        return qkv[:, :, : self.spec.heads_at(layer)]

    def _below(self, until: int, job: _Pass) -> Tensor:
        """The states [B, T, d_model] that enter layer `until`, of the pass `job`."""
        x = self.embed_rows(job.feed) if job.feed.states is None else job.feed.states
        for i in range(job.feed.enter, until):
            x = self._ffn(i, job.attend(i, x))
        return x

    def embed_rows(self, feed: Feed) -> Tensor:
        """float [B, T, d_model]: token embeddings, or the feed's own vectors where it gives some."""
        x = F.embedding(feed.tokens, self.embed)
        if self.spec.embed_scale != 1:
            # rounded to the model's type first, as it was trained
            x = x * x.new_tensor(self.spec.embed_scale)
        if feed.embeds is not None and feed.embed_rows is not None:
            x = torch.where(feed.embed_rows[None, :, None], feed.embeds.to(x.dtype), x)
        return x

    def normed(self, x: Tensor) -> Tensor:
        """The final norm of x [..., d_model]: the feature that the unembedding reads."""
        return rms_norm(x, self.norm, self.spec.norm_eps)

    def unembed(self, feature: Tensor) -> Tensor:
        """Logits [..., V] of final features [..., d_model], V being the usable ids; half types come out as float32."""
        return capped(widened(linear(feature, self.unembedding)[..., : self.usable]), self.spec.logit_cap)

    def _ffn(self, i: int, x: Tensor) -> Tensor:
        w = self.layers[i]
        if not self.spec.ff_at(i):
            return self.bare(x, w.down_bias, w.mlp_post, i, 1)
        y = self.gates.columns(i, w.activations(x, self.spec))
        return self.added(x, linear(y, w.down, w.down_bias), w.mlp_post, i, 1)

    def _ffn_some(self, i: int, x: Tensor, rows: Tensor, ran: Ran) -> Tensor:
        """`_ffn` for the `rows` of x (int64 [R]) alone; the state of the others passes by."""
        ran.left_out(i, "ffn", rows)
        return x.index_copy(1, rows, self._ffn(i, x[:, rows])) if len(rows) else x

    def added(self, x: Tensor, y: Tensor, norm: Tensor | None, i: int, block: int) -> Tensor:
        """x + y of a block of layer i (0: attention, 1: feed-forward), normed by its `norm`, times its gate. y may change."""
        return self.gates.whole(i, block, y if norm is None else rms_norm(y, norm, self.spec.norm_eps)).add_(
            x
        )

    def bare(self, x: Tensor, bias: Tensor | None, norm: Tensor | None, i: int, block: int) -> Tensor:
        """`added` of a block of which nothing is left but, where it has one, the bias of its last product."""
        return x if bias is None else self.added(x, bias.expand_as(x).clone(), norm, i, block)


class _Pass:
    """One forward call: what its layers share (rotations, masks), and their attention block."""

    def __init__(self, decoder: Decoder, feed: Feed, cache: KVCache | None, probe: Probe | None):
        self.decoder, self.spec, self.feed, self.cache, self.probe = decoder, decoder.spec, feed, cache, probe
        self.rotations: dict[RopeTable, tuple[Tensor, Tensor]] = {}
        self.sight = Sight(decoder.spec, feed)
        self.far: dict[tuple[RopeTable, int], tuple[Tensor, Tensor]] = {}
        self.passing: Passing | None = None  # rows that leave keys and values among those of the pass

    def rotate(self, i: int, x: Tensor) -> None:
        """Rotate x [B, T, heads, D] in place as layer i does at the fed positions, if it does."""
        if i in self.spec.no_rope:
            return
        table = self.decoder.rope_of(i)
        if table not in self.rotations:
            self.rotations[table] = table.at(self.feed.places, self.feed.highest + self.feed.shift)
        rotate_(x, *self.rotations[table])

    def _rotate_far(self, i: int, q: Tensor, store: LayerStore) -> None:
        """Rotate queries q [B, T, H, D] in place to where they stand for sinks, in layer i and after its rows were appended."""
        key = (self.decoder.rope_of(i), store.n)
        if key not in self.far:
            self.far[key] = key[0].at(*self.sight.far(store))
        rotate_(q, *self.far[key])

    def project(self, i: int, x: Tensor) -> Tensor:
        """Queries, keys and values of layer i from x [B, T, d_model]: [B, T, H + 2 H_kv, D], rotated."""
        qkv = self.decoder.layers[i].queries_keys_values(x, self.spec, i)
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
        kv = self.decoder.layers[i].keys_values(x, self.spec, i)
        self.rotate(i, kv[:, :, : self.spec.kv_at(i)])
        return self._pairs(kv)

    def joined(self, waiting: Waiting, x: Tensor, ran: Ran) -> tuple[_Pass, Tensor]:
        """The pass with what has waited before its rows, whose states are x [B, T, d_model], and the states of both."""
        ran.joined[waiting.layer] = len(waiting)
        feed = self.feed.after(waiting.tokens, waiting.positions)
        if feed.board is not None:
            feed.board.joined(waiting.positions)
        return _Pass(self.decoder, feed, self.cache, self.probe), torch.cat([waiting.states, x], 1)

    def fill(self, layers: Iterable[int], x: Tensor, gap: str, ran: Ran) -> None:
        """Give `layers`, ascending, whose attention does not run what `gap` says, for rows whose state is x [B, T, d_model]."""
        fill(self.cache, self.feed, layers, x, gap, ran, self.keys_values)

    def attend(self, i: int, x: Tensor) -> Tensor:
        """x + attention block of layer i."""
        w = self.decoder.layers[i]
        if not self.spec.kv_at(i):
            self.store_kv(i, x.new_empty(*x.shape[:2], 0, self.spec.head_dim))
            return self.decoder.bare(x, w.out_bias, w.attn_post, i, 0)
        y = self.contexts(i, w.queries_keys_values(x, self.spec, i))
        return self.decoder.added(x, linear(y, w.out, w.out_bias), w.attn_post, i, 0)

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
        return self.decoder.gates.heads(i, y).flatten(2)

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
        job = _Pass(self.decoder, feed, self.cache, self.probe)
        if filled:
            others = without(rows, x.shape[1])
            part = _Pass(self.decoder, self.feed.some(others, 0, False, False), None, None)
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
        rope, middle = self.decoder.rope_of(i), self.sight.middle(i)
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
