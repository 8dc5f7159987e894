"""Threads: their records give the run's text in order, and `check` finds what is impossible."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from decodescope.engine.trace.detail_checks.threads import ThreadValidator
from decodescope.engine.trace.details.consistency import validate_details
from decodescope.engine.trace.details.declarations import ThreadsForm
from decodescope.engine.trace.details.shapes import Begun, Ended, ThreadsDetail
from decodescope.engine.trace.details.threads import ThreadTree, build_thread_tree, thread_schedule
from decodescope.engine.trace.values.limits import TraceError

# Thread 0 writes 1 2 3 (stop). Thread 1 begins after the first token of thread 0; thread 2, thread 1's child, begins after the
# first token of thread 1.
STOP = 9
RUN: list[tuple[ThreadsDetail, list[int]]] = [
    (ThreadsDetail("threads", [0], [1], [Begun(0), Begun(1, 0, 1, [50])]), [1]),
    (ThreadsDetail("threads", [0, 1], [2, 11], [Begun(2, 1, 1, [50])]), [11]),
    (ThreadsDetail("threads", [0, 1, 2], [3, 12, 21], [], [Ended(1, "max_new_tokens")]), [21]),
    (
        ThreadsDetail("threads", [0, 2], [STOP, STOP], [], [Ended(0, "stop_token"), Ended(2, "stop_token")]),
        [12, 2, 3, STOP],
    ),
]


def problems(run: list[tuple[ThreadsDetail | None, list[int]]]) -> list[str]:
    books = ThreadValidator([STOP])
    return [problem for record, emitted in run for problem in books.problems(record, emitted)]


def test_what_is_settled_out_of_order_is_emitted_once_all_before_it_stands() -> None:
    assert problems(RUN) == []  # type: ignore[arg-type] # none is missing
    every = build_thread_tree(record for record, _ in RUN).strands
    assert [x.tokens for x in every] == [[1, 2, 3, STOP], [11, 12], [21, STOP]]
    assert [(x.first, x.parent and x.parent.number, x.at) for x in every] == [
        (0, None, 0),
        (1, 0, 1),
        (2, 1, 1),
    ]
    assert sorted(every, key=lambda x: x.place) == [every[2], every[1], every[0]]
    taken = thread_schedule(record for record, _ in RUN)
    assert (taken.rounds, taken.longest, taken.tokens) == (4, 4, 8), (
        "the first thread's, and 1 + 1 + 2 of the third's way"
    )


def test_a_stop_token_stands_at_the_end_of_the_text_alone() -> None:
    order = ThreadTree([STOP])
    for number in range(2):
        order.begin(-1, 0, [])
        order.strands[number].tokens += [number, STOP]
    order.strands[1].why = "stop_token"
    assert order.take() == [0, STOP], "of a thread that goes on it is a token as others are"
    order.strands[0].why = "max_new_tokens"
    assert order.take() == [1, STOP] and order.take() == []


LIES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda r: r[1][0].alive.reverse(), "threads [1, 0] wrote a token, but [0, 1] were alive"),
    (lambda r: r[2][0].alive.__setitem__(2, 3), "threads [0, 1, 3] wrote a token"),
    (
        lambda r: r[1][0].tokens.__setitem__(1, 13),
        "it emitted [11], but the threads' texts in order go on with [13]",
    ),
    (lambda r: r[2][1].append(12), "it emitted [21, 12]"),
    (lambda r: r[3][1].pop(), "in order go on with [12, 2, 3, 9]"),
    (lambda r: setattr(r[0][0].begun[1], "at", 2), "thread 1 began behind 2 tokens of thread 0, which has 1"),
    (lambda r: setattr(r[1][0].begun[0], "at", 0), "thread 2 began behind 0 tokens of thread 1, which has 1"),
    (lambda r: setattr(r[1][0].begun[0], "thread", 4), "threads [4] began, where 2 is the next number"),
    (lambda r: setattr(r[1][0].begun[0], "parent", 7), "thread 7 has the child 2 and wrote no token"),
    (
        lambda r: setattr(r[1][0].begun[0], "parent", -1),
        "a thread began behind the prompt after others had been written",
    ),
    (lambda r: setattr(r[2][0].ended[0], "thread", 5), "threads [5] ended"),
    (lambda r: r[3][0].ended.append(Ended(2, "stop_token")), "threads [0, 2, 2] ended"),
    (lambda r: r[2].__setitem__(0, None), "it records no threads, and some were alive"),
]


@pytest.mark.parametrize(("lie", "found"), LIES)
def test_a_lie_is_found(lie: Callable[[Any], Any], found: str) -> None:
    run: Any = copy.deepcopy([list(x) for x in RUN])
    lie(run)
    told = problems(run)
    assert len(told) == 1 and found in told[0], told


def test_what_texts_took_with_them_is_told_of_each_that_ended() -> None:
    books = ThreadValidator([STOP])
    for record, emitted in RUN[:2]:
        assert not [*books.problems(record, emitted)]
    record, emitted = RUN[2]
    assert [*books.problems(record, emitted, [[], []])] == [
        "its cache records what 2 texts took with them, and 1 threads ended"
    ]


HOSTILE: list[tuple[ThreadsDetail, str]] = [
    (ThreadsDetail("threads", [0, 1], [1]), "details.threads.tokens has 1 entries, where 2 are due"),
    (ThreadsDetail("threads", [0], [50]), "an id outside the vocabulary of 50"),
    (ThreadsDetail("threads", [0], [-1]), "an id outside the vocabulary of 50"),
    (ThreadsDetail("threads", [0], [1], [Begun(1, 0, 1, [1 << 40])]), "an id outside the vocabulary of 50"),
    (ThreadsDetail("threads", [-1], [1]), "the negative count -1"),
    (ThreadsDetail("threads", [0], [1], [Begun(1, -2)]), "the negative count -1"),
    (ThreadsDetail("threads", [0], [1], [Begun(1, 0, -3)]), "the negative count -3"),
    (ThreadsDetail("threads", [0], [1], [], [Ended(-4, "stop_token")]), "the negative count -4"),
    (ThreadsDetail("threads", [0], [1], [], [Ended(0, "tired")]), "ended by 'tired'"),
]


@pytest.mark.parametrize(("record", "found"), HOSTILE)
def test_a_record_that_makes_no_sense_is_refused(record: ThreadsDetail, found: str) -> None:
    forms = {"threads": ThreadsForm("threads", ends={"stop_token": "stop token"})}
    validate_details([ThreadsDetail("threads", [0], [1], [Begun(1, -1)])], forms, 50)
    with pytest.raises(TraceError, match="details") as refused:
        validate_details([record], forms, 50)
    assert found in str(refused.value)
