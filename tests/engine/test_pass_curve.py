"""The curve of pass times by rows: measured with a given clock, interpolated, and kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import toys

from decodescope.engine.cost.pass_curve import PassCurve, curve_path, load_curve, save_curve
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.shared import verify_cost as timing
from decodescope.engine.kernels.choice import pass_threads

CURVE = PassCurve({1: 100.0, 8: 240.0, 2: 120.0})
KEY = {"machine": "a machine", "threads": 2, "model": "abc"}


# ---- the curve


def test_times_between_measured_numbers_lie_on_a_line_and_the_last_line_goes_on() -> None:
    assert [CURVE.time_us(n) for n in (1, 2, 5, 8, 10)] == pytest.approx([100, 120, 180, 240, 280])
    assert CURVE.ratio(8) == pytest.approx(2.4) and CURVE.time_us(0.5) == 100.0
    noisy = PassCurve({1: 100.0, 2: 90.0})
    assert noisy.time_us(8) == 90.0, "more rows never take less time than the last measured number"
    assert noisy.ratio(2) == 1.0


def test_one_point_is_no_curve_and_far_numbers_are_not_covered() -> None:
    assert not PassCurve({1: 5.0}).covers(1)
    assert CURVE.covers(16) and not CURVE.covers(17)


@pytest.mark.parametrize(
    "record",
    [None, {}, [], {"1": -1.0}, {"0": 1.0}, {"one": 1.0}, {"1": "2"}, {"1": float("nan")}, {"1": True}],
)
def test_what_is_no_curve_is_ignored(record: Any) -> None:
    assert PassCurve.from_record(record) is None


def test_a_curve_is_kept_under_its_key_and_a_broken_or_foreign_file_is_ignored(tmp_path: Path) -> None:
    assert load_curve(KEY, tmp_path) is None
    save_curve(CURVE, KEY, tmp_path)
    assert load_curve(KEY, tmp_path) == CURVE
    assert load_curve({**KEY, "threads": 1}, tmp_path) is None
    path = curve_path(KEY, tmp_path)
    foreign = json.loads(path.read_text())
    for text in (json.dumps({**foreign, "key": {}}), json.dumps({**foreign, "us": 3}), "[]", "{", "\0"):
        path.write_text(text)
        assert load_curve(KEY, tmp_path) is None
    assert [x.name for x in path.parent.iterdir()] == [path.name], "no part of a file is left"


# ---- measuring


class FakePasses:
    """Passes of given times on a clock of their own. us: rows -> microseconds of the first pass and of each further one"""

    def __init__(self, us: dict[int, tuple[float, float]]):
        self.us, self.now = us, 0.0
        self.made: list[int] = []

    def time(self, lane: Lane, rows: int) -> float:
        us = self.us[rows][rows in self.made]
        self.made.append(rows)
        self.now += us / 1e6
        return us

    def rounds(self, budget_s: float, first_s: float, rounds: int = 9) -> dict[int, list[float]]:
        lane: Any = type("Stand", (), {"decoder": toys.decoder()})()
        return timing._time_rounds(
            lane, list(self.us), rounds, budget_s, first_s, self.time, lambda: self.now
        )


def test_small_passes_are_timed_in_rounds_until_the_budget_is_spent() -> None:
    passes = FakePasses({1: (900.0, 100.0), 2: (900.0, 120.0)})
    times = passes.rounds(budget_s=1.0, first_s=2.0)
    assert [len(x) for x in times.values()] == [9, 9]
    assert min(times[1]) == 100.0 and min(times[2]) == 120.0
    assert passes.made[:5] == [1, 1, 2, 1, 2], "the first pass warms up"
    few = FakePasses({1: (1e5, 1e5), 2: (1e5, 1e5)}).rounds(budget_s=0.25, first_s=2.0)
    assert few == {1: [1e5], 2: [1e5]}


def test_large_passes_end_within_the_first_round() -> None:
    slow = {n: (5e5 * n, 5e5 * n) for n in (1, 2, 4, 8)}
    assert list(FakePasses(slow).rounds(budget_s=0.25, first_s=2.0)) == [1, 2, 4]
    assert list(FakePasses(slow).rounds(budget_s=0.25, first_s=float("inf"))) == [1, 2, 4, 8]


def test_passes_that_agree_are_steady() -> None:
    assert timing.is_steady([100.0, 500.0, 110.0, 120.0])
    assert not timing.is_steady([100.0, 150.0, 160.0]) and not timing.is_steady([100.0, 100.0])
    assert timing.is_steady([1e6], weight_bytes=2**30)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's data folder, empty."""
    monkeypatch.setattr("decodescope.engine.cost.pass_curve.data_folder", lambda: tmp_path)
    yield tmp_path


def stand_in(monkeypatch: pytest.MonkeyPatch, us: dict[int, list[float]]) -> list[list[int]]:
    """Let passes take these times; the numbers of rows that were measured."""
    asked: list[list[int]] = []

    def rounds(lane: Lane, rows: list[int], *_: Any) -> dict[int, list[float]]:
        asked.append(list(rows))
        return {n: us[n] for n in rows if n in us}

    monkeypatch.setattr(timing, "_time_rounds", rounds)
    return asked


def loaded_decoder() -> Any:
    """A decoder as `load` makes it."""
    decoder = toys.decoder()
    decoder.fingerprint = "0123456789abcdef"
    return decoder


def test_a_loaded_model_s_curve_is_read_by_a_later_process(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    us = {n: [50.0 + n] * 3 for n in (1, 2, 4, 8, 16, 32)}
    asked, first = stand_in(monkeypatch, us), loaded_decoder()
    assert timing.known_curve(first) is None
    curve = timing.measure_curve(first)
    again = loaded_decoder()
    assert timing.known_curve(again) == curve == timing.measure_curve(again)
    assert len(asked) == 1
    assert timing.verify_costs(again, [1, 8]) == [51.0, 58.0] and len(asked) == 1
    assert timing.known_curve(again, threads=pass_threads() + 1) is None, "other threads are another curve"
    assert timing.known_curve(again.to(dtype=torch.bfloat16)) is None
    timing.measure_curve(again, refresh=True)
    assert len(asked) == 2


def test_what_was_disturbed_stays_in_memory(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, {1: [50.0] * 3, 2: [50.0, 90.0, 95.0]})
    decoder = loaded_decoder()
    assert timing.measure_curve(decoder, rows=[1, 2]).rows == [1, 2]
    later = timing.known_curve(loaded_decoder())
    assert later is not None and later.rows == [1]


def test_a_model_that_was_made_in_memory_has_its_curve_there(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, decoder = stand_in(monkeypatch, {3: [7.0], 5: [9.0]}), toys.decoder()
    assert timing.verify_costs(decoder, [5, 3]) == [9.0, 7.0] == timing.verify_costs(decoder, [5, 3])
    assert asked == [[3, 5]] and not any(kept.iterdir())
    loaded = loaded_decoder()
    timing.verify_costs(loaded, [3])
    assert loaded.pack_weights().costs == {} and loaded.pack_weights().fingerprint == ""


def test_sizes_too_slow_to_be_timed_are_not_tried_at_every_load(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, decoder = stand_in(monkeypatch, {1: [4e5], 2: [6e5]}), loaded_decoder()
    timing.measure_curve(decoder, rows=[1, 2, 4])
    timing.measure_curve(decoder, rows=[1, 2, 4])
    assert asked == [[1, 2, 4]]


def test_a_curve_is_measured_by_real_passes() -> None:
    decoder = toys.decoder()
    curve = timing.measure_curve(decoder, rows=[1, 2])
    assert curve.rows == [1, 2] and all(x > 0 for x in curve.us.values())
    assert timing.known_curve(decoder) == curve


def test_a_header_keeps_what_was_measured_before_the_run(kept: Path) -> None:
    target, draft = toys.pair()
    target.decoder.costs = {(pass_threads(), "torch"): {1: 10.0, 8: 15.0}}
    trace = toys.decode(toys.method(drafter="draft_model"), pair=(target, draft), count=3).sink
    assert trace.header.pass_us == {"target": {"1": 10.0, "8": 15.0}}
