"""The requirements for every part in half types: it draws, its record is consistent, and equal texts have one distribution."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toys
from acting import ONE_EACH, PARTS, WARM, Part, method_with, opened
from sizes import thinned

from decodescope.engine import Session
from decodescope.engine.core.component import build, registry
from decodescope.engine.trace import check

HALF = [torch.bfloat16, torch.float16]
SIBLINGS = [
    x
    for x in toys.variants("drafter")
    if (one := build("drafter", *x)).proposes in ("iid", "mixed") and one.branches
]


@pytest.mark.parametrize(("part", "dtype"), thinned(4, ONE_EACH, HALF))
def test_a_part_draws_in_a_half_type_and_its_record_agrees_with_itself(
    part: Part, dtype: torch.dtype
) -> None:
    draws(part, dtype)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("part", PARTS)
def test_a_part_draws_in_a_half_type_in_every_setting(part: Part, dtype: torch.dtype) -> None:
    draws(part, dtype)


def draws(part: Part, dtype: torch.dtype) -> None:
    """Run a few steps at a temperature."""
    made = method_with(part)
    target, models = toys.method_models(made, dtype)
    assert target.decoder.dtype == dtype, "the test needs a half type"
    session = toys.finish_session(Session(target, made, toys.PROMPT, models=models, max_new_tokens=6, seed=1))
    report = check(session.sink)
    assert report.ok and len(session.end.tokens) == 6, str(report)


@pytest.mark.parametrize("rule", registry("acceptance"))
@pytest.mark.parametrize(("name", "settings"), SIBLINGS)
def test_nodes_with_equal_texts_are_judged_by_one_distribution(
    name: str, settings: dict[str, Any], rule: str
) -> None:
    """No two rows of a pass round alike here.

    Still the target gives one answer for equal texts, and draws at one place come from one distribution.
    """
    made = toys.method(drafter=(name, settings), acceptance=rule, sampler=WARM)
    target, models = toys.method_models(made)
    session = opened(
        made,
        toys.add_row_noise(target),
        {x: toys.add_row_noise(y) for x, y in models.items()},
        max_new_tokens=30,
    )
    if session is None:
        return
    observe, equal = session.drafter.observe, list[bool]()

    def compare(outcome: Any) -> None:
        draft, texts = outcome.draft, list[tuple[int, ...]]([()])
        firsts, laws = dict[Any, int](), dict[Any, torch.Tensor]()
        for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
            texts.append((*texts[parent + 1], token))
            first = firsts.setdefault(texts[-1], node)
            assert torch.equal(outcome.logits[node + 1], outcome.logits[first + 1])
            if draft.kind == "iid":
                assert torch.equal(draft.law(node), laws.setdefault(texts[parent + 1], draft.law(node)))
            equal.append(first < node)
        observe(outcome)

    session.drafter.observe = compare  # type: ignore[method-assign]
    assert check(toys.finish_session(session).sink).ok
    assert any(equal) or name not in ("chains", "specinfer"), "the test needs nodes with equal texts"
