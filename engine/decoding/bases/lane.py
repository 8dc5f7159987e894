"""Lane: one decoder reading along one sequence, with its own KV cache, cache policy and KV compression."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from decodescope.engine.core.prefix import common_prefix
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.model.attention.extra_kv import ExtraEmbeds, Kind
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.executor import Executor, catch_device_faults, not_finite_reason
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.faults import require_finite
from decodescope.engine.model.layers.partial_pass import ExecutedLayers, Skip
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.model.stores.sparse_read import SparseRead
from decodescope.engine.trace.records.events import Pass

from ..values.pass_record import (
    check_monotone_layers,
    note_pending,
    note_read,
    pass_record,
    record_layers_run,
)
from ..values.prompt_attention import PromptAttention
from ..values.reference_cache import ReferenceCache
from ..values.vocabulary_map import TranslatedText
from .adaptive_depth import AdaptiveDepth, FlushDepth
from .kv_compression import KVCompression
from .policy import CHUNK, CachePolicy


@dataclass(frozen=True)
class ComputedEmbeds:
    """Like `ExtraEmbeds`, but computed from the cache of the text before them, once a lane has read it.

    compute: called with the lane, once it has read `at` tokens; returns float [S, d_model] and leaves no pending rows
    """

    compute: Callable[[Lane], Tensor]
    kind: Kind
    at: int
    origin: str = ""


class Lane:
    """`tokens` are those whose K/V are committed; pending ones are in no list until `commit`.

    needs:  what its passes are asked for; needs that concern the prompt alone end with the prompt
    vectors: embeddings inserted into the text where there is no token, in text order
    prompt: what is known of the prompt while it is read; None: it has ended, and the policy has acted
    probe:  what the last pass left, or None;  best: argmax of each of its logit rows (sequence 0)
    passes: records of the passes since they were last taken;  board: what the last one chose to read, if the policy selects
    open:   opens a lane of its own for the model of a role, which a policy asks for when the prompt has ended
    encode: text -> its ids, without a prefix; None without a tokenizer
    translated: the text in its model's own ids, if that has another tokenizer than the target; None: the ids are the target's
    reference: reads along with a full cache; None: not asked for
    shown:  True if what its passes decide is recorded
    rule:   the rule under which it reads texts, its prompt among them; None: all layers run for them
    lacks:  by layer, entries that it did not take up of the tokens committed since this was last taken; None: none
    freed:  for each text that ended since this was last taken, the places in it of the entries that were freed; None: none
    watch:  called as watch(lane, rows, before) after the rows are committed and before the policy acts; before: the number of
            entries that were there before them, by layer
    """

    def __init__(
        self,
        name: str,
        decoder: Decoder,
        policy: CachePolicy,
        *,
        kv_compression: KVCompression | None = None,
        needs: Needs | None = None,
        batch: int = 1,
        executor: Executor | None = None,
    ):
        self.name = name
        self.decoder = decoder
        self.policy = policy
        self.kv_compression = kv_compression or KVCompression()
        self.needs = (needs or Needs()) | policy.needs
        self.prompt: PromptAttention | None = PromptAttention(decoder, self.needs)
        self.executor = executor or Executor(decoder.device)
        self.cache = KVCache(
            decoder.spec,
            batch=batch,
            columns=policy.columns,
            dtype=decoder.dtype,
            device=decoder.device,
            store=self.kv_compression.store,
        )
        self.tokens: list[int] = []
        self.vectors: Sequence[ExtraEmbeds | ComputedEmbeds] = ()
        self.probe: Probe | None = None
        self.best: list[int] = []
        self.passes: list[Pass] = []
        self.policy_us = 0.0
        self.watch: Callable[[Lane, list[int], list[int]], None] | None = None
        self.board: SparseRead | None = None
        self.open: Callable[[str, Needs], Lane] | None = None
        self.encode: Callable[[str], list[int]] | None = None
        self.translated: TranslatedText | None = None
        self.reference: ReferenceCache | None = None
        self.shown = False
        if policy.needs_reference:
            self.keep_reference()
        self.rule: AdaptiveDepth | None = None
        self.lacks: list[int] | None = None
        self.freed: list[list[int]] | None = None
        self._feed: Feed | None = None
        self._ran: ExecutedLayers | None = None
        self._prompted = 0  # tokens of the prompt, once its end was read

    def keep_reference(self, whole: Decoder | None = None, weight_bytes: int = 0) -> None:
        """From now on keep a full cache next to this one. Call this before anything is read. The cache is of the same model,
        or of a `whole` one with `weight_bytes` bytes of additional weights."""
        batch = self.cache.layers[0].k.shape[0]
        self.reference = self.reference or ReferenceCache(
            whole or self.decoder,
            self.executor,
            batch,
            columns=self.policy.needs_reference,
            whole=whole is not None,
            weight_bytes=weight_bytes,
        )
        self.cache.reference = self.reference.cache

    def set_depth_rule(self, rule: AdaptiveDepth) -> None:
        """From now on, before anything was read, read texts under `rule`."""
        rule.attach_lane(self)
        rule.begin(self.decoder.spec)
        self.rule = rule

    def log_evictions(self, scores: bool = False) -> None:
        """From now on keep the positions that leave each layer, and what they became part of, until they are taken; scores:
        also what the entries were worth, where the policy ranks them."""
        for store in self.cache.layers:
            store.evicted = []
            store.merged = []
            store.ranked = [] if scores else None

    def forward(
        self, feed: Feed, phase: str = "verify", skip: Skip | None = None, depth: AdaptiveDepth | None = None
    ) -> Tensor:
        """Run `feed`; its rows are pending in the layers that got entries of them. Logits float [B, T, V], or [B, R, V] of the
        rows that the feed asks for.

        Raises EngineFault with reason "non_finite_logits" if a row has NaN, +inf, or nothing but -inf.
        """
        if self.cache.waiting and (depth is None or depth.skipped_kv != "defer"):
            self.flush_deferred()
        self.probe = Probe(self.needs) if self.needs else None
        if depth is not None:
            depth.shown = self.shown
        self._prepare_masks(feed)
        held = self.cache.lengths()
        if skip is not None and skip.gap == "monotone":
            check_monotone_layers(self.cache, skip)
        start = self.executor.mark()
        ran = ExecutedLayers() if skip is not None or depth is not None or feed.enter else None
        logits = self.executor.run(self.decoder, feed, self.cache, self.probe, skip, depth, ran)
        peak, best = self.executor.row_maxima(logits)
        end = self.executor.mark()
        fault = not_finite_reason(peak, f"a {phase} pass of {self.name} ({self.decoder.spec.name})")
        if fault is not None:
            self.rollback()
            raise fault
        self.best = best
        self._feed, self._ran = feed, ran
        if self.reference is not None:
            self.reference.logits = logits
        record = pass_record(self.name, phase, feed, self.cache, held, self.executor.elapsed_us(start, end))
        if ran is not None:
            record_layers_run(record, ran, self.decoder.spec.n_layers)
        note_pending(record, self.cache)
        left = None if depth is None else depth.take_exit()
        if left is not None and left.asks:
            record.record_exit_tests(left)
        record.instrumented = True if self.probe is not None else None
        record.together = self.executor.together
        self.board = feed.board
        self.passes.append(record)
        return logits

    def _prepare_masks(self, feed: Feed, alone: bool = False) -> None:
        """Set the positions of a pass's rows and what the policy lets them see. A row that comes alone sees what is held.
        alone: as for `states_before`."""
        feed.sinks, feed.board = self.policy.sink_places, None if alone else self._board(feed)
        feed.shift = 0 if alone else self.cache.extra_entries
        if (
            self.policy.strict and feed.highest > self.cache.length
        ):  # not the one row right after what is held
            feed.band = self.policy.band

    @torch.inference_mode()
    def states_before(
        self,
        feed: Feed,
        until: int,
        phase: str = "draft",
        alone: bool = False,
        by: Decoder | None = None,
        logits: int = 0,
    ) -> Tensor:
        """Run the layers below `until` over `feed`, from where it enters; its rows are pending in these alone. The states
        [B, T, d_model] that enter layer `until`; a pass with `enter` can go on from them. alone: a whole text, without the
        cache; by: a form of the lane's model that reads instead of it; logits: rows that the caller will unembed."""
        if self.cache.waiting and not alone:
            self.flush_deferred()
        self._prepare_masks(feed, alone)
        cache, held = (None, 0) if alone else (self.cache, self.cache.lengths())
        start = self.executor.mark()
        states = catch_device_faults(
            lambda: (by or self.decoder).states_before(feed, cache, until), self.decoder.device
        )
        us = self.executor.elapsed_us(start, self.executor.mark())
        ran = [*range(feed.enter, until)] if feed.enter else until
        record = Pass(self.name, phase, feed.length, held, us, batch=feed.tokens.shape[0], attn=ran, ffn=ran)
        record.aside = feed.shift or None
        self.board = feed.board
        record.logits = logits
        note_read(record, feed, self.cache)
        if not alone:
            note_pending(record, self.cache)
        self.passes.append(record)
        return states

    def _board(self, feed: Feed) -> SparseRead | None:
        """Where the layers of a pass leave what they read, if the policy selects; a prompt is read as a whole."""
        if not self.policy.selects or feed.logits == "last":
            return None
        if self.prompt is not None:
            self._prompted = len(self.tokens) + 1  # it ends with the next token
        # its last token may go on later, and reads everything then too
        late = self.cache.waiting or feed.enter
        whole = self._prompted if self.prompt is not None or late else 0
        if feed.highest < whole:
            return None
        return SparseRead(self.policy.select, feed.positions, feed.highest, whole)

    def commit(self, rows: list[int], compress: bool = True) -> None:
        """Make the pending rows `rows` (ascending) permanent, drop the others.

        The policy sees the attention of these rows and no other, over the entries that survive; then it may act.
        """
        assert self._feed is not None
        before, fed = [store.n for store in self.cache.layers], self._feed.length
        apart = self._ran is not None and bool(self._ran.pending)
        for store in () if apart else self.cache.layers:
            if store.m != fed:
                raise ValueError(f"{self.name}: {store.m} rows are pending, the last pass fed {fed}.")
        self.cache.commit(rows, self._ran)
        if apart:
            self._note_lacking(before, len(rows))
        self.tokens += self._feed.tokens_of(rows)
        if self.policy.reads:
            self.policy.read(self.cache, self._feed.tokens[:, rows])
        if self.prompt is not None:
            self.prompt.add(self.probe, rows, self._feed.length)
        if self.reference is not None:
            self._follow(self.reference, rows)
        if self.probe is not None and self.policy.needs.attention != "none":
            self._observe(before, rows)
        if self.watch is not None:
            self.watch(self, rows, before)
        if compress and self.cache.waiting and self._needs_equal_layers:
            self.flush_deferred()
        start = self.executor.mark()
        if compress:
            self._act()
        self.policy_us += self.executor.elapsed_us(start, self.executor.mark())
        if compress and self.reference is not None:
            self.reference.measure_cut(self.cache)

    def _note_lacking(self, before: list[int], rows: int) -> None:
        """Note how many entries layers lack of the `rows` just committed; `before`: entries held until then."""
        taken = [store.n - n for store, n in zip(self.cache.layers, before, strict=True)]
        self.lacks = [old + rows - n for old, n in zip(self.lacks or [0] * len(taken), taken, strict=True)]

    @property
    def _needs_equal_layers(self) -> bool:
        """True if something after a commit needs all layers to hold the same tokens."""
        return bool(
            set(self.policy.does) - {"select"} or self.kv_compression.does or self.reference is not None
        )

    @property
    def deferred_tokens(self) -> int:
        """Tokens that wait before a layer."""
        return self.cache.deferred_tokens

    @torch.inference_mode()
    def flush_deferred(self) -> None:
        """Let all waiting tokens go on to the last layer, in one pass with an unused answer. Every layer then holds
        what a pass over the whole text would have left. Nothing is pending."""
        if not self.cache.waiting:
            return
        first = self.cache.waiting.pop(min(self.cache.waiting))  # whom the others join
        kept = self.probe, self.best, self._feed, self._ran, self.board
        feed = Feed(first.tokens, first.positions, logits=[], enter=first.layer, states=first.states)
        self._feed = feed
        self._ran = ExecutedLayers()
        self.probe = Probe(self.needs) if self.needs else None
        before, held = [store.n for store in self.cache.layers], self.cache.lengths()
        self._prepare_masks(feed)
        start = self.executor.mark()
        self.executor.run(self.decoder, feed, self.cache, self.probe, None, FlushDepth(), self._ran)
        # before the rows are committed: what was read is counted among the entries that were held
        record = pass_record(
            self.name, "flush", feed, self.cache, held, self.executor.elapsed_us(start, self.executor.mark())
        )
        self.cache.finish_flush(first)
        record_layers_run(record, self._ran, self.decoder.spec.n_layers)
        self.passes.append(record)
        self._note_lacking(before, 0)
        if self.probe is not None and self.policy.needs.attention != "none":
            self._observe(before, [*range(feed.length)])
        self.probe, self.best, self._feed, self._ran, self.board = kept

    def _act(self) -> None:
        """Let the policy act after a commit; the first time the prompt has ended."""
        if self.prompt is not None:
            self.prompt.lane = self
            self.policy.prompt_end(self.cache, self.prompt)
            self.prompt, self.needs = None, self.needs.decode_needs
        self._compress()

    def _follow(self, reference: ReferenceCache, rows: list[int]) -> None:
        """Let the full cache read what was committed; a policy that goes by it sees its attention."""
        assert self._feed is not None
        reference.follow(self._feed, rows, self.cache)
        for i, store in enumerate(self.cache.layers if self.policy.needs_reference and rows else ()):
            columns = reference.columns(store)
            if columns is not None:
                self.policy.observe_columns(i, store, columns)
            else:
                self.policy.observe(i, store, reference.rows(store))

    def _compress(self) -> None:
        """Let the policy act, the prompt's end apart."""
        self.policy.compress(self.cache)
        self.kv_compression.pack(self.cache)
        self.cache.shrink()

    def set_needs(self, needs: Needs) -> None:
        """Ask the passes to come for `needs`."""
        self.needs = needs if self.prompt is not None else needs.decode_needs

    def _observe(self, before: list[int], rows: list[int]) -> None:
        """Hand the last pass's attention to the policy, for the committed `rows`; `before`: entries held until then."""
        assert self.probe is not None and self._feed is not None
        for i, columns in self.probe.columns.items():
            heads, store = self.cache.layers[i].heads, self.cache.layers[i]
            aligned = columns if heads is None else heads.align_to_slots(columns, before[i], rows)
            self.policy.observe_columns(i, store, aligned)
        for i in self.probe.rows:
            seen = self.attention(i, rows, before)
            if seen.shape[3]:  # of a layer that a rule let run for no such row there is nothing to see
                self.policy.observe(i, self.cache.layers[i], seen)

    def attention(self, layer: int, rows: list[int], before: list[int]) -> Tensor:
        """float32 [B, H_kv, g, R, n]: the weights of the last pass's `rows` for the entries of `layer` that survived its
        commit. `before[layer]` of these entries were there already. Rows that did not run this attention get nothing."""
        assert self.probe is not None and self._feed is not None
        seen = self.probe.rows[layer]
        heads = self.cache.layers[layer].heads
        asked = rows
        if self._ran is not None:
            some = self._ran.some.get((layer, "attn"))
            rows = self._ran.kept_rows(layer, rows)
            asked = rows if some is None else [k for k, row in enumerate(some) if row in asked]
        if heads is not None:
            return heads.align_to_slots(
                seen.index_select(3, torch.tensor(asked, device=seen.device)), before[layer], rows
            )
        if asked == rows == list(range(seen.shape[3])):
            return seen
        at, of = (torch.tensor(x, dtype=torch.long, device=seen.device) for x in (rows, asked))
        entries = torch.cat([torch.arange(before[layer], device=at.device), before[layer] + at])
        return seen.index_select(3, of).index_select(4, entries)

    def pad_missing_rows(self, layer: int, rows: list[int], seen: Tensor) -> Tensor:
        """The result of `attention` for `rows`, with a row of zeros for each row that did not run the layer's attention."""
        some = None if self._ran is None else self._ran.some.get((layer, "attn"))
        if some is None:
            return seen
        ran = [k for k, row in enumerate(rows) if row in some]
        at = torch.tensor(ran, device=seen.device)
        return seen.new_zeros(*seen.shape[:3], len(rows), seen.shape[4]).index_copy_(3, at, seen)

    def rollback(self) -> None:
        """Drop what is pending."""
        self.cache.rollback()

    def take_passes(self) -> list[Pass]:
        """The passes since the last call."""
        taken, self.passes = self.passes, []
        return taken

    # ---- texts: read in chunks, from where they differ, or again as a run did

    def read(
        self,
        tokens: list[int],
        phase: str = "catch_up",
        between: Callable[[int, int], None] | None = None,
        compress: bool = True,
    ) -> Tensor:
        """Be at exactly `tokens` and return the logits float [V] after the last of them.

        What was read beyond the common prefix is forgotten, so a drafter may call this freely. At least the last token is
        read again. The probe then holds the states of all that was read again.

        between: called before each chunk with the number of tokens read so far and their total; what it raises ends the
        reading, and all chunks so far are committed.
        compress: the policy acts after the last token; False if the prompt goes on. A policy that reads in a band acts after
        each chunk, which changes nothing for the tokens that follow
        """
        # without a causal mask an entry also depends on the tokens after it
        same = min(self.common_prefix_length(tokens), len(tokens) - 1) if self.decoder.spec.causal else 0
        self.truncate(same)
        logits = None
        hidden: list[dict[int | str, Tensor]] = []
        for at, chunk in self._chunks(same, tokens):
            if between is not None:
                between(at, len(tokens))
            self.read_vectors(at)
            feed = Feed.causal_chain(chunk, at, self.decoder.device, logits="last")
            feed.band = self.policy.band
            logits = self._pass(feed, phase, at - len(tokens))
            hidden += [] if self.probe is None else [self.probe.hidden]
            self.commit(list(range(len(chunk))), compress=False)
            if feed.band is not None:
                self._compress()
        self._join(hidden)
        self.cache.shrink()  # the chunk was wide, and what comes is not
        if compress:
            self._act()
        assert logits is not None
        return logits[0, -1]

    def _pass(self, feed: Feed, phase: str, position: int) -> Tensor:
        """Run `feed` of a text, under a rule that reads; position: as in a rule's `plan`."""
        if self.rule is None:
            return self.forward(feed, phase)
        return self.forward(feed, phase, self.rule.plan(position, feed), self.rule)

    def own_ids(self, tokens: list[int]) -> list[int]:
        """A text of the target in the ids that this lane reads; none if its model cannot read that text: it ends with half a
        character that the model has no tokens for, or is longer in its tokens than it reads."""
        if self.translated is None:
            return tokens
        ids = self.translated.encode(tokens)
        return ids if len(ids) <= self.decoder.spec.max_positions else []

    def read_exactly(self, tokens: list[int]) -> None:
        """Hold exactly `tokens`; what of them it holds already is not read again."""
        self.truncate(self.common_prefix_length(tokens))
        if len(self.tokens) < len(tokens):
            self.read(tokens)

    def load_kv(self, tokens: list[int], kv: Tensor) -> None:
        """Hold `tokens`, in a cache that is empty, without a pass: kv float [L, 2, H_kv, n, D], their keys, rotated, and
        values."""
        device = self.decoder.device
        positions = torch.arange(len(tokens), device=device)[None]
        for store, x in zip(self.cache.layers, kv, strict=True):
            store.append(x[:, None].to(device, self.decoder.dtype), positions)
        self.cache.commit(range(len(tokens)))
        self.cache.shrink()
        self.tokens = list(tokens)

    @torch.inference_mode()
    def read_to_layer(
        self, tokens: list[int], layer: int, between: Callable[[int, int], None], phase: str = "score"
    ) -> Tensor:
        """Read `tokens`, into a cache that is empty, through the layers below `layer`, and fill that one with their keys and
        values: the last token's queries there, float [H, D]. between: as in `read`."""
        queries = None
        for at in range(0, len(tokens), CHUNK):
            between(at, len(tokens))
            feed = Feed.causal_chain(tokens[at : at + CHUNK], at, self.decoder.device)
            start = self.executor.mark()
            queries = catch_device_faults(
                lambda: self.decoder.queries(feed, self.cache, layer),  # noqa: B023 # called at once
                self.decoder.device,
            )
            us = self.executor.elapsed_us(start, self.executor.mark())
            self.passes.append(
                Pass(self.name, phase, feed.length, at, us, attn=layer, ffn=layer, propagated=1)
            )
            for store in self.cache.layers[: layer + 1]:
                store.commit(range(feed.length))
        assert queries is not None
        return queries[0, -1]

    def _chunks(self, at: int, tokens: list[int]) -> Iterator[tuple[int, list[int]]]:
        """The tokens from `at` on in chunks, each with its place; a pass reads one chunk. No chunk crosses a vector. Tokens
        that all see each other are in one chunk."""
        most = CHUNK if self.decoder.spec.causal else len(tokens)
        while at < len(tokens):
            stop = min([at + most, *(x.at for x in self.vectors if x.at > at)])
            yield at, tokens[at:stop]
            at = stop

    @torch.inference_mode()
    def read_vectors(self, at: int) -> None:
        """Read the unread vectors that are after at most `at` tokens of the text: they become entries without tokens.
        Everything before them has been read."""
        if self.prompt is not None:
            self.prompt.shift = self.cache.extra_entries
        known = sum(x.entries > 0 for x in self.cache.outside)
        for x in self.vectors[known:]:
            if x.at > at:
                return
            vectors = x.rows if isinstance(x, ExtraEmbeds) else x.compute(self)
            rows = torch.ones(len(vectors), dtype=torch.bool, device=self.decoder.device)
            feed = Feed.causal_chain([0] * len(vectors), x.at, self.decoder.device, logits="last")
            feed.embeds = vectors[None].to(self.decoder.device)
            feed.embed_rows = rows
            feed.shift = self.cache.extra_entries
            held, start = self.cache.lengths(), self.executor.mark()
            logits = self.executor.run(self.decoder, feed, self.cache, None, None, None)
            require_finite(logits, f"a prefill pass of {self.name} ({self.decoder.spec.name})")
            us = self.executor.elapsed_us(start, self.executor.mark())
            aside = self.cache.extra_entries or None
            self.passes.append(
                Pass(self.name, "prefill", feed.length, held, us, slots=feed.length, aside=aside)
            )
            self.cache.keep_as_extra_kv(x.kind, x.origin)
            if self.prompt is not None:
                self.prompt.shift = self.cache.extra_entries

    def follow(self, other: Lane) -> None:
        """Read the same vectors and extra entries as `other`; call this before anything is read."""
        self.vectors = other.vectors
        self.cache.set_extra_kv([x for x in other.cache.outside if not x.entries])

    def repeat(self, tokens: list[int], commits: Sequence[int]) -> None:
        """Read `tokens` as a run read them that ended with `commits`, a list of token counts.

        The prompt is read first, and nothing of it is evicted yet. Then each commit is read in a pass of its own, after which
        the policy acts. The first commit begins with the prompt's last token; a policy that cuts `once` has read that token
        alone. The probe is left as by `read`."""
        if self.policy.once and commits:
            commits = [1, *commits[1:]] if commits[0] == 1 else [1, commits[0] - 1, *commits[1:]]
        hidden: list[dict[int | str, Tensor]] = []
        at = len(tokens) - sum(commits)
        if at:
            self.read(tokens[:at], compress=False)
            hidden += [] if self.probe is None else [self.probe.hidden]
        self.read_vectors(at)
        for count in commits:
            feed = Feed.causal_chain(tokens[at : at + count], at, self.decoder.device)
            self._pass(feed, "catch_up", at - len(tokens) + sum(commits))
            hidden += [] if self.probe is None else [self.probe.hidden]
            self.commit(list(range(count)))
            at += count
        self._join(hidden)

    def _join(self, hidden: Sequence[dict[int | str, Tensor]]) -> None:
        """Leave the probe with the states of several passes."""
        if self.probe is not None and len(hidden) > 1:
            self.probe.hidden = {place: torch.cat([x[place] for x in hidden], 1) for place in hidden[0]}

    def common_prefix_length(self, tokens: list[int]) -> int:
        """Length of the common prefix of `tokens` and what has been read."""
        return common_prefix(self.tokens, tokens)

    def truncate(self, length: int) -> None:
        """Forget everything from position `length` on."""
        if length < len(self.tokens):
            self.cache.truncate(length)
            del self.tokens[length:]

    @contextmanager
    def read_temporarily(self, tokens: list[int]) -> Iterator[Probe]:
        """Read `tokens` after what is committed; they are pending as long as this lasts, and then gone with their memory. The
        probe has the queries of all of them. What the last pass left behind stays as it is."""
        kept = self.probe, self.best, self._feed, self._ran, self.needs
        self.needs = Needs(queries=len(tokens))
        feed = Feed.causal_chain(tokens, len(self.tokens), self.decoder.device, logits="last")
        batch = self.cache.layers[0].k.shape[0]
        feed.tokens, feed.positions = feed.tokens.expand(batch, -1), feed.positions.expand(batch, -1)
        try:
            self.forward(feed, "score")
            assert self.probe is not None
            yield self.probe
        finally:
            self.probe, self.best, self._feed, self._ran, self.needs = kept
            for store in self.cache.layers:
                store.release()
            self.cache.shrink()

    @contextmanager
    def open_side_lane(self, role: str) -> Iterator[Lane]:
        """A lane of its own for the model of `role`. On exit its cache is freed, and its passes are added to those of this
        lane."""
        assert self.open is not None, "this lane does not know where to find other models"
        with temporary_lane(self.open(role, Needs())) as lane:
            yield lane
            self.passes += lane.take_passes()


@contextmanager
def temporary_lane(lane: Lane) -> Iterator[Lane]:
    """A lane that is needed for a moment: its cache is gone when this is left."""
    try:
        yield lane
    finally:
        lane.probe = None
        lane.cache.layers.clear()
