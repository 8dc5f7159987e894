"""Guidance replaces the target's distribution: every lossless method then has the guided one, under every draft, as counted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
import torch
from law.cases import PLACES, PROPOSALS, SAMPLERS, layered, models, worlds

from decodescope.engine.core.component import registry
from decodescope.engine.decoding.bases.guidance import Guidance
from decodescope.engine.methods.guidance.contrastive import Contrastive
from decodescope.engine.methods.guidance.nest import Nest
from decodescope.engine.methods.guidance.rapid import Rapid
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method
from decodescope.testing.reference import text_distribution
from decodescope.testing.tables import Logits, Seen, logit_table, memoize_logits, table_model
from decodescope.testing.walk import Walk, distribution_distance

EXACT = 1e-12
VOCAB = 3
DRAFTS = ("no draft", "chain", "chain, block", "2 chains, 2 deep, k-SEQ", "2 without replacement, 2 deep", "one-hot tree",
    "one-hot tree, passengers", "token recycling", "sequoia", "sjd", "layer skip")  # fmt: skip
DRAWN = ("T=1", "top-k 2", "penalty, mirostat", "greedy")
DRAWN_OF_LAYERS = (
    "T=1",
    "greedy",
)  # a transformer's rounding depends on the order of computation, and a sampler's state would depend on it too


@dataclass(frozen=True)
class Stands:
    """A guidance part, and an independent definition of it in plain numbers.

    target: the model, or None for the table;  roles: the models that it reads;  cuts: whether some tokens have no probability
    under it
    """

    law: Guidance
    own: Logits
    there: Logits
    target: Model | None = None
    roles: dict[str, Model] = field(default_factory=dict)
    cuts: bool = False


@cache
def contrasted() -> Stands:
    law = Contrastive(alpha=0.15, strength=0.6, temperature=0.8)
    target, amateur = worlds(VOCAB, "equal")[0], logit_table(VOCAB, seed=5)

    def logits(seen: Seen) -> torch.Tensor:
        p, q = target(seen).softmax(-1).tolist(), (amateur(seen) / law.temperature).softmax(-1).tolist()
        kept = [x >= law.alpha * max(p) for x in p]
        weighed = [x / y**law.strength if keep else 0.0 for x, y, keep in zip(p, q, kept, strict=True)]
        return torch.tensor(weighed, dtype=torch.float64).log()

    return Stands(
        law, target, memoize_logits(logits), roles={"amateur": table_model(amateur, VOCAB)}, cuts=True
    )


@cache
def neighbours() -> Stands:
    """Nest on a transformer: it looks up states among those of a text of 14 tokens.

    No two windows of this text begin alike, so no two of its states are the same.
    """
    law = Nest(
        datastore=PLACES, window=6, state_norm="raw", neighbours=5, alpha=0.5, tau=0.3, temperature=0.4
    )
    target, own = layered(VOCAB, "independent")
    layer, width = target.spec.n_layers - 1, target.spec.d_model

    @torch.inference_mode()
    def states(tokens: list[int]) -> list[list[float]]:
        return target.decoder.states_before(Feed.causal_chain(tokens, 0), None, layer)[0].tolist()

    ids = [x if x < VOCAB else -1 for x in np.loadtxt(PLACES, dtype=int).ravel().tolist()] + [-1]
    store: list[tuple[list[float], int]] = []
    for document in " ".join(map(str, ids)).split("-1"):
        words = [int(x) for x in document.split()]
        for at in range(0, len(words), law.window):
            read = words[at : at + law.window]
            store += list(zip(states(read), words[at + 1 : at + 1 + len(read)], strict=False))
    assert len(store) > 2 * law.neighbours

    def logits(seen: Seen) -> torch.Tensor:
        h, p = states([token for _, token in seen])[-1], own(seen).softmax(-1).tolist()
        near = sorted((math.dist(h, key) ** 2, token) for key, token in store)[: law.neighbours]
        weights = [math.exp(-d / (law.temperature * math.sqrt(width))) for d, _ in near]
        c = 1 / (1 + math.exp(-(near[0][0] / near[-1][0] - law.alpha) / law.tau))
        kNN = [
            sum(w for w, (_, x) in zip(weights, near, strict=True) if x == token) / sum(weights)
            for token in range(VOCAB)
        ]
        return torch.tensor(
            [c * a + (1 - c) * b for a, b in zip(p, kNN, strict=True)], dtype=torch.float64
        ).log()

    return Stands(law, own, memoize_logits(logits), target)


@cache
def moved() -> Stands:
    """RAPID on a table, with a second one that reads the first and the last of the prompt's three tokens, and the text."""
    law = Rapid(budget=2, window=1, question_tokens=1, strength=3.0, alpha=0.2)
    target, second = worlds(VOCAB, "equal")[0], logit_table(VOCAB, seed=6)

    def logits(seen: Seen) -> torch.Tensor:
        text = [token for _, token in seen]
        z, short = target(seen).tolist(), tuple(enumerate([text[0], *text[2:]]))
        p, q = target(seen).softmax(-1).tolist(), second(short).softmax(-1).tolist()
        return torch.tensor(
            [
                a - law.strength * (b - c) if c >= law.alpha * max(q) else a
                for a, b, c in zip(z, p, q, strict=True)
            ],
            dtype=torch.float64,
        )

    return Stands(law, target, memoize_logits(logits), roles={"short": table_model(second, VOCAB)})


LAWS: dict[str, Callable[[], Stands]] = {"contrastive": contrasted, "nest": neighbours, "rapid": moved}


def walk(name: str, kind: str, sampler: str, stands: Stands) -> tuple[dict[tuple[int, ...], float], Walk]:
    """The distribution of a method over texts, with every path of chance walked."""
    proposal = PROPOSALS[name]
    drafter = proposal.make(2)
    method = Method(
        drafter=drafter, acceptance=proposal.rule(), sampler=SAMPLERS[sampler][0], guidance=stands.law
    )
    given = {**models(VOCAB, kind, drafter), **stands.roles}
    given |= {} if stands.target is None else {"target": stands.target}
    made = Walk(method, given, proposal.length, (), list(proposal.prompt), proposal.chance)
    return made.full_run_distribution() if proposal.remembers else made.text_distribution(), made


def test_every_law_is_counted() -> None:
    assert set(LAWS) == set(registry("guidance")) - {"own"}


@pytest.mark.parametrize("name", DRAFTS)
@pytest.mark.parametrize("law", LAWS)
def test_drafts_are_exact_for_the_law(law: str, name: str) -> None:
    proposal, stands = PROPOSALS[name], LAWS[law]()
    for turn, sampler in enumerate(DRAWN if stands.target is None else DRAWN_OF_LAYERS):
        if proposal.remembers and turn % 2:
            continue  # these proposals are walked as whole runs, which takes longer
        kind = proposal.kinds[(turn + DRAFTS.index(name)) % len(proposal.kinds)]
        true = text_distribution(
            stands.there, SAMPLERS[sampler][1], list(proposal.prompt), proposal.length, VOCAB
        )
        made, _ = walk(name, kind, sampler, stands)
        assert distribution_distance(made, true) <= EXACT, f"{name}, {kind} draft, {sampler}"


@pytest.mark.parametrize("law", LAWS)
def test_the_law_is_another_than_the_targets_and_the_walks_keep_and_refuse(law: str) -> None:
    """Otherwise the test above would pass without guidance."""
    stands = LAWS[law]()
    own, there = (
        text_distribution(x, SAMPLERS["T=1"][1], [1, 2, 1], 3, VOCAB) for x in (stands.own, stands.there)
    )
    assert sum(abs(own[x] - there[x]) for x in own) / 2 > 0.1
    assert any(p == 0 for p in there.values()) is stands.cuts, "whether some tokens are not plausible"
    walks = [walk(name, "mixed", "T=1", stands)[1] for name in ("chain", "2 without replacement, 2 deep")]
    assert all(x.kept > 1 and x.refused > 1 for x in walks)
