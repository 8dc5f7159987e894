"""Records of exits: the best token of each test, what each row would have done alone, passes that drafted, norms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import toys
from leaving import DEEP, asked, reader

from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check
from decodescope.engine.trace.records.exits import check_exit

LEAVING = {
    "confidence_exit": dict(threshold=0.7, min_layers=1),
    "entropy_exit": dict(threshold=0.8, min_layers=1),
    "vote": dict(min_votes=1.2, power=0.5, min_layers=1),
    "hash_exit": dict(min_layers=1, buckets=4),
}


def lane_of() -> Lane:
    lane = reader()
    lane.shown = True
    return lane


def test_the_best_token_of_a_test_is_that_of_the_row_that_decided() -> None:
    lane, kept = lane_of(), 0
    for token in range(1, 13):
        feed, rows = Feed.causal_chain([token, 3], len(lane.tokens)), []
        left = asked(lane, "entropy_exit", dict(threshold=0.0, min_layers=1), [token, 3])
        for layer, score, _ in left.tests:
            with torch.inference_mode():
                x = lane.decoder.states_before(feed, lane.cache, int(layer))
                law = lane.decoder.unembed(lane.decoder.apply_norm(x))[0].softmax(-1)
            lane.rollback()
            least = int((-(law * law.log()).sum(-1)).argmax())
            assert score == pytest.approx(float(-(law[least] * law[least].log()).sum()))
            rows.append(int(law[least].argmax()))
            kept += least
        assert left.best == rows
    assert 5 < kept < 55, "the test needs both rows to decide"
    assert asked(lane, "saturation", dict(threshold=0.0, min_layers=1), [5]).best is None, (
        "no logits were worked out"
    )
    lane.shown = False
    assert asked(lane, "entropy_exit", dict(threshold=0.0, min_layers=1), [5]).best is None, (
        "nobody asked for it"
    )


@pytest.mark.parametrize("name", LEAVING)
def test_of_several_rows_each_is_told_as_if_it_were_alone(name: str) -> None:
    lane, seen = lane_of(), set()
    for token in range(13):
        both = asked(lane, name, LEAVING[name], [token, 7, 2])
        alone = asked(lane, name, LEAVING[name], [token])  # the first row sees none of the rows after it
        assert both.rows is not None and alone.rows is None and both.rows[0] == alone.depth <= both.depth
        assert not list(check_exit(both, 6))
        seen |= {row for row in both.rows if row < both.depth}
    assert seen, "the test needs rows that were sure earlier"


def test_a_drafted_token_has_its_own_exit_and_the_check_derives_all() -> None:
    parts = dict(
        drafter=(
            "early_exit",
            {"criterion": "confidence_exit threshold=0.4 min_layers=1", "max_draft_tokens": 3},
        )
    )
    trace = toys.decode(toys.method(**parts), count=16, pair=(DEEP, DEEP)).sink
    drafted = [step for step in trace.steps if step.draft]
    assert drafted and check(trace).ok and check(trace).counts["exits"] > 20
    for step in drafted:
        assert [x.depth for x in step.exits] == step.draft.notes["exits"] and all(
            x.drafted for x in step.exits
        )
        for left, token in zip(step.exits, step.draft.tokens, strict=True):
            assert len(left.best) == len(left.tests) and (left.depth == 6 or left.best[-1] == token)


def test_norms_of_layers_that_a_pass_did_not_reach_are_not_numbers() -> None:
    settings = dict(threshold=0.6, min_layers=1)
    trace = toys.decode(
        toys.method(adaptive_depth=("confidence_exit", settings)), count=12, level="full", pair=(DEEP, DEEP)
    ).sink
    depths = {step.exits[0].depth for step in trace.steps}
    assert len(depths) > 1 and check(trace).ok
    for step in trace.steps:
        known = np.isfinite(step.fields.hidden_norm)
        assert step.fields.hidden_norm.shape == (7, len(step.emitted))
        left = step.exits[0].depth
        assert known[:, 0].tolist() == [layer <= left or layer == 6 for layer in range(7)]
