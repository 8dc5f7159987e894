"""Sampling through the shipped step, with real generator and transformer, against that transformer's distribution."""

from __future__ import annotations

import math
import os
import random
from collections import Counter
from collections.abc import Callable

import pytest
import torch
import toys
from law.cases import PROPOSALS, SAMPLERS, layered
from law.statistics import ONE_PERCENT, alarms, chi_square, critical, total_variation
from sizes import nightly

from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.session.method import Method
from decodescope.engine.session.session import Session
from decodescope.testing.reference import text_distribution
from decodescope.testing.tables import PROMPT, table_model
from decodescope.testing.transformer import V, decoder_logits, decoders

LENGTH = 3
BOTH_SIDES = 4.8916  # |z| of an alarm with probability one in a million
TABLES = [
    "chain", "chain, block", "2 without replacement", "3 chains, k-SEQ", "rsd_s", "dyspec", "one-hot chain", "one-hot tree",
    "mixed", "sequoia", "2 with replacement", "prompt lookup", "2 chains, 2 deep, k-SEQ", "rsd_c 2, 1", "2 draft models",
    "token recycling", "trie", "drafter that is taught",
]  # fmt: skip
TURNS = ["T=1", "T=0.7", "T=1.5, top-p 0.8", "penalty, mirostat"]
CASES = [
    pytest.param(name, TURNS[i % 4], marks=pytest.mark.nightly if i % 3 else ())
    for i, name in enumerate(TABLES[:12])
]  # every third one runs with every commit
LAYERS = [name for name, x in PROPOSALS.items() if x.on == "layers"]
TEXTS = int(os.environ.get("DECODESCOPE_TEXTS", 20_000))  # per case of a nightly run
CERTAIN = 1e-6


def session(name: str, sampler: str, memoised: bool, draft: int = 2, length: int = LENGTH) -> Session:
    """A session of the case. With `memoised`, its models are tables of the transformers' logits by prefix."""
    proposal = PROPOSALS[name]
    drafter = proposal.make(draft)
    target, other = (
        (table_model(x, V) for x in decoder_logits()) if memoised else (toys.model(x) for x in decoders())
    )
    if proposal.on == "layers":
        target = layered(proposal.vocab, "independent")[0]
    method = Method(drafter=drafter, acceptance=proposal.rule(), sampler=SAMPLERS[sampler][0])
    s = Session(
        target,
        method,
        PROMPT,
        models=dict.fromkeys(drafter.lanes, other),
        max_new_tokens=length,
        stop_tokens=(),
    )
    s.start()
    return s


@torch.inference_mode()
def sample(name: str, sampler: str, seed: int, n: int, memoised: bool = True) -> tuple[Counter, int]:
    """Counts of n texts, and how many of them began with an accepted token."""
    s = session(name, sampler, memoised)
    start, texts, kept = s.sampler_state, Counter(), 0
    for i in range(n):
        s.tokens, s.sampler_state, s.chance = list(PROMPT), start, Chance((seed << 32) + i)
        s.target.truncate(0 if s.target.needs else len(PROMPT) - 1)
        if s.target.needs:  # the drafter needs the states of the whole prompt
            s.target.read(PROMPT[:-1])
        s.method.strategy.begin(s)
        move = s.method.strategy.step(s)
        kept += bool(move.verdict.path)
        while move.end is None:
            move = s.method.strategy.step(s)
        texts[tuple(s.tokens[len(PROMPT) :])] += 1
        s.target.passes.clear()
        for lane in s.lanes.values():
            lane.passes.clear()
    return texts, kept


def check(name: str, sampler: str, seed: int, n: int, memoised: bool = True) -> tuple[list[str], float]:
    """Alarms of n samples, in words; and the total variation between the counts and the distribution."""
    texts, kept = sample(name, sampler, seed, n, memoised)
    if PROPOSALS[name].on == "layers":
        logits, vocab = layered(PROPOSALS[name].vocab, "independent")[1], PROPOSALS[name].vocab
    else:
        logits, vocab = decoder_logits()[0], V
    law = text_distribution(logits, SAMPLERS[sampler][1], PROMPT, LENGTH, vocab)
    found = alarms(texts, law)
    if name == "chain":
        p = sum(
            map(
                min,
                *(SAMPLERS[sampler][1].next_distribution(x, PROMPT, len(PROMPT)) for x in decoder_logits()),
            )
        )
        z = (kept - n * p) / math.sqrt(n * p * (1 - p))
        if abs(z) > BOTH_SIDES:
            found.append(f"{kept} of {n} first tokens were accepted, {n * p:.0f} expected: z = {z:.1f}")
    far, beyond = total_variation(texts, law), math.sqrt(math.log(1 / CERTAIN) / (2 * n))
    print(f"{name}, {sampler}: N = {n}, seed {seed}, TV = {far:.4f}, surely below {far + beyond:.4f} {found}")
    return found, far


@pytest.fixture
def holds(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Check that there is no alarm, or that a fresh sample four times as large does not repeat it.

    The test output ends with the largest distance of each proposal's counts.
    """

    def judge(name: str, sampler: str, seed: int, n: int, memoised: bool = True) -> None:
        first, far = check(name, sampler, seed, n, memoised)
        record_property("largest", [f"distance of counts, {n} texts, {name}", far])
        record_property("counted", "an alarm" if first else "no alarm")
        if first:
            second, _ = check(name, sampler, seed + 1, 4 * n, memoised)
            assert not second, f"twice: {first}, then {second}"

    return judge


@pytest.mark.parametrize("name, sampler", [*nightly(CASES)])
def test_2_000_texts_have_the_transformers_law(name, sampler, holds):
    holds(name, sampler, seed=1 + TABLES.index(name), n=2_000)


@pytest.mark.nightly
@pytest.mark.parametrize("sampler", TURNS)
@pytest.mark.parametrize("name", TABLES)
def test_texts_of_every_case_have_the_transformers_law(name, sampler, holds):
    """A release tests a million of each: DECODESCOPE_TEXTS sets the number."""
    holds(name, sampler, random.SystemRandom().randrange(1 << 20), n=TEXTS)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    ["chain", "chain, block", "2 without replacement, 2 deep", "one-hot tree", "token recycling", *LAYERS],
)
def test_texts_with_nothing_memoised(name, holds):
    holds(name, "T=1", random.SystemRandom().randrange(1 << 20), n=TEXTS // 10, memoised=False)


@pytest.mark.parametrize("name", ["chain", "one-hot tree", "2 without replacement, 2 deep"])
def test_cached_logits_are_those_of_the_prefix(name):
    """Memoised runs skip the real caches, masks and positions; here those give the same numbers."""
    rows, refused, target = 0, 0, decoder_logits()[0]
    for seed in range(4):
        s = session(name, "T=1", memoised=False, draft=3, length=60)
        s.chance = Chance(seed)
        end = None
        while end is None:
            before = list(s.tokens)
            with torch.inference_mode():
                move = s.method.strategy.step(s)
            end = move.end
            refused += any(not trial.ok for trial in move.verdict.trials)
            for row in range(len(move.draft) + 1):
                text = [*before, *_path(move.draft, row - 1)]
                assert torch.allclose(move.logits[row], target(tuple(enumerate(text))), rtol=0, atol=1e-10)
                rows += 1
    assert refused > 10 and rows > 200, "the test needs refused drafts"


def _path(draft, node: int) -> list[int]:
    made: list[int] = []
    while node >= 0:
        made.insert(0, draft.tokens[node])
        node = draft.parents[node]
    return made


def test_alarms_come_as_often_as_they_should():
    """The statistic itself: 1,000 samples of the true distribution, alarm level 1 %."""
    law = text_distribution(decoder_logits()[0], SAMPLERS["T=1"][1], PROMPT, 2, V)
    rng, texts = random.Random(5), list(law)
    found = 0
    for _ in range(1000):
        x2, df = chi_square(Counter(rng.choices(texts, list(law.values()), k=2000)), law)
        found += x2 > critical(df, ONE_PERCENT)
    assert 0.002 <= found / 1000 <= 0.022


def test_statistics_see_a_small_lie():
    law = text_distribution(decoder_logits()[0], SAMPLERS["T=1"][1], PROMPT, 2, V)
    rng, texts = random.Random(6), list(law)
    best = max(law, key=law.get)
    bent = [p * (1.15 if text == best else 1.0) for text, p in law.items()]
    assert alarms(Counter(rng.choices(texts, bent, k=20_000)), law)
    assert not alarms(Counter(rng.choices(texts, list(law.values()), k=20_000)), law)


def test_impossible_texts_are_an_alarm_at_once():
    assert alarms(Counter({(0,): 5000, (1,): 1}), {(0,): 1.0, (1,): 0.0})
