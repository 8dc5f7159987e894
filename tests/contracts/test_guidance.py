"""The requirements for all guidance: any drafter drafts for it, its lanes hold only the text, and the record agrees."""

from __future__ import annotations

import pytest
import toys

from decodescope.engine import Method
from decodescope.engine.core.component import registry
from decodescope.engine.trace import check

# `own` is an attribute of Guidance
LAWS = [x for x in toys.representatives("guidance") if not registry("guidance")[x[0]]().own]  # type: ignore[attr-defined]
DRAFTERS = toys.representatives("drafter")


@pytest.mark.parametrize(("name", "settings"), LAWS)
def test_greedy_text_is_the_laws_own_whoever_drafts(name: str, settings: dict) -> None:
    plain = toys.decode(toys.method(guidance=(name, settings)), count=10)
    assert plain.end.tokens != toys.decode(count=10).end.tokens, (
        "the test needs a law that makes a difference"
    )
    for drafter in DRAFTERS:
        session = toys.decode(toys.method(guidance=(name, settings), drafter=drafter), count=10)
        assert session.end.tokens == plain.end.tokens, drafter
        assert session.header.is_exact and check(session.sink).ok, drafter
        for role in session.method.guidance.lanes:
            lane, law = session.lanes[role], session.method.guidance
            assert lane.tokens == law.text(role, session.tokens, session.prompt)[
                :-1
            ] and toys.matches_fresh_reading(lane)


@pytest.mark.parametrize(("name", "settings"), LAWS)
def test_the_record_of_a_drawn_text_tells_how_each_token_was_chosen(name: str, settings: dict) -> None:
    sampler = ("temperature", {"temperature": 0.9})
    for drafter in ("none", ("draft_model", {"max_draft_tokens": 3, "width": 2})):
        run = toys.decode(
            toys.method(guidance=(name, settings), sampler=sampler, drafter=drafter), count=16, seed=5
        )
        chosen = [x.candidates[x.chosen] for step in run.sink.steps for x in step.choices]
        assert chosen == run.end.tokens and check(run.sink).ok


def test_nobody_calls_the_targets_own() -> None:
    """The target's own distribution has no rows to give: a call would end the run."""
    method = Method()
    with pytest.raises(NotImplementedError):
        method.guidance.rows(None, {}, None, None)  # type: ignore[arg-type] # the arguments are not used
    assert toys.decode(method, count=8).end.reason == "max_new_tokens"
