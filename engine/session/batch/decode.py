"""decode: the texts of many prompts by one model, group by group behind their shared prefix."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from decodescope.engine.decoding.bases.policy import CHUNK
from decodescope.engine.decoding.bases.sampler import Sampler
from decodescope.engine.decoding.bases.state import StoppingCriteria
from decodescope.engine.decoding.shared.token_draw import draw_token
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.kernels.choice import OneThreadForTorch
from decodescope.engine.model.forward.executor import EngineFault, Executor, not_finite_reason
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.model.stores.uneven import continue_prefix
from decodescope.engine.trace.records.events import EndReason

from ..load import Model
from ..method import Method, MethodError
from .plan import BatchPlan, PrefixGroup, plan_batch


@dataclass
class DecodedText:
    """The text of a prompt: its tokens, and why it ended; None: it was not decoded to its end.

    violations: what it breaks of what its sampler holds it to, once it has come to its end
    """

    tokens: list[int] = field(default_factory=list)
    end: EndReason | None = None
    violations: list[str] = field(default_factory=list)


@dataclass
class BatchResult:
    """The result of a batch.

    texts:  in the order of the prompts;  read: tokens of prompts that passes were fed before the first of a text
    passes: that wrote, each a token of every text of its group;  peak_bytes: the most that keys and values held at once
    fault:  why the device gave up, after which no text grew any more; None: it did not
    """

    plan: BatchPlan
    texts: list[DecodedText]
    read: int = 0
    passes: int = 0
    wall_s: float = 0.0
    peak_bytes: int = 0
    fault: EngineFault | None = None

    @property
    def ended_count(self) -> int:
        """How many texts were decoded to their end."""
        return sum(x.end is not None for x in self.texts)


@dataclass(frozen=True)
class BatchSettings:
    """How texts are decoded.

    seed:   of the first prompt; each further prompt has one more;  most: texts of a pass, at most
    halted: asked before each pass, those over prompts too, whether to stop there
    over:   called with how many texts have ended, when some have;  each: called with the number and text of each of them
    """

    sampler: Sampler
    stop: StoppingCriteria
    max_new: int = 64
    seed: int = 0
    most: int = 32
    halted: Callable[[], bool] = lambda: False
    over: Callable[[int], None] = lambda count: None
    each: Callable[[int, DecodedText], None] = lambda number, text: None


def check_prompts(model: Model, prompts: Sequence[Sequence[int]]) -> None:
    """Raise MethodError for a prompt that the model cannot read, before anything is computed; it names the prompt.

    A model without a causal mask reads none.
    """
    Method().check(model.spec)
    limit = model.spec.max_positions
    for i, prompt in enumerate(prompts, 1):
        if not prompt:
            raise MethodError(f"prompt {i} has no tokens: give at least one.")
        bad = next((x for x in prompt if not 0 <= x < model.decoder.vocab), None)
        if bad is not None:
            ids = f"the ids of {model.spec.name} are 0 to {model.decoder.vocab - 1}"
            raise MethodError(f"prompt {i} holds token id {bad}; {ids}.")
        if len(prompt) >= limit:
            what = f"prompt {i} has {len(prompt)} tokens, and the model {model.spec.reading_limit}"
            raise MethodError(f"{what}: shorten it, or leave it out.")


@torch.inference_mode()
def decode_batch(model: Model, prompts: Sequence[Sequence[int]], asked: BatchSettings) -> BatchResult:
    """The texts of `prompts` (token ids each): what plain decoding writes after each of them, to rounding.

    Keys and values of a group's prefix are there once, and read once by a pass (Hydragen); they go with the group. Raises
    MethodError for a prompt that cannot be read. When the device gives up the texts stay as they are, and `fault` says why.
    """
    check_prompts(model, prompts)
    started = time.perf_counter()
    batch = BatchResult(plan_batch(prompts), [DecodedText() for _ in prompts])
    with OneThreadForTorch(model.decoder.dtype, model.decoder.device):
        for group in batch.plan.groups:
            try:
                _GroupDecoder(model, prompts, asked, batch).decode(group)
            except _BatchHalt:
                break
            except EngineFault as fault:
                batch.fault = fault
                break
    batch.wall_s = time.perf_counter() - started
    return batch


class _BatchHalt(Exception):
    """Somebody has stopped the batch."""


@dataclass
class _ActiveText:
    """A text that is being written. number: of its prompt"""

    number: int
    chance: Chance
    state: Any
    last: int


class _GroupDecoder:
    """Decodes one group and adds its figures to `batch`."""

    def __init__(
        self, model: Model, prompts: Sequence[Sequence[int]], asked: BatchSettings, batch: BatchResult
    ):
        self.decoder = model.decoder
        self.prompts = prompts
        self.asked = asked
        self.batch = batch
        self.executor = Executor(model.decoder.device)
        self.limit = model.spec.max_positions
        self.alphabet = model.alphabet(model.decoder.vocab, asked.stop.tokens)
        self.cache = KVCache(model.spec, dtype=model.decoder.dtype, device=model.decoder.device)

    def decode(self, group: PrefixGroup) -> None:
        """Read the prefix, and write the texts behind it, as many at a time as are asked for."""
        try:
            self._read(self.prompts[group.members[0]][: group.prefix])
            for at in range(0, len(group.members), self.asked.most):
                some = group.members[at : at + self.asked.most]
                self._write(some, self._group_cache(some, group.prefix))
        finally:
            self.batch.peak_bytes = max(self.batch.peak_bytes, self.cache.memory.peak)

    def _read(self, tokens: Sequence[int]) -> None:
        """Read `tokens` behind what the cache holds. Raises _BatchHalt."""
        for at in range(0, len(tokens), CHUNK):
            if self.asked.halted():
                raise _BatchHalt
            feed = Feed.causal_chain(
                list(tokens[at : at + CHUNK]), self.cache.length, self.decoder.device, logits="last"
            )
            self.executor.run(self.decoder, feed, self.cache)
            self.cache.commit(range(feed.length))
            self.batch.read += feed.length

    def _group_cache(self, numbers: Sequence[int], prefix: int) -> KVCache:
        """A cache of these prompts with the first `prefix` entries in common.

        While it is put together, the entries behind the prefix are there twice, and counted twice.
        """
        tails = [self._tail_kv(self.prompts[i], prefix) for i in numbers]
        self.cache.shrink()
        cache, tables = continue_prefix(self.cache, tails), [table for tail in tails for table in tail]
        self.cache.memory.take(*tables)
        self.cache.memory.give(*tables)
        return cache

    def _tail_kv(self, prompt: Sequence[int], prefix: int) -> list[Tensor]:
        """By layer, float [2, 1, H_kv, t, D]: the entries of a prompt behind the prefix, but for its last token's."""
        self._read(prompt[prefix:-1])
        tail = [store.kv[:, :, :, prefix : store.n].clone() for store in self.cache.layers]
        self.cache.truncate(prefix)
        return tail

    def _write(self, numbers: Sequence[int], cache: KVCache) -> None:
        """Write the texts of these prompts, a token of each in every pass; those that end leave the batch."""
        sampler, seed = self.asked.sampler, self.asked.seed
        vocab, device = self.decoder.vocab, self.decoder.device
        states = [sampler.start(list(self.prompts[i]), vocab, self.alphabet) for i in numbers]
        going = [
            _ActiveText(i, Chance(seed + i), x, self.prompts[i][-1])
            for i, x in zip(numbers, states, strict=True)
        ]
        while going:
            if self.asked.halted():
                raise _BatchHalt
            places = [len(self.prompts[x.number]) + len(self.batch.texts[x.number].tokens) for x in going]
            feed = Feed(
                torch.tensor([[x.last] for x in going], device=device),
                torch.tensor([[place - 1] for place in places], device=device),
                highest=max(places) - 1,
            )
            logits = self.executor.run(self.decoder, feed, cache)[:, 0]  # [B, V]
            peak, tops = logits.max(-1)
            fault = not_finite_reason(peak, f"a pass of {self.decoder.spec.name}")
            if fault is not None:
                raise fault
            cache.commit([0])
            cache.shrink()
            self.batch.passes += 1
            best = tops.tolist()
            for i, (text, place) in enumerate(zip(going, places, strict=True)):
                text.last, text.state = draw_token(
                    logits[i : i + 1], best[i], sampler, text.state, text.chance, place
                )
                self._add(text, place)
            left = [i for i, x in enumerate(going) if self.batch.texts[x.number].end is None]
            if left and len(left) < len(going):
                cache.reorder(torch.tensor(left, device=device))
            if len(left) < len(going):
                self.asked.over(len(going) - len(left))
                for x in going:
                    if self.batch.texts[x.number].end is not None:
                        self.asked.each(x.number, self.batch.texts[x.number])
            going = [going[i] for i in left]
        for store in cache.layers:  # the next texts, and the next group, begin with the prefix alone
            store.memory.give(store.kv)

    def _add(self, text: _ActiveText, place: int) -> None:
        """Put the token that was drawn for `place` behind a text, and say whether it ends there."""
        written = self.batch.texts[text.number]
        stops = self.asked.stop.find_stop(written.tokens, [text.last]) is not None
        written.tokens.append(text.last)
        if stops:
            written.end = "stop_token"
            written.violations = self.asked.sampler.violations_at_end(
                written.tokens, self.asked.stop.tokens, self.alphabet
            )
        elif len(written.tokens) >= self.asked.max_new:
            written.end = "max_new_tokens"
        elif place + 1 >= self.limit:
            written.end = "context_full"
