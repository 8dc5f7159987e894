"""Guided tours of the real model's runs: what each tour says about its run is true."""

from __future__ import annotations

import pytest
from toured import TOURS, says, steps_of, text_of, told


def test_what_is_said_of_drafts_that_are_refused() -> None:
    tour, steps = TOURS["cut-draft"], told("cut-draft")
    for stop in (tour[0], tour[3]):
        node = steps[stop.step]["nodes"][stop.node]
        says(stop, *(node[k] for k in (3, 4, 5)))
        assert node[5] > node[4] / node[3], "u is above the ratio"
    for stop in (tour[4], tour[5]):
        says(stop, *(steps[stop.step]["nodes"][stop.node][k] for k in (3, 4)))
    assert steps_of("cut-draft")[2].accepted == 5


def test_what_is_said_of_the_letter() -> None:
    tour, steps = TOURS["letter-json"], steps_of("letter-json")
    assert [steps[x.step].sampler["allowed"] for x in tour[:3]] == [2, 1, pytest.approx(49_152, rel=0.01)]
    assert all(steps[x.step].trials.p[-1] == 0 for x in (tour[0], tour[3], tour[4])), (
        "the schema refuses the copy"
    )
    assert steps[17].accepted == 4 and len(steps[17].emitted) == 5
    assert text_of(told("letter-json")).startswith('{"name": "Maria Lopez", "city": "Madrid", "order": 4471}')


def test_what_is_said_of_the_function() -> None:
    steps = steps_of("type-hints")
    assert (steps[2].accepted, len(steps[2].emitted)) == (7, 8) and steps[2].trials.p[-1] == 0
    assert (steps[3].accepted, steps[8].drafted) == (1, 0)
    assert (steps[12].drafted, steps[12].accepted, len(steps[12].emitted)) == (10, 10, 11)


def test_what_is_said_of_the_other_vocabulary() -> None:
    tour, steps = TOURS["other-vocabulary"], steps_of("other-vocabulary")
    for stop in (tour[0], tour[2], tour[3]):
        says(stop, steps[stop.step].draft.notes["shared"][stop.node - 1])
    assert sum(len(x.emitted) for x in steps) == 44 and len(steps) == 32


def test_what_is_said_of_the_text_between() -> None:
    steps, nodes = steps_of("text-between"), told("text-between")
    assert [(x.draft.notes["written"], x.drafted) for x in (steps[0], steps[24])] == [(8, 6), (6, 6)]
    assert " transformers" in [row[1] for row in nodes[2]["nodes"]]
    assert (len(steps[16].emitted), sum(len(x.emitted) for x in steps), len(steps)) == (4, 44, 29)
