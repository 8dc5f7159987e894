"""Records in which more tokens are equally likely than a record lists: the check accepts them, and still finds a wrong one."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
import toys
from acting import ONE_EACH, Part, method_with
from sizes import by_turns

from decodescope.engine import Session
from decodescope.engine.decoding.values.tops import tops_without_draft
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.session.load import Model
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.records.events import TOP

LOW = {"all": (), "most": (0, 3, 5, 9)}  # ids less likely than the others, which are all equally likely
WRITERS = [x for x in ONE_EACH if x[0] in ("strategy", "drafter", "acceptance", "guidance", "adaptive_depth")]


def flat(model: Model, which: str) -> Model:
    """The same model, but most or all of its logits are equal, as with an unembedding of zeros."""
    made = copy.copy(model.decoder)

    def unembed(feature: torch.Tensor) -> torch.Tensor:
        return (
            Decoder.unembed(made, feature)
            .zero_()
            .index_fill_(-1, torch.tensor(LOW[which], dtype=torch.int64), -4.0)
        )

    made.unembed = unembed  # type: ignore[method-assign] # of this one alone
    return replace(model, decoder=made)


def run(part: Part, which: str, warm: bool) -> Trace:
    made = method_with(part, warm)
    target, models = toys.method_models(made)
    models = {role: flat(x, which) for role, x in models.items()}
    return toys.finish_session(
        Session(flat(target, which), made, toys.PROMPT, models=models, max_new_tokens=8, seed=1)
    ).sink


@pytest.mark.parametrize("which", LOW)
@pytest.mark.parametrize(
    "part", by_turns(2, [pytest.param(x, id="-".join(map(str, x[:2]))) for x in WRITERS])
)
def test_the_check_believes_a_run_whose_tokens_are_equally_likely(part: Part, which: str) -> None:
    report = check(run(part, which, warm=which == "all" or part[0] == "acceptance"))
    assert report.ok, str(report)


@cache
def jacobi() -> Trace:
    return run(("strategy", "jacobi", dict(block=4, initial_guess="random")), "most", False)


@cache
def typical() -> Trace:
    return run(("acceptance", "typical", {}), "most", True)


def unlisted(trace: Trace) -> Trace:
    """The same run, but its record lists other equally likely tokens: none of those that were written."""
    trace = copy.deepcopy(trace)
    trace.end = None  # it contains a hash of the changed records
    for step in trace.steps:
        for row, place in enumerate(step.tops.places):
            written = step.emitted[place + 1 : place + 2] if step.details else [step.extra.token]
            others = [x for x in range(toys.SPEC.vocab) if x not in LOW["most"] and x not in written]
            held = [x for x in step.tops.ids[row].tolist() if x in others]
            spare = iter([x for x in others if x not in held])
            ids = [next(spare) if x in written else x for x in step.tops.ids[row].tolist()]
            step.tops.ids[row] = ids
    return trace


@pytest.mark.parametrize("trace", [jacobi, typical])
def test_a_record_may_list_any_of_the_equally_likely_tokens(trace: object) -> None:
    changed = unlisted(trace())  # type: ignore[operator] # one of the two above
    written = {(step.step, x) for step in changed.steps for x in step.emitted[-1:]}
    listed = {(step.step, int(x)) for step in changed.steps for x in step.tops.ids[-1]}
    assert written - listed, "the test needs a token that is not listed"
    assert check(changed).ok, str(check(changed))


@pytest.mark.parametrize("trace", [jacobi, typical])
def test_a_token_that_cannot_be_among_the_likeliest_is_found(trace: object) -> None:
    """The token is not listed.

    Either the listed ones are no longer all equal, or the rest has no room for one more like them.
    """
    for change in ("unequal", "no room"):
        changed = unlisted(trace())  # type: ignore[operator] # as above
        for step in changed.steps:
            if change == "unequal":
                step.tops.p[:, 1:TOP] *= 0.9
                step.tops.rest[:, 0] += 0.1 * step.tops.p[:, 1:TOP].sum(1) / 0.9
            else:
                step.tops.p *= (1 / np.maximum(step.tops.p.sum(1, keepdims=True), 1e-9)).astype(np.float32)
                step.tops.rest[:, 0] = 0
                if step.details:
                    step.detail("fixed_point").confidence = None
        found = [x for x in check(changed).problems if "likeliest" in x]
        assert found, change


@pytest.mark.parametrize("count", [3, 5, 6, 13])
def test_of_equal_tokens_a_record_lists_those_with_the_lowest_ids(count: int) -> None:
    """Whatever a search for the largest value happens to find."""
    logits = torch.zeros(2, 200)
    logits[0, torch.arange(150, 150 - 7 * count, -7)] = 3.0
    logits[1] = torch.randn(200, generator=torch.Generator().manual_seed(0))
    logits[1, [5, 70, 199]] = logits[1].amax() + 1
    shown = tops_without_draft(logits)
    equal = sorted(range(150, 150 - 7 * count, -7))
    rest = [x for x in range(200) if x not in equal]
    assert shown.ids[0].tolist() == (equal + rest)[:TOP]
    assert shown.ids[1].tolist() == [
        5,
        70,
        199,
        *[x for x in logits[1].topk(8).indices.tolist() if x not in (5, 70, 199)][:2],
    ]
    assert np.allclose(shown.p.sum(1) + shown.rest[:, 0], 1)
