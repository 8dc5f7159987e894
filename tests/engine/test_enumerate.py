"""A method's exact distribution: it sums to one, a draft does not change it, and samples come from it."""

from __future__ import annotations

import pytest
import torch
import toys

from decodescope.engine.session.replay.exact_distribution import exact_distribution, outcomes, sample_texts

TWO = {"temperature": {"temperature": 1.0}, "top_k": {"k": 2}}
SAMPLER = ["temperature", "top_k"]


def methods() -> tuple:
    """The target alone, and with a draft; two tokens to choose from."""
    plain = toys.Method.from_names({"sampler": SAMPLER}, TWO)
    return plain, toys.Method.from_names(
        {"sampler": SAMPLER, "drafter": "draft_model"}, {**TWO, "drafter": {"max_draft_tokens": 2}}
    )


def test_a_draft_leaves_the_law_as_it_is() -> None:
    target, draft = toys.pair(torch.float64, 0.3)
    plain, helped = methods()
    exact = exact_distribution(target, plain, toys.PROMPT, 3)
    counted = exact_distribution(target, helped, toys.PROMPT, 3, {"draft": draft})
    assert len(exact) == 8 and sum(exact.values()) == pytest.approx(1, abs=1e-12)
    assert exact == pytest.approx(counted, abs=1e-12)


def test_a_lossy_rule_shows_in_the_law() -> None:
    target, draft = toys.pair(torch.float64, 0.3)
    plain, _ = methods()
    lossy = toys.Method.from_names(
        {"sampler": SAMPLER, "drafter": "draft_model", "acceptance": "typical"}, TWO
    )
    exact, other = (
        exact_distribution(target, plain, toys.PROMPT, 2),
        exact_distribution(target, lossy, toys.PROMPT, 2, {"draft": draft}),
    )
    assert max(abs(exact.get(text, 0) - other.get(text, 0)) for text in {*exact, *other}) > 0.01


def test_samples_come_from_the_law_and_again_from_the_same_seeds() -> None:
    target, draft = toys.pair(torch.float64, 0.3)
    plain, helped = methods()
    exact, drawn = (
        exact_distribution(target, plain, toys.PROMPT, 2),
        sample_texts(target, helped, toys.PROMPT, 2, 300, {"draft": draft}),
    )
    assert sum(drawn.values()) == 300 and set(drawn) <= set(exact)
    assert all(abs(drawn.get(text, 0) / 300 - p) < 0.15 for text, p in exact.items()), (
        "five standard deviations"
    )
    assert sample_texts(target, helped, toys.PROMPT, 2, 300, {"draft": draft}) == drawn


def test_too_many_ways_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 10 ways"):
        outcomes(lambda chance: [chance.fork([0.5, 0.5]) for _ in range(8)], most=10)
