"""Independent chains: each is drawn as if alone, after its own tokens, and judged exactly."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest
import torch
import toys
from drafting import path_of
from law.cases import SAMPLERS, true_law, worlds

from decodescope.engine import Session
from decodescope.engine.methods.acceptance.lossless import Lossless
from decodescope.engine.methods.drafters.draft_model.chains import Chains
from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.method import Method
from decodescope.testing.tables import KINDS, constant_logits, logit_table, table_model
from decodescope.testing.walk import Walk, distribution_distance


def walk(drafter: Chains, kind: str, sampler: str, vocab: int = 3, length: int = 3) -> Walk:
    target, draft = worlds(vocab, kind)
    method = Method(drafter=drafter, acceptance=Lossless(), sampler=SAMPLERS[sampler][0])
    return Walk(method, {"target": table_model(target, vocab), "draft": table_model(draft, vocab)}, length)


def test_two_draws_of_one_law_are_independent() -> None:
    """q = (0.5, 0.3, 0.2): both chains begin with token 0 in 0.25 of all steps, with 0 and then 2 in 0.1."""
    q = [0.5, 0.3, 0.2]
    method = Method(drafter=Chains(max_draft_tokens=1, chains=2), sampler=Temperature(temperature=1.0))
    walked = Walk(
        method, {"target": table_model(logit_table(3, 1), 3), "draft": table_model(constant_logits(*q), 3)}, 3
    )
    law: dict[tuple[int, ...], float] = defaultdict(float)
    for weight, move in walked.step_outcomes():
        law[tuple(move.draft.tokens)] += weight
    assert law[0, 0] == pytest.approx(0.25) and law[0, 2] == pytest.approx(0.1)
    assert law == pytest.approx({(a, b): q[a] * q[b] for a in range(3) for b in range(3)})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("length", "count"), [(1, 3), (2, 2)])
def test_the_lossless_rule_keeps_the_targets_law(kind: str, length: int, count: int) -> None:
    for sampler in ("T=1", "top-p 0.8"):
        law = walk(Chains(max_draft_tokens=length, chains=count), kind, sampler).text_distribution()
        assert distribution_distance(law, true_law(3, sampler, 3)) <= 1e-12


@pytest.mark.parametrize("kind", ["mixed", "independent"])
def test_more_chains_are_accepted_at_least_as_often(kind: str) -> None:
    """One chain gives sum min(p, q); each further chain adds to it."""
    shares = []
    for count in (1, 2, 3):
        rounds = walk(Chains(max_draft_tokens=1, chains=count), kind, "T=1", vocab=4).step_outcomes()
        shares.append(sum(weight * move.accepted_count for weight, move in rounds))
    target, draft = (
        law.softmax(-1) for law in (world(((0, 1), (1, 2), (2, 1))) for world in worlds(4, kind))
    )
    assert shares[0] == pytest.approx(float(torch.minimum(target, draft).sum()))
    assert all(a < b for a, b in pairwise(shares))


def test_each_chain_is_drawn_after_its_own_tokens() -> None:
    """The recorded distribution of a node equals the draft model's on prefix and path, without a cache."""
    target, small = toys.pair()
    parts = dict(
        drafter=("chains", {"max_draft_tokens": 3, "chains": 4}),
        sampler=("temperature", {"temperature": 1.0}),
    )
    session = Session(
        target, toys.method(**parts), toys.PROMPT, models={"draft": small}, max_new_tokens=60, seed=2
    )
    session.start()
    equal = 0
    for _ in range(6):
        draft = session.drafter.propose(session.context)
        assert draft.parents == [-1] * 4 + list(range(8)) and draft.kind == "iid"
        for node, parent in enumerate(draft.parents):
            text = [*session.tokens, *path_of(draft, parent)]
            with torch.inference_mode():
                due = small.decoder.forward(Feed.causal_chain(text, 0), None)[0, -1].softmax(-1)
            assert torch.allclose(draft.law(node), due, atol=1e-9)
        equal += len(set(draft.tokens[:4])) < 4
        session.step()
    assert equal > 0, "the test needs chains that begin alike"


def test_a_level_costs_one_pass_and_a_greedy_sampler_leaves_one_chain() -> None:
    for sampler, width in ((("temperature", {"temperature": 1.0}), 3), ("greedy", 1)):
        made = toys.decode(
            toys.method(drafter=("chains", {"max_draft_tokens": 4, "chains": 3}), sampler=sampler), count=30
        )
        for step in made.sink.steps[:-4]:
            assert [x.tokens for x in step.passes if x.phase == "draft"] == [width] * 3
            assert step.drafted == 4 * width
