"""Scylla's scaling laws: the fit finds the line through exact points, and an unseen point's error is for a fit without it."""

from __future__ import annotations

import math

import pytest

from decodescope.training.draft_laws import LogLaw, body_size, law_row, main, table, unseen_errors


def test_a_law_is_found_again_and_foretells_what_it_has_not_seen() -> None:
    points = [(x, 0.7 * math.log10(x) - 1.25) for x in (2.0, 30.0, 500.0, 6_000.0)]
    law = LogLaw.fit(points)
    assert (law.a, law.b) == (pytest.approx(0.7, abs=1e-12), pytest.approx(-1.25, abs=1e-12))
    assert max(map(abs, unseen_errors(points))) < 1e-12


def test_the_error_of_a_point_is_that_of_a_law_without_it() -> None:
    points = [(1.0, 2.0), (10.0, 2.5), (100.0, 2.6)]
    # without the first: 0.1 a decade through (10, 2.5); without the second: the mean of its neighbours; without the third: 0.5
    assert unseen_errors(points) == pytest.approx([2.4 - 2.0, 2.3 - 2.5, 3.0 - 2.6])
    assert "rises" in law_row("x", points) and "0.400" in law_row("x", points)
    assert "falls" in law_row("x", [(x, -y) for x, y in points]) and "neither" in law_row(
        "x", [*points, (1e3, 0.0)]
    )


def test_too_few_points_are_refused_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="two different places above 0"):
        LogLaw.fit([(3.0, 1.0), (3.0, 2.0)])
    with pytest.raises(SystemExit):
        main(["points", "1:2", "2:3"])
    assert "three or more pairs X:Y" in capsys.readouterr().err
    main(["points", "1:2", "10:3", "100:4"])
    assert "+1.000 log10 x +2.000 | 0.000 | 0.000 | rises" in capsys.readouterr().out


def test_the_table_has_a_law_for_every_size_and_every_number_of_tokens() -> None:
    made = {f"{n}/{x}": {"tau drawn": 1 + 0.1 * n + x} for n in (1, 2, 4) for x in (0.05, 0.1, 0.2)}
    lines = table(made).splitlines()
    assert (
        sum("rises" in line for line in lines) == 6
        and body_size(4) - body_size(2) == 2 * (body_size(2) - body_size(1)) > 0
    )
