"""Every false statement about the draft's own distributions is found, by the reader or by `check`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from decodescope.engine.trace import End, Step, Trace, TraceError, check, open_trace
from decodescope.engine.trace.checks.record_consistency import validate_step
from decodescope.engine.trace.records.draft_tops import DraftTops


def drafted_step(toy: Any) -> Step:
    """The toy's step with a draft: the root's child 0 was accepted, and `extra` came after it."""
    step: Step = copy.deepcopy(toy.steps("pd")[1])
    first = step.draft.tokens[0]
    step.draft_tops = DraftTops(
        np.array([-1], np.int32),
        np.array([[3, first, -1]], np.int32),
        np.array([[-0.4, -1.5, -np.inf]], np.float32),
        np.array([2], np.int32),
        np.array([-1.5], np.float32),
    )
    assert step.path == [0] and first != 3
    return step


def run(toy: Any, step: Step) -> Trace:
    made = [toy.steps("pd")[0], step]
    trace = Trace([toy.header(), toy.prefill(), *made])
    tokens = [token for x in made for token in x.emitted]
    trace.seal(End("max_new_tokens", tokens, 2))
    return trace


def test_an_honest_record_agrees_and_comes_back_from_a_file(toy: Any, tmp_path: Any) -> None:
    trace = run(toy, drafted_step(toy))
    assert check(trace).ok and check(trace).counts["distributions of drafts"] == 1
    back = open_trace(toy.write(tmp_path / "a.dstrace", trace.steps[:])).steps[1].draft_tops
    assert back is not None
    for name in ("places", "ids", "logp", "rank", "came"):
        assert np.array_equal(getattr(back, name), getattr(trace.steps[1].draft_tops, name)), name


LIES: list[tuple[Callable[[DraftTops], Any], str]] = [
    (lambda x: x.rank.__setitem__(0, 1), "rank 2 in its list, and rank 1"),
    (lambda x: x.came.__setitem__(0, -2.0), "rank 2 in its list"),
    (lambda x: x.places.__setitem__(0, 1), "where no drafted token was tried or none came"),
    (lambda x: x.logp.__setitem__((0, 0), -2.0), "rise"),
    (lambda x: x.logp.__setitem__((0, 0), -0.1), "add up to more than 1"),
    (lambda x: x.ids.__setitem__((0, 1), 3), "not different"),
    (lambda x: x.logp.__setitem__((0, 2), -3.0), "a padded place with another"),
    (
        lambda x: (x.ids.__setitem__((0, 1), 5), x.came.__setitem__(0, -3.0)),
        "which its list lacks, and rank 2",
    ),
]


@pytest.mark.parametrize(("lie", "says"), LIES)
def test_one_changed_number_is_found(toy: Any, lie: Callable[[DraftTops], Any], says: str) -> None:
    step = drafted_step(toy)
    assert step.draft_tops is not None
    lie(step.draft_tops)
    report = check(run(toy, step))
    assert any(says in x for x in report.problems), report


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("rank", np.array([0], np.int32), "draft_tops.rank leaves"),
        ("came", np.array([np.nan], np.float32), "draft_tops.came leaves"),
        ("logp", np.array([[0.5, -1.0, -2.0]], np.float32), "draft_tops.logp leaves"),
        ("ids", np.array([[1 << 20, 1, 2]], np.int32), "draft_tops.ids leaves"),
        ("places", np.array([7], np.int32), "draft_tops.places leaves"),
        ("rank", np.array([1, 2], np.int32), r"draft_tops.rank has the shape"),
        ("ids", np.array([[0.5, 1, 2]], np.float32), "draft_tops.ids is float32"),
    ],
)
def test_a_reader_refuses_what_is_no_distribution(toy: Any, name: str, value: np.ndarray, says: str) -> None:
    step = drafted_step(toy)
    setattr(step.draft_tops, name, value)
    with pytest.raises(TraceError, match=says):
        validate_step(step, 1, 100, {})
