"""Before a run the page says where drafts cannot pay on this machine, with both figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toys
from toylab import ToyPlay, speculative

from decodescope.app.page.layout import _settings_summary
from decodescope.app.runs.drafting_remark import payoff_problem
from decodescope.app.runs.run_service import RunChoice
from decodescope.app.runs.threads import measure_passes
from decodescope.engine import Method
from decodescope.engine.cost.pass_curve import ROWS, PassCurve, save_curve
from decodescope.engine.decoding.shared import verify_cost as timing
from decodescope.engine.kernels.choice import pass_threads

CHEAP = PassCurve({1: 100.0, 8: 200.0})
DEAR = PassCurve({1: 100.0, 2: 200.0, 8: 830.0})


def test_drafts_cannot_pay_if_their_pass_and_their_making_cost_as_much_as_their_tokens() -> None:
    assert payoff_problem(CHEAP, 7, 7, 0.0) == "" == payoff_problem(CHEAP, 7, 7, 0.8)
    assert payoff_problem(CHEAP, 7, 7, 0.9) == (
        "Drafting cannot pay on this machine: a pass of 8 rows costs 2.0 passes of one row, and the draft 6.3 more, and writes "
        "at most 8 tokens."
    )
    assert payoff_problem(DEAR, 7, 7, 0.0) == (
        "Drafting cannot pay on this machine: a pass of 8 rows costs 8.3 passes of one row, and writes at most 8 tokens."
    )


def test_a_chain_may_be_shorter_and_a_tree_writes_its_levels() -> None:
    late = PassCurve({1: 100.0, 4: 150.0, 8: 900.0})
    assert payoff_problem(late, 7, 7, 0.0) == "", "drafts of three tokens pay"
    assert "at most 4 tokens" in payoff_problem(DEAR, 7, 3, 0.0)
    assert payoff_problem(DEAR, 40, 40, 0.0) == "", "so many rows were not measured"


def test_a_drafter_says_how_large_its_drafts_may_be() -> None:
    for how, due in (
        ({"drafter": "prompt_lookup", "drafter.max_draft_tokens": 6}, (6, 6)),
        ({"drafter": "draft_model", "drafter.max_draft_tokens": 3, "drafter.width": 2}, (6, 3)),
        ({"drafter": "sequoia", "drafter.nodes": 12, "drafter.depth": 4}, (12, 4)),
        ({"drafter": "token_recycling"}, None),
        (None, None),
    ):
        assert Method.of(how).drafter.largest_draft == due


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's data folder, empty."""
    monkeypatch.setattr("decodescope.engine.cost.pass_curve.data_folder", lambda: tmp_path / "data")
    return tmp_path / "data"


def remarks(play: ToyPlay, choice: RunChoice) -> list[str]:
    """What the page says of a choice about drafting."""
    return [x for x in _settings_summary(play, play.compose(choice))["notes"] if "cannot pay" in x]


def test_the_page_says_it_before_a_run_if_both_models_were_measured(kept: Path, play: ToyPlay) -> None:
    models = play.models.loaded_models()
    for model, mark in zip(models.values(), "ab", strict=True):
        model.decoder.fingerprint = mark * 16
    target, draft = (model.decoder for model in models.values())
    assert remarks(play, speculative()) == [], "nothing was measured"
    save_curve(DEAR, timing.curve_key(target, pass_threads()))
    assert remarks(play, speculative()) == [], "the draft model was not measured"
    save_curve(PassCurve({1: 50.0, 2: 60.0}), timing.curve_key(draft, pass_threads()))
    (said,) = remarks(play, speculative())
    assert "a pass of 7 rows costs 7.2 passes of one row, and the draft 1.5 more" in said
    assert said.endswith("and writes at most 4 tokens.")
    assert len(remarks(play, RunChoice("hello", {"drafter": "prompt_lookup"}))) == 1
    assert remarks(play, RunChoice("hello")) == [], "plain decoding drafts nothing"
    save_curve(CHEAP, timing.curve_key(target, pass_threads()))
    assert remarks(play, RunChoice("hello", {"drafter": "prompt_lookup"})) == []


def test_a_model_is_measured_when_it_was_loaded_and_a_fault_there_is_no_fault_of_the_run(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, asked = toys.target(), list[list[int]]()

    def rounds(lane: Any, rows: list[int], *_: Any) -> dict[int, list[float]]:
        asked.append(rows)
        return {n: [1.0 * n] * 3 for n in rows}

    monkeypatch.setattr(timing, "_time_rounds", rounds)
    model.decoder.fingerprint = "c" * 16
    measure_passes(model)
    measure_passes(model)
    assert len(asked) == 1 and {*asked[0]} <= {*ROWS} and any(kept.rglob("*.json"))


def test_a_model_whose_passes_cannot_be_measured_says_why_and_runs(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("the clock is gone")

    model = replace(toys.draft(), remarks=[])
    monkeypatch.setattr(timing, "_time_rounds", fail)
    measure_passes(model)
    assert model.remarks == ["What its passes cost here could not be measured: the clock is gone"]
