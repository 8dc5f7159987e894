"""Reader: how a lane reads a text: in chunks, from where it differs, or again as a run did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from decodescope.engine.core.prefix import common_prefix
from decodescope.engine.core.probe import Probe
from decodescope.engine.model.attention.extra_kv import ExtraEmbeds
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.executor import Executor, catch_device_faults
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.faults import require_finite
from decodescope.engine.model.layers.partial_pass import Skip
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.trace.records.events import Pass

from ..values.prompt_attention import PromptAttention
from .adaptive_depth import AdaptiveDepth
from .policy import CHUNK, CachePolicy


class LaneReader:
    """What a Lane builds on: texts, read by its passes. The attributes are those of the lane."""

    name: str
    decoder: Decoder
    policy: CachePolicy
    prompt: PromptAttention | None
    executor: Executor
    cache: KVCache
    tokens: list[int]
    vectors: Sequence[ExtraEmbeds]
    probe: Probe | None
    passes: list[Pass]
    rule: AdaptiveDepth | None

    def forward(
        self, feed: Feed, phase: str = "verify", skip: Skip | None = None, depth: AdaptiveDepth | None = None
    ) -> Tensor:
        """Run `feed`; its rows are pending. Logits [B, T, V]."""
        raise NotImplementedError

    def commit(self, rows: list[int], compress: bool = True) -> None:
        """Make the pending rows `rows` permanent."""
        raise NotImplementedError

    def _act(self) -> None:
        """Let the policy act behind a commit."""
        raise NotImplementedError

    def _compress(self) -> None:
        """Let the policy act, the prompt's end apart."""
        raise NotImplementedError

    def read(
        self,
        tokens: list[int],
        phase: str = "catch_up",
        between: Callable[[int, int], None] | None = None,
        compress: bool = True,
    ) -> Tensor:
        """Be at exactly `tokens` and return the logits float [V] after the last of them.

        What was read beyond the common prefix is forgotten, so a drafter may call this freely. At least the last token is
        read anew. The probe is left with the states of all that was read anew. between: told before each chunk how many of
        the tokens have been read, and of how many; what it raises ends the reading, with all chunks so far committed.
        compress: the policy acts behind the last token; False where the prompt goes on. One that reads in a band acts behind
        each chunk, which changes nothing for the tokens that follow
        """
        # without a causal mask an entry holds what stands behind it, too
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
        """Run `feed` of a text, under a rule that reads; position: as a rule's `plan` is told it."""
        if self.rule is None:
            return self.forward(feed, phase)
        return self.forward(feed, phase, self.rule.plan(position, feed), self.rule)

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
        """The tokens from `at` on in pieces that a pass reads, each with its place: none goes past a vector. All that see each
        other stand in one."""
        most = CHUNK if self.decoder.spec.causal else len(tokens)
        while at < len(tokens):
            stop = min([at + most, *(x.at for x in self.vectors if x.at > at)])
            yield at, tokens[at:stop]
            at = stop

    @torch.inference_mode()
    def read_vectors(self, at: int) -> None:
        """Read the vectors that stand behind `at` tokens of the text or fewer and have not been read: they become entries
        without tokens. Everything before them has been read."""
        if self.prompt is not None:
            self.prompt.shift = self.cache.extra_entries
        known = sum(x.entries > 0 for x in self.cache.outside)
        for x in self.vectors[known:]:
            if x.at > at:
                return
            rows = torch.ones(len(x.rows), dtype=torch.bool, device=self.decoder.device)
            feed = Feed.causal_chain([0] * len(x.rows), x.at, self.decoder.device, logits="last")
            feed.embeds, feed.embed_rows, feed.shift = (
                x.rows[None].to(self.decoder.device),
                rows,
                self.cache.extra_entries,
            )
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

    def follow(self, other: LaneReader) -> None:
        """Read beside the text what `other` does; before anything is read."""
        self.vectors = other.vectors
        self.cache.outside = [x for x in other.cache.outside if not x.entries]

    def repeat(self, tokens: list[int], commits: Sequence[int]) -> None:
        """Read `tokens` as a run did that ended with `commits`, so many tokens each: the prompt before them, of which nothing
        goes yet, then each commit in a pass of its own, after which the policy acts. The first begins with the prompt's last
        token, which one that cuts `once` has read alone. The probe is left as by `read`."""
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
