"""Speed that acceptance would bring: by length, by tree width, for a perfect draft, and for the best of several drafters."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import pytest
import toys

from decodescope.engine.trace import Trace
from decodescope.lab import report
from decodescope.lab.reports.changes import change_tables
from decodescope.lab.reports.figures import lengths
from decodescope.lab.reports.metrics import report_metrics
from decodescope.lab.reports.oracle import OracleCurve, oracle_curve
from decodescope.lab.reports.report import AcceptanceReport
from decodescope.lab.reports.tables import tables


@cache
def runs(
    drafter: Any = "draft_model", sampler: str = "greedy", count: int = 24, **knobs: Any
) -> tuple[Trace, ...]:
    """A toy's runs over three prompts."""
    method = toys.method(drafter=(drafter, knobs), sampler=sampler)
    return tuple(toys.decode(method, prompt=ids, count=count).sink for ids in toys.prompts(3, 6))


@cache
def counted(**how: Any) -> AcceptanceReport:
    """The report over them."""
    return report(runs(**how))


def test_speed_over_plain_is_tokens_a_step_times_a_plain_step_over_a_step() -> None:
    """Recounted from the records: steps that accept at least k tokens gain k with drafts of k."""
    made = counted(max_draft_tokens=4)
    steps = [s for t in runs(max_draft_tokens=4) for s in t.steps if s.extra is not None]
    plain = made.curve[0].step_us
    for k, point in enumerate(made.curve[:5]):
        tokens = sum(min(s.accepted, k) + 1 for s in steps) / len(steps)
        assert point.tokens == pytest.approx(tokens)
        assert point.over_plain == pytest.approx(tokens * plain / point.step_us)
        assert point.perfect >= point.over_plain - 1e-9, "no draft beats one that is always right"
    assert made.curve[0].over_plain == made.curve[0].perfect == pytest.approx(1.0)
    assert [x.perfect for x in made.curve][4] == pytest.approx(
        5 * plain / made.speed.clock.step_us(5, 4)  # type: ignore[union-attr]
    )


def test_the_best_length_and_what_nothing_can_be_said_of_stand_in_text_and_json() -> None:
    made = counted(max_draft_tokens=4)
    best = max(made.curve, key=lambda x: x.over_plain)
    below = next(x.below for x in tables(made) if x.title == "Speed by length")
    speed = f"{best.over_plain:.2f} times" if best.length else "no draft"  # as this machine's times have it
    assert below[0].startswith(f"Best length: {best.length}") and speed in below[0]
    assert any("always right" in x for x in below) and any("Tree sizes: unknown" in x for x in below)
    assert any(x.startswith("Times: ") for x in below)
    record = made.record()
    assert record["speed"] == below and record["widths"] == []
    assert record["curve"][2]["over_plain"] == made.curve[2].over_plain
    assert report_metrics(made)["speedup.length.2"] == made.curve[2].over_plain


def test_a_narrower_tree_is_cut_out_of_the_recorded_one() -> None:
    """Sibling by sibling: width 1 has what the first guesses gave, the full width what ran."""
    made = counted(max_draft_tokens=3, width=3, sampler="temperature")
    steps = [
        s
        for t in runs(max_draft_tokens=3, width=3, sampler="temperature")
        for s in t.steps
        if s.extra is not None
    ]
    widths = made.speed.widths
    assert len(widths) == 3 and [x.width for x in widths] == [1, 2, 3]
    assert widths[-1].nodes == pytest.approx(sum(s.drafted for s in steps) / len(steps))
    assert widths[-1].tokens == pytest.approx(1 + sum(s.accepted for s in steps) / len(steps))
    for width, point in enumerate(widths, 1):
        tokens = nodes = 0
        for s in steps:
            parents = s.draft.parents if s.draft else []
            turn = [parents[:i].count(x) for i, x in enumerate(parents)]

            def line(node: int, parents: list[int] = parents) -> list[int]:
                return [] if node < 0 else [*line(parents[node]), node]

            kept = {i for i in range(len(parents)) if all(turn[x] < width for x in line(i))}
            nodes += len(kept)
            tokens += 1 + len(list(itertools.takewhile(kept.__contains__, s.path or [])))
        assert (point.tokens, point.nodes) == (
            pytest.approx(tokens / len(steps)),
            pytest.approx(nodes / len(steps)),
        )
    assert widths[0].tokens < widths[-1].tokens, "the test needs second guesses that were accepted"
    titles = {x.title: x for x in tables(made)}
    assert len(titles["Speed by tree width"].rows) == 3 and any(
        "Best tree" in x for x in made.speed.sentences
    )


def test_rules_that_decide_on_a_place_as_a_whole_have_no_widths() -> None:
    method = toys.method(
        drafter=("draft_model", {"max_draft_tokens": 3, "width": 2}),
        acceptance="typical",
        sampler="temperature",
    )
    made = report(toys.decode(method, count=40).sink)
    assert made.speed.widths == [] and any(
        "all guesses of a place together" in x for x in made.speed.sentences
    )


# ---- the best of several drafters


def both() -> list[AcceptanceReport]:
    return [counted(max_draft_tokens=3), counted(drafter="prompt_lookup")]


def test_alone_at_full_length_a_drafter_needs_the_time_of_its_recorded_steps() -> None:
    """The walk over the text repeats the recorded steps one by one."""
    one, two = both()
    curve = oracle_curve([one, two])
    assert isinstance(curve, OracleCurve) and curve.tokens == 72 and curve.runs == 3
    clock = one.speed.clock
    assert clock is not None
    us = sum(clock.step_us(1 + s.drafted, s.drafted) for t in runs(max_draft_tokens=3) for s in t.steps)
    assert curve.points[3].alone[0] == pytest.approx(72 * clock.step_us(1, 0) / us)
    assert curve.points[0].alone == pytest.approx((1.0, 1.0)) and curve.points[0].oracle == pytest.approx(1.0)


def test_the_oracle_is_the_fastest_of_all_sequences_of_choices() -> None:
    """Every sequence of choices over a short text is tried."""
    short = [counted(max_draft_tokens=3, count=12), counted(drafter="prompt_lookup", count=12)]
    curve = oracle_curve(short)
    assert isinstance(curve, OracleCurve)
    clocks = [x.speed.clock for x in short]
    target = clocks[0]
    assert target is not None

    def best(places: list[dict[int, tuple[int, int]]], at: int, length: int) -> float:
        if at >= length:
            return 0.0
        times = []
        for clock, place in zip(clocks, places, strict=True):
            drafted, path = place.get(at, (0, 0))
            us = target.verify_us(1 + drafted) + target.rest + clock.draft_us(drafted)  # type: ignore[union-attr]
            times.append(us + best(places, at + path + 1, length))
        return min(times)

    total = 0.0
    for pair in zip(runs(max_draft_tokens=3, count=12), runs(drafter="prompt_lookup", count=12), strict=True):
        places: list[dict[int, tuple[int, int]]] = []
        for trace in pair:
            at, known = 0, {}
            for s in trace.steps:
                known |= {
                    at + k: (s.drafted - k, len(s.emitted) - 1 - k if s.extra else len(s.emitted) - k)
                    for k in range(len(s.emitted))
                }
                at += len(s.emitted)
            places.append(known)
        total += best(places, 0, 12)
    assert curve.points[-1].oracle == pytest.approx(36 * target.step_us(1, 0) / total)
    assert all(x.oracle >= max(x.alone) - 1e-9 for x in curve.points)
    assert sum(curve.chosen) == pytest.approx(1.0) and min(curve.chosen) > 0, (
        "the test needs both to be chosen"
    )


def test_texts_that_part_are_compared_up_to_there_and_too_few_tokens_are_refused_in_words() -> None:
    greedy, drawn = counted(max_draft_tokens=3), counted(max_draft_tokens=3, sampler="temperature")
    said = oracle_curve([greedy, drawn])
    assert isinstance(said, str) and "tokens alike, and 30 are needed" in said
    first = change_tables(greedy, drawn)[0]
    assert first.below == [said]
    last = change_tables(*both())[-1]
    assert last.title == "Choosing the better drafter" and "at each position" in last.below[0]


def test_the_chart_holds_what_the_tables_hold() -> None:
    made = counted(max_draft_tokens=3)
    curve = oracle_curve(both())
    assert isinstance(curve, OracleCurve)
    drawn = {x.name: x for x in lengths(made, curve).data}
    assert list(drawn["of drafts that were seen"].y) == [x.over_plain for x in made.curve[:4]]
    assert list(drawn["always right"].y) == [x.perfect for x in made.curve]
    assert list(drawn["the better one at each position"].y) == [x.oracle for x in curve.points]
    (best,) = (x for name, x in drawn.items() if name.startswith("best"))
    assert best.y[0] == max(x.over_plain for x in made.curve)
