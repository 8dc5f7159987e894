"""Staged speculation: the draft model's text has its own distribution, however well the table guesses, and costs it less."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch
import toys
from drafting import path_of
from law.cases import SAMPLERS, models, true_law

from decodescope.engine import Session
from decodescope.engine.core.component import build
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.methods.drafters.draft_model.draft_model import DraftModel
from decodescope.engine.methods.drafters.draft_model.staged import Staged
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.method import Method
from decodescope.testing.tables import KINDS
from decodescope.testing.walk import Walk, distribution_distance

REPEATS = [3, 1, 4, 3, 1, 4, 3, 1, 4, 3, 1]


def walk(drafter, kind: str, sampler: str, vocab: int = 3, length: int = 4) -> Walk:
    method = Method(drafter=drafter, sampler=SAMPLERS[sampler][0])
    return Walk(method, models(vocab, kind, drafter), length)


@pytest.mark.parametrize("kind", ["mixed", "support"])
@pytest.mark.parametrize("sampler", ["top-p 0.8", "penalty, mirostat"])
@pytest.mark.parametrize("table", ["ngram", "lookup"])
def test_the_text_has_the_targets_law_through_both_checks(table: str, sampler: str, kind: str) -> None:
    law = walk(
        Staged(max_draft_tokens=3, max_table_tokens=2, table=table), kind, sampler
    ).full_run_distribution()
    assert distribution_distance(law, true_law(3, sampler, 4)) <= 1e-12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampler", ["T=1", "T=1.5, top-p 0.8", "penalty, mirostat"])
def test_drafts_have_the_law_of_the_draft_model_alone(sampler: str, kind: str) -> None:
    """Counted over all outcomes of a proposal, against a draft model without a table; recorded distributions agree too."""
    laws = []
    for drafter in (Staged(max_draft_tokens=3, max_table_tokens=2, ngram=2), DraftModel(max_draft_tokens=3)):
        law: dict[tuple, float] = defaultdict(float)
        for weight, move in walk(drafter, kind, sampler).step_outcomes():
            law[tuple(move.draft.tokens)] += weight
        laws.append(law)
    assert distribution_distance(laws[0], laws[1]) <= 1e-12
    assert len(laws[0]) > 3 or kind == "onehot"


def steps_of(settings: dict, sampler: str = "greedy", prompt: list[int] = REPEATS, count: int = 80) -> list:
    return toys.decode(
        toys.method(drafter=("staged", settings), sampler=sampler), prompt, count, seed=3
    ).sink.steps


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
@pytest.mark.parametrize("table", ["ngram", "lookup"])
def test_every_guess_that_is_kept_saves_a_pass_of_the_draft_model(table: str, sampler: str) -> None:
    kept = 0
    for step in steps_of(dict(max_draft_tokens=6, max_table_tokens=3, table=table), sampler):
        if step.draft is None:
            continue
        notes, passes = step.draft.notes, [x for x in step.passes if x.lane == "draft"]
        guessed = notes["stage"].count(0)
        assert len(passes) == notes["passes"] == len(step.draft.tokens) - guessed
        assert (notes["passes"] < len(step.draft.tokens)) == (guessed > 0) and guessed <= notes["guessed"]
        kept += guessed
    assert kept > 10, "the test needs guesses that were kept"


def test_without_guesses_it_is_the_draft_model() -> None:
    plain = toys.decode(
        toys.method(drafter=("draft_model", {"max_draft_tokens": 4}), sampler="temperature"), count=60, seed=4
    )
    for settings in (
        dict(max_draft_tokens=4, max_table_tokens=0),
        dict(max_draft_tokens=4, max_table_tokens=3),
    ):
        made = toys.decode(toys.method(drafter=("staged", settings), sampler="greedy"), count=60)
        due = toys.decode(
            toys.method(drafter=("draft_model", {"max_draft_tokens": 4}), sampler="greedy"), count=60
        )
        assert [x.draft.tokens for x in made.sink.steps if x.draft] == [
            x.draft.tokens for x in due.sink.steps if x.draft
        ]
    made = toys.decode(
        toys.method(drafter=("staged", dict(max_draft_tokens=4, max_table_tokens=0)), sampler="temperature"),
        count=60,
        seed=4,
    )
    assert made.end.tokens == plain.end.tokens


def test_a_step_by_hand() -> None:
    """A draft model that continues with 3 1 4 3 1 4 ...

    The table has seen all of it, so 4 guesses are kept and a fifth token is added; then the last of 6 is written alone.
    """
    drafter, said = build("drafter", "staged", dict(max_draft_tokens=6, max_table_tokens=4)), [3, 1, 4] * 10
    session = Session(
        toys.pair()[0], Method(drafter=drafter), REPEATS, models={"draft": toys.pair()[1]}, max_new_tokens=20
    )
    session.start()
    lane = session.lanes["draft"]

    def forward(feed: Feed, phase: str = "") -> torch.Tensor:
        logits = real(feed, phase)
        due = torch.tensor([said[(position + 1) % 3] for position in feed.positions[0].tolist()])
        lane.best = due.tolist()
        return torch.nn.functional.one_hot(due, logits.shape[-1])[None].double()

    real, lane.forward = lane.forward, forward  # type: ignore[method-assign]
    draft = session.drafter.propose(session.context)
    assert draft.tokens == [4, 3, 1, 4, 3, 1]
    assert draft.notes == {"stage": [0, 0, 0, 0, 1, 1], "passes": 2, "guessed": 4}
    assert [x.tokens for x in lane.passes] == [5, 1], "the root and four guesses, then the fifth token alone"
    assert lane.tokens == [*REPEATS, 4, 3, 1, 4, 3]


def test_the_recorded_laws_are_those_of_a_new_reading() -> None:
    target, small = toys.pair()
    method = toys.method(
        drafter=("staged", dict(max_draft_tokens=5, max_table_tokens=3)), sampler="temperature"
    )
    session, kept = Session(target, method, REPEATS, models={"draft": small}, max_new_tokens=200, seed=1), 0
    session.start()
    for _ in range(16):
        draft = session.drafter.propose(session.context)
        for node in range(len(draft)):
            text = [*session.tokens, *path_of(draft, node - 1)]
            with torch.inference_mode():
                due = small.decoder.forward(Feed.causal_chain(text, 0), None)[0, -1].softmax(-1)
            assert torch.allclose(draft.law(node), due, atol=1e-9)
            assert (draft.u[node] is None) == (draft.notes["stage"][node] == 0)
        kept += draft.notes["stage"].count(0)
        session.step()
    assert kept > 5


def test_the_check_inside_leaves_the_texts_own_draws() -> None:
    """The token that two methods choose with one seed is the first `token` draw at its position."""
    target, small = toys.pair()
    method = toys.method(drafter=("staged", dict(max_draft_tokens=6)), sampler="temperature")
    session = Session(target, method, REPEATS, models={"draft": small}, max_new_tokens=60, seed=1)
    session.start()
    draft, fresh = session.drafter.propose(session.context), Chance(1)
    assert len(draft) == 6
    for position in range(len(REPEATS), len(REPEATS) + 7):
        assert session.chance.uniform(position, "token") == fresh.uniform(position, "token")


def test_guesses_may_go_on_from_drafted_tokens_and_only_committed_ones_are_entered() -> None:
    """By hand: 5 6 7 5 6 8 5, drafted 6: after 5 6 came 7, then 8; the latest is 8, then 5. Drafted tokens are in no table."""
    for table, due in (("lookup", [8, 5, 6]), ("ngram", [8, 5, 6])):
        drafter = Staged(table=table, ngram=3)
        target, small = toys.pair()
        session = Session(target, Method(drafter=drafter), [5, 6, 7, 5, 6, 8, 5], models={"draft": small})
        session.start()
        session.drafter.propose(session.context)
        assert session.drafter._guess([5, 6, 7, 5, 6, 8, 5, 6], 3) == due
        assert session.drafter._guess([5, 6, 7, 5, 6, 8, 5, 6, 12], 3) == []
