"""A law in the place of the target's: every method that is lossless has that law, under every draft, as counted."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from law.cases import PROPOSALS, SAMPLERS, models, worlds
from law.reference import text_law
from law.tables import Logits, Seen, model, remembered, table
from law.walk import Walk, distance

from decodescope.engine.decoding.law import TargetLaw
from decodescope.engine.method import Method
from decodescope.engine.methods.laws.contrastive import Contrastive

EXACT = 1e-12
LAW = Contrastive(alpha=0.15, strength=0.6, temperature=0.8)
DRAFTS = ("no draft", "chain", "chain, block", "2 chains, 2 deep, k-SEQ", "2 without replacement, 2 deep", "one-hot tree",
    "one-hot tree, passengers", "token recycling", "sequoia", "sjd", "layer skip")  # fmt: skip
DRAWN = ("T=1", "top-k 2", "penalty, mirostat", "greedy")


@cache
def contrasted(vocab: int) -> tuple[Logits, Logits]:
    """The amateur's table, and the law written a second time, in plain numbers."""
    target, amateur = worlds(vocab, "equal")[0], table(vocab, seed=5)

    def logits(seen: Seen) -> torch.Tensor:
        p, q = target(seen).softmax(-1).tolist(), (amateur(seen) / LAW.temperature).softmax(-1).tolist()
        kept = [x >= LAW.alpha * max(p) for x in p]
        law = [x / y**LAW.strength if keep else 0.0 for x, y, keep in zip(p, q, kept, strict=True)]
        return torch.tensor(law, dtype=torch.float64).log()

    return amateur, remembered(logits)


def walk(name: str, kind: str, sampler: str, law: TargetLaw) -> tuple[dict[tuple[int, ...], float], Walk]:
    """The law of a method over texts, every path of chance walked."""
    proposal = PROPOSALS[name]
    drafter, vocab = proposal.make(2), 3
    method = Method(drafter=drafter, acceptance=proposal.rule(), sampler=SAMPLERS[sampler][0], law=law)
    given = {**models(vocab, kind, drafter), "amateur": model(contrasted(vocab)[0], vocab)}
    made = Walk(method, given, proposal.length, (), list(proposal.prompt), proposal.chance)
    return made.whole() if proposal.remembers else made.law(), made


@pytest.mark.parametrize("name", DRAFTS)
def test_drafts_are_exact_for_the_law(name: str) -> None:
    proposal = PROPOSALS[name]
    for turn, sampler in enumerate(DRAWN):
        if proposal.remembers and turn % 2:
            continue  # whole runs are walked, which takes longer
        kind = proposal.kinds[(turn + DRAFTS.index(name)) % len(proposal.kinds)]
        true = text_law(contrasted(3)[1], SAMPLERS[sampler][1], list(proposal.prompt), proposal.length, 3)
        made, _ = walk(name, kind, sampler, LAW)
        assert distance(made, true) <= EXACT, f"{name}, {kind} draft, {sampler}"


def test_the_law_is_another_than_the_targets_and_the_walks_keep_and_refuse() -> None:
    """Else the test above would be right without it."""
    own, there = (text_law(x, SAMPLERS["T=1"][1], [1, 2, 1], 3, 3) for x in (worlds(3, "equal")[0], contrasted(3)[1]))
    assert sum(abs(own[x] - there[x]) for x in own) / 2 > 0.1
    assert any(p == 0 for p in there.values()), "some tokens are not plausible"
    walks = [walk(name, "mixed", "T=1", LAW)[1] for name in ("chain", "2 without replacement, 2 deep")]
    assert all(x.kept > 1 and x.refused > 1 for x in walks)
