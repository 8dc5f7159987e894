"""The command `bench cloze`: its figures match its passes, and the file holds what the command prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from decodescope.app.commands.bench.cloze import as_text
from decodescope.engine.bench import cloze as bench

SWEEPS = {
    "confidence_exit threshold={}": ("1.01", "0.0"),
    "hash_exit seed={} bucket_assignment=random": ("0",),
}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use two questions of each kind, and sweeps whose end points have known results."""
    monkeypatch.setattr(bench, "SHORT", 2)
    monkeypatch.setattr(bench, "SWEEPS", SWEEPS)


def test_bounds_that_never_and_always_are_reached_are_all_layers_and_the_first_exit(
    few, said, tmp_path: Path
) -> None:
    out = tmp_path / "found.json"
    code, text, err = said("bench", "cloze", "--short", "--threads", "1", "--out", str(out))
    record = json.loads(out.read_text(encoding="utf-8"))
    assert (code, text.strip()) == (0, as_text(record)), err
    rules, layers = record["rules"], record["layers"]
    assert (record["model"], record["questions"], record["heads"]) == ("lab-mdm+cloze", 6, True)
    assert [*rules] == [bench.WHOLE, *(words.format(x) for words, bounds in SWEEPS.items() for x in bounds)]
    whole, never, always = (rules[x] for x in [*rules][:3])
    assert (whole["layers"], whole["tests"]) == (layers, 0.0)
    assert (never["layers"], never["tests"]) == (layers, layers - 1) and never["by sort"] == whole["by sort"]
    assert (always["layers"], always["tests"]) == (1.0, 1.0)
    for one in rules.values():
        sorts = one["by sort"]
        assert set(sorts) == {"kind", "claim", "same"} and one["right"] == pytest.approx(
            sum(sorts.values()) / 3
        )
    code, text, _ = said("bench", "cloze", "--short", "--threads", "1", "--json")
    again = json.loads(text)
    columns, other = record.pop("columns"), again.pop("columns")
    assert code == 0 and again == record, "times are others, and nothing else"
    assert [*columns] == [*other] == [*rules] and columns[bench.WHOLE]["compression"] == 1.0
    for name, one in columns.items():
        assert (
            one["memory"] > record["settings"]["weights"][name] > 4e6
            and one["latency"] > 0 < one["throughput"]
        )
        assert one["memory"] == other[name]["memory"]


def test_what_cannot_be_measured_is_one_sentence(said, tmp_path: Path) -> None:
    (out := tmp_path / "there.json").write_text("{}")
    for words, why in (
        (["--out", str(out)], "exists"),
        (["--model", "lab-draft"], "asks for a mask to be filled, and lab-draft knows none: choose lab-mdm"),
        (["--questions", str(out)], "--questions is an option of bench labbench"),
        (["--resume"], "--resume is an option of bench labbench"),
    ):
        code, text, err = said("bench", "cloze", *words)
        assert (code, text) == (2, "") and why in err and err.count("\n") == 1, (words, err)
