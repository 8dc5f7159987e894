"""How guidance chose each token: candidates with their terms, added up again, in Python's words and on the wire."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import toys

from decodescope.engine.trace import Trace
from decodescope.lab.decision.choice_tally import choice_tally
from decodescope.lab.decision.explain import explain
from decodescope.lab.wire.messages import build_wire, max_node_number

LAWS = {
    "contrastive": dict(alpha=0.01, strength=0.5),
    "nest": dict(datastore=toys.DATASTORE, window=9, neighbours=100, alpha=0.9, temperature=0.2),
}


@cache
def run(law: str = "contrastive") -> Trace:
    return toys.decode(
        toys.method(guidance=(law, LAWS[law]), drafter=("draft_model", {"max_draft_tokens": 3})), count=16
    ).sink


def test_every_candidate_has_its_sum_or_what_it_lacks() -> None:
    rows = []
    for step in run().steps:
        card = choice_tally(step, lambda ids: str(ids[0]))
        assert (
            card is not None
            and card.says == "from the distribution log p - 0.5 log q"
            and all(row.is_consistent for row in card.rows)
        )
        assert [row.text for row in card.rows if row.holds] == [str(x) for x in step.emitted]
        sums = [score for choice in step.choices for score in choice.scores]
        for row, score in zip(card.rows, sums, strict=True):
            assert (row.number == pytest.approx(score)) if score is not None else row.number < row.bar
        assert max_node_number(step) >= len(card.rows), "a reader may choose any row"
        rows += card.rows
    assert {"left out by its log p"} & {row.word.partition(": ")[2] or row.word for row in rows}


def test_a_view_gets_them_beside_the_tree_and_an_explanation_names_the_sum() -> None:
    trace = run()
    step = next(x for x in trace.steps if len(x.emitted) > 1 and x.extra is not None)
    message = build_wire(trace).step(step, whole=True)
    assert (
        message["nodes"]
        and "tally" not in message
        and len(message["turn"]["rows"]) == len(choice_tally(step, str).rows)
    )
    explained = explain(trace, step.step)
    assert explained.agrees and any("log p - 0.5 log q" in line.words for line in explained.lines)


def test_a_mixture_is_told_by_its_shares_token_by_token() -> None:
    trace = run("nest")
    step = next(x for x in trace.steps if len(x.emitted) > 1)
    card = choice_tally(step, str)
    assert card is not None and card.says == "from the distribution a mixture of p and p_kNN", (
        "each token has shares of its own"
    )
    assert "the logarithms of these scores" in card.lines[0] and all(
        0 <= row.number <= 1 for row in card.rows
    )
    shares = [choice.weights["p"] for choice in step.choices]
    rows = [row.word for row in card.rows if row.holds]
    assert (
        all(f"{share:.3g} x" in word for share, word in zip(shares, rows, strict=True))
        and len(set(shares)) > 1
    )
    single = next(x for x in trace.steps if len(x.emitted) == 1)
    share = single.choices[0].weights["p"]
    assert choice_tally(single, str).says == f"from the distribution {share:.3g} p + {1 - share:.3g} p_kNN"
    message = build_wire(trace).step(step, whole=True)
    assert len(message["turn"]["rows"]) == len(card.rows) and message["notes"]["guidance"], (
        "places and shares are drawn as notes"
    )


def test_where_the_targets_own_law_chose_nothing_is_told() -> None:
    assert choice_tally(replace(run().steps[0], choices=None), str) is None
