"""Diverse beam search: its groups by brute force; one group, no penalty, and the first group are beam search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
import toys
from followed import followed

from decodescope.engine import MethodError
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.details.shapes import TreeDetail
from decodescope.lab.decision.explain import explain

SMALL = toys.model(toys.decoder(toys.toy_spec(vocab=6), 6, torch.float64, sharp=2.0))
PROMPT = [1, 3, 2]


def run(
    name: str, count: int = 6, prompt: list[int] = PROMPT, stop_tokens: tuple[int, ...] = (), **knobs: Any
) -> Any:
    method = toys.method(strategy=(name, knobs))
    return toys.decode(method, prompt, count, pair=(SMALL, SMALL), stop_tokens=stop_tokens)


def steps(session: Any, group: int | None = None) -> list[tuple[Any, ...]]:
    """What each step kept and what ended; with `group`, only that group's, its parents numbered within it."""
    rows, first = [], 0
    for step in session.sink.steps:
        b = followed(step)
        own = [k for k in range(len(b.tokens)) if group is None or b.groups[k] == group]
        ended = [
            (parent - first, token, round(score, 9))
            for parent, token, score, g in b.ended
            if group in (None, g)
        ]
        kept = [(b.tokens[k], b.parents[k] - first, round(b.scores[k], 9)) for k in own]
        rows.append((kept, ended))
        first = own[0] if own else 0
    return rows


@torch.inference_mode()
def logs(text: list[int]) -> list[float]:
    return SMALL.decoder.forward(Feed.causal_chain(text, 0), None)[0, -1].log_softmax(-1).tolist()


@pytest.mark.parametrize("prompt", [PROMPT, [4], [5, 0]], ids=str)
@pytest.mark.parametrize("stops", [(), (2,)], ids=["none", "one"])
def test_one_group_is_beam_search(prompt: list[int], stops: tuple[int, ...]) -> None:
    ours, beam = (
        run(x, 8, prompt, stops, width=4, **more)
        for x, more in (("diverse_beam", {"groups": 1}), ("beam", {}))
    )
    assert (
        steps(ours) == steps(beam)
        and ours.end.tokens == beam.end.tokens
        and ours.end.reason == beam.end.reason
    )
    assert [followed(x).left for x in ours.sink.steps] == [followed(x).left for x in beam.sink.steps]


def test_the_first_group_and_without_a_fine_every_group_is_beam_search_of_its_width() -> None:
    alone = 0
    for stop, strength in product(range(6), (0.0, 0.7, 10.0)):
        beam = run("beam", 8, stop_tokens=(stop,), width=2)
        ours, due = (
            run("diverse_beam", 8, stop_tokens=(stop,), width=6, groups=3, diversity_penalty=strength),
            steps(beam),
        )
        for group in range(3 if strength == 0 else 1):
            made = steps(ours, group)
            assert made[: len(due)] == due and not any(kept or ended for kept, ended in made[len(due) :])
        assert check(ours.sink).ok, str(check(ours.sink))
        assert strength or (ours.end.tokens == beam.end.tokens and len(ours.sink.steps) == len(due))
        alone += len(ours.sink.steps) > len(due)
    assert alone > 1, "the test needs groups that go on when the first has ended"


def brute(
    count: int, width: int, groups: int, strength: float
) -> tuple[list[list[tuple[Any, ...]]], list[Any]]:
    """Every extension of every text, computed without a cache and sorted, group by group.

    Returns (text, score, fine) of each step, and the last ones.
    """
    alive = [[([], 0.0, 0.0)] for _ in range(groups)]
    told = []
    for _ in range(count):
        seen: Counter[int] = Counter()
        for g in range(groups):
            every = [
                ([*text, x], score + lp, fine + strength * seen[x])
                for text, score, fine in alive[g]
                for x, lp in enumerate(logs([*PROMPT, *text]))
            ]
            alive[g] = sorted(every, key=lambda h: h[2] - h[1])[: width // groups]
            seen.update(text[-1] for text, _, _ in alive[g])
        told.append([h for group in alive for h in group])
    return told, told[-1]


@pytest.mark.parametrize(("width", "groups", "strength"), [(6, 3, 0.5), (4, 4, 1.0), (6, 2, 2.0)])
def test_groups_are_those_of_trying_everything(width: int, groups: int, strength: float) -> None:
    session = run("diverse_beam", 5, width=width, groups=groups, diversity_penalty=strength, alpha=0.0)
    due, last = brute(5, width, groups, strength)
    texts: list[list[int]] = [[]]
    for step, hypotheses in zip(session.sink.steps, due, strict=True):
        b = followed(step)
        texts = [[*texts[parent], token] for parent, token in zip(b.parents, b.tokens, strict=True)]
        assert texts == [text for text, _, _ in hypotheses]
        assert b.scores == pytest.approx([score for _, score, _ in hypotheses])
        assert b.fines == pytest.approx([fine for _, _, fine in hypotheses])
    assert session.end.tokens == max(last, key=lambda h: h[1])[0], "the best of all without fines"
    report = check(session.sink)
    assert report.ok and report.counts["hypotheses"] == 5 * width
    assert sum(fine > 0 for hypotheses in due for _, _, fine in hypotheses) > 3, "the test needs fines"
    plain = run("diverse_beam", 5, width=width, groups=groups, diversity_penalty=0.0, alpha=0.0)
    different = [len({*map(tuple, [t for t, _, _ in last])}), len({*map(tuple, tails(plain))})]
    assert different[0] > different[1], "fines keep the groups apart"


def tails(session: Any) -> list[list[int]]:
    """The texts of the last step."""
    texts: list[list[int]] = [[]]
    for step in session.sink.steps:
        texts = [
            [*texts[parent], token]
            for parent, token in zip(followed(step).parents, followed(step).tokens, strict=True)
        ]
    return texts


def column(detail: TreeDetail, name: str, change: Callable[[list[Any]], list[Any]]) -> TreeDetail:
    """The hypotheses with one column changed."""
    return replace(detail, columns={**detail.columns, name: change(detail.columns[name])})


def left_out(detail: TreeDetail) -> TreeDetail:
    """The hypotheses, with a dropped one changed so that it has the best score of all."""
    place = detail.columns["outcome"].index("left")
    parents = [*detail.parents[:place], 0, *detail.parents[place + 1 :]]
    better = column(detail, "score", lambda x: [*x[:place], 0.0, *x[place + 1 :]])
    return replace(better, parents=parents)


FORGED = {
    "a fine": (
        lambda b: column(b, "fine", lambda x: [*x[:3], x[3] + 1, *x[4:]]),
        "and the groups before it give",
    ),
    "the order": (lambda b: column(b, "group", lambda x: x[::-1]), "do not follow one another"),
    "a score": (
        lambda b: column(b, "score", lambda x: [1.0, *x[1:]]),
        "above that of the text it goes on from",
    ),
    "the best": (
        lambda b: column(b, "score", lambda x: [x[0] - 9, *x[1:]]),
        "are not ordered with the best first",
    ),
    "what was left": (left_out, "for others that are worth less"),
    "a parent": (lambda b: replace(b, parents=[99, *b.parents[1:]]), "and the step before has 4"),
    "no scores": (lambda b: column(b, "score", lambda x: [None] * len(x)), "lack a score"),
    "another outcome": (
        lambda b: column(b, "outcome", lambda x: ["taken", *x[1:]]),
        "without an outcome that its declaration knows",
    ),
    "one that goes on behind one that was left": (
        lambda b: column(b, "outcome", lambda x: x[::-1]),
        "behind one that does not",
    ),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_record_is_found_out(what: str) -> None:
    forge, why = FORGED[what]
    session = run("diverse_beam", width=4, groups=2)
    trace = Trace()
    for record in [session.sink.header, session.sink.prefill, *session.sink.steps]:
        forged = record is session.sink.steps[3]
        trace.write(replace(record, details=[forge(record.details[0])]) if forged else record)
    trace.seal(session.end)
    assert why in str(check(trace))


def test_it_is_told_by_groups() -> None:
    explained = explain(run("diverse_beam", width=4, groups=2, diversity_penalty=2.0).sink, 2)
    assert (
        explained.agrees
        and "group 2" in str(explained)
        and "fined" in str(explained)
        and "were left" in str(explained)
    )


def test_groups_of_unequal_size_are_refused() -> None:
    with pytest.raises(
        MethodError, match=r"^diverse_beam\.width = 5 is not a multiple of groups = 2: choose one that is\.$"
    ):
        run("diverse_beam", width=5, groups=2)
