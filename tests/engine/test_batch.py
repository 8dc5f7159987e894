"""A batch: the plan reads the fewest tokens that one shared prefix per prompt allows, and texts equal those of single runs."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from itertools import chain, combinations
from itertools import count as counting
from typing import Any

import pytest
import torch
import toys

from decodescope.engine.decoding.bases.sampler import Sampler
from decodescope.engine.decoding.bases.state import StoppingCriteria
from decodescope.engine.model.forward.executor import EngineFault, Executor
from decodescope.engine.session.batch.decode import BatchSettings, decode_batch
from decodescope.engine.session.batch.plan import plan_batch
from decodescope.engine.session.method import Method, MethodError


def alike(count: int, seed: int, vocab: int = 13, longest: int = 40) -> list[list[int]]:
    """Prompts that often share a beginning, at several depths; some occur twice."""
    draw, made = random.Random(seed), [[1]]
    for _ in range(count):
        before = draw.choice(made)
        made.append(
            [
                *before[: draw.randint(1, len(before))],
                *(draw.randrange(vocab) for _ in range(draw.randint(0, 9))),
            ]
        )
    return [x[:longest] for x in made[1:]]


def least(prompts: list[list[int]]) -> int:
    """By brute force: tokens read under the best set of prefixes, if each prompt continues after its longest prefix."""
    prefixes = {tuple(x[:i]) for x in prompts for i in range(1, len(x))}
    worth = [p for p in prefixes if sum(tuple(x[: len(p)]) == p and len(x) > len(p) for x in prompts) > 1]
    sets = chain.from_iterable(combinations(worth, k) for k in range(len(worth) + 1))

    def read(chosen: tuple[tuple[int, ...], ...]) -> int:
        longest = [
            max([0, *(len(p) for p in chosen if len(x) > len(p) and tuple(x[: len(p)]) == p)])
            for x in prompts
        ]
        return sum(map(len, chosen)) + sum(len(x) - n for x, n in zip(prompts, longest, strict=True))

    return min(map(read, sets))


def test_no_choice_of_one_prefix_a_prompt_reads_fewer_tokens() -> None:
    several = 0
    for seed in range(60):
        prompts = alike(5, seed, vocab=2, longest=6)
        plan = plan_batch(prompts)
        assert sorted(i for x in plan.groups for i in x.members) == list(range(5))
        for group in plan.groups:
            assert len({tuple(prompts[i][: group.prefix]) for i in group.members}) == 1
            assert all(len(prompts[i]) > group.prefix for i in group.members), (
                "a last token is shared by none"
            )
        assert plan.read == least(prompts) and plan.least <= plan.read <= plan.tokens == sum(
            map(len, prompts)
        )
        unique = {tuple(x[:i]) for x in prompts for i in range(1, len(x))}
        assert plan.least == len(unique) + len(prompts), "the nodes of the prefix tree, and the last tokens"
        several += sum(x.prefix > 0 for x in plan.groups) > 1
    assert several > 3, "the test needs plans with several prefixes"


def test_a_deep_prefix_of_many_is_read_behind_a_copy_of_a_shallow_one() -> None:
    """Two groups share a beginning: each has its own long prefix, and the beginning is read twice."""
    begin, first, second = [1, 2], [3] * 20, [4] * 20
    prompts = [[*begin, *x, i] for x in (first, second) for i in range(3)]
    plan = plan_batch(prompts)
    assert [(x.prefix, x.members) for x in plan.groups] == [(22, (0, 1, 2)), (22, (3, 4, 5))]
    assert (plan.tokens, plan.read, plan.least) == (6 * 23, 2 * 22 + 6, 2 + 40 + 6)
    assert plan_batch([[5]]).groups[0].prefix == 0 and plan_batch([[5], [5], [5, 6]]).read == 4


def asked(sampler: str = "greedy", **more: Any) -> BatchSettings:
    chosen: Sampler = Method.from_names({"sampler": sampler}).sampler
    return BatchSettings(chosen, more.pop("stop", StoppingCriteria()), **more)


@pytest.mark.parametrize("most", [3, 32])
def test_texts_are_those_of_single_runs_and_each_token_of_the_plan_is_read_once(most: int) -> None:
    target, prompts = toys.pair()[0], alike(14, seed=1)
    fed = []
    decoder = toys.model(target.decoder.limit_vocab(target.decoder.vocab)).decoder
    counted = replace(target, decoder=Counted(decoder, fed))
    done = decode_batch(counted, prompts, asked(max_new=12, most=most))
    assert [x.tokens for x in done.texts] == [toys.greedy_text(target.decoder, x, 12) for x in prompts]
    assert {x.end for x in done.texts} == {"max_new_tokens"}
    reading = sum(rows for rows, batch, last in fed if last)
    assert reading == done.read == done.plan.read - len(prompts), (
        "last tokens enter with the first pass that writes"
    )
    assert done.plan.read < done.plan.tokens * 0.8 and len(done.plan.groups) > 1
    writing = [batch for _, batch, last in fed if not last]
    assert len(writing) == done.passes and sum(writing) == 12 * len(prompts) and max(writing) <= most


class Counted:
    """A decoder that records for each pass its rows, its sequences, and whether it reads a prompt."""

    def __init__(self, decoder: Any, fed: list[tuple[int, int, bool]]):
        self._decoder, self._fed = decoder, fed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def forward(self, feed: Any, *rest: Any) -> Any:
        self._fed.append((feed.length, len(feed.tokens), feed.logits == "last"))
        return self._decoder.forward(feed, *rest)


@pytest.mark.parametrize(
    "spec", [toys.toy_spec(), toys.toy_spec(windows=(12, None, 9))], ids=["all", "windows"]
)
def test_texts_that_are_drawn_and_that_stop_are_those_of_runs_with_their_seeds(spec: Any) -> None:
    target, prompts = toys.model(toys.decoder(spec, toys.LIVELY, torch.float64)), alike(9, seed=4)
    done = decode_batch(
        target, prompts, asked("temperature", seed=7, max_new=10, stop=StoppingCriteria(frozenset({2})))
    )
    method = toys.method(sampler="temperature")
    for i, (text, prompt) in enumerate(zip(done.texts, prompts, strict=True)):
        alone = toys.decode(method, prompt, 10, pair=(target, target), seed=7 + i, stop_tokens=[2])
        assert (text.tokens, text.end) == (alone.end.tokens, alone.end.reason), i
    assert {x.end for x in done.texts} == {"stop_token", "max_new_tokens"}, "the test needs both"


def test_a_prefix_is_held_once() -> None:
    target, prefix = toys.pair()[0], toys.prompts(1, length=160, seed=2)[0]
    together = decode_batch(target, [[*prefix, i] for i in range(8)], asked(max_new=3))
    alone = decode_batch(target, [[*prefix, 0]], asked(max_new=3))
    page = 3 * 2 * 2 * 16 * 8 * 8  # layers, keys and values, KV heads, entries, features, bytes
    assert together.peak_bytes <= alone.peak_bytes + 8 * page and together.passes == 3


def test_what_cannot_be_read_is_named_before_anything_is_computed() -> None:
    target = toys.pair()[0]
    with pytest.raises(MethodError, match=r"^prompt 2 has no tokens: give at least one.$"):
        decode_batch(target, [[1], []], asked())
    with pytest.raises(
        MethodError,
        match=r"^prompt 3 has 512 tokens, and the model toy reads at most 512 tokens, .*: shorten",
    ):
        decode_batch(target, [[1], [2], [1] * 512], asked())
    with pytest.raises(MethodError, match=r"^prompt 2 holds token id 13; the ids of toy are 0 to 12\.$"):
        decode_batch(target, [[1], [3, 13]], asked())
    damaged = toys.decoder()
    damaged.norm.fill_(float("nan"))
    fault = decode_batch(toys.model(damaged), [[1, 2]], asked()).fault
    assert str(fault).startswith("Row 0 of a pass of toy has no finite logits (largest: nan); the weights")
    full = decode_batch(target, [[1] * 510], asked(max_new=9))
    assert (len(full.texts[0].tokens), full.texts[0].end) == (2, "context_full")


def test_a_batch_that_is_halted_leaves_what_was_written() -> None:
    asks = iter([False] * 6 + [True] * 100)
    done = decode_batch(toys.pair()[0], alike(4, seed=2), asked(halted=lambda: next(asks)))
    assert (
        any(x.tokens and x.end is None for x in done.texts)
        and sum(len(x.tokens) for x in done.texts) < 4 * 64
    )


def test_what_was_written_before_the_device_gave_up_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts, run, passes = [*alike(3, seed=2), [11, 12, 11]], Executor.run, counting(1)

    def gives_up(*given: Any) -> Any:
        if next(passes) > 20:
            raise EngineFault("out_of_memory", "Memory ran out.")
        return run(*given)

    whole = decode_batch(toys.pair()[0], prompts, asked(max_new=12, most=2))
    assert whole.fault is None and whole.ended_count == 4
    monkeypatch.setattr(Executor, "run", gives_up)
    done = decode_batch(toys.pair()[0], prompts, asked(max_new=12, most=2))
    assert str(done.fault) == "Memory ran out." and 0 < done.ended_count < 4
    for text, due in zip(done.texts, whole.texts, strict=True):
        assert text.tokens == due.tokens[: len(text.tokens)] and text.end in (None, due.end)
    assert any(x.tokens and x.end is None for x in done.texts), "the test needs a text that was under way"


def test_a_batch_is_halted_between_the_pieces_of_a_long_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decodescope.engine.session.batch.decode.CHUNK", 4)
    asks = iter([False] * 2 + [True] * 100)
    done = decode_batch(toys.pair()[0], [[*range(12), 1], [*range(12), 2]], asked(halted=lambda: next(asks)))
    assert done.plan.groups[0].prefix == 12 and done.read == 8 and done.passes == 0
    assert all(x.end is None and not x.tokens for x in done.texts) and done.peak_bytes > 0


def test_prompts_that_lie_in_each_other_are_planned_in_no_time() -> None:
    """The tree is as deep as its number of nodes; for twice as many prompts, hardly more lines of Python run."""
    looked: dict[int, int] = {}
    for count in (100, 200):
        prompts, lines = [[1] * n for n in range(1, count + 1)], 0

        def traced(frame: Any, event: str, arg: Any) -> Any:
            nonlocal lines
            lines += event == "line"
            return traced

        sys.settrace(traced)
        try:
            plan = plan_batch(prompts)
        finally:
            sys.settrace(None)
        looked[count] = lines
        assert plan.read < plan.tokens
    assert looked[200] < 2.6 * looked[100], looked
