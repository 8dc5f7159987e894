"""The examples' texts: only the examples that show loops contain loops; a search for other prompts replaces such texts."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest
from scripted import script

from decodescope.app.runs.catalogue.examples import examples, shipped_examples
from decodescope.app.runs.preset_prompts import MOST
from decodescope.engine.session.load import SHIPPED, fingerprint
from decodescope.engine.trace import open_trace


@pytest.fixture(scope="module")
def prompts() -> ModuleType:
    return script("examples")


def test_no_example_goes_round_but_those_that_show_it(prompts: ModuleType) -> None:
    made = prompts.recording()
    bad = {x.name for x in examples() if made.again(x.path) > MOST}
    assert not bad - made.ROUND, "take another prompt: python benchmarks/examples.py NAME"
    assert "loop" in bad & made.ROUND, "the bound must refuse a loop"


def test_an_example_was_recorded_by_the_weights_that_lie_there(prompts: ModuleType) -> None:
    """Otherwise no fork could continue it.

    Only models without transforms are checked: their fingerprints need no weights in memory.
    """
    made = prompts.recording()
    targets = {
        name: x.get("model", "lab")
        for name, x in made.EXAMPLES.items()
        if "@" not in x.get("model", "lab") and not made.is_real(name)
    }
    names = {*targets.values(), *made.ROLES.values()}
    marks = {x: fingerprint(SHIPPED / x.partition("+")[0], x.partition("+")[2]) for x in names}
    old = [name for name in targets if not made.current(name, marks)]
    assert not old and len(targets) > 40, f"run python assets/traces/make.py --old: {old}"
    assert not made.current("eagle", marks | {"lab": "other"}), "other weights are told apart"


def test_examples_of_the_real_model_stand_first_and_come_from_one_file(prompts: ModuleType) -> None:
    """They are read without the model. A fork finds it by the fingerprint, so all of them have one."""
    made = prompts.recording()
    real = [x for x in examples() if x.model]
    assert list(examples()) == [*real, *shipped_examples()] and len(real) >= 12
    assert [x.name for x in real] == [x for x in made.EXAMPLES if made.is_real(x)]
    assert {x.model for x in real} == {made.REAL_MODEL}
    assert sum(x.path.stat().st_size for x in real) <= made.REAL_LARGEST
    marks, parts = set(), set()
    for example in real:
        with closing(open_trace(example.path)) as trace:
            header = trace.header
            assert header.chat and header.turn in made.EXAMPLES[example.name]["prompts"]
            assert "decisions" in header.levels and "/" not in header.model["name"]
            marks.add((header.model["name"], header.model["fingerprint"], header.dtype))
            parts |= {(kind, part["name"]) for kind, part in header.method.items() if isinstance(part, dict)}
    assert len(marks) == 1, "one file, read in one way"
    usual = {(kind, part) for kind, part in parts if kind in ("drafter", "policy", "strategy")}
    assert len(usual) > 10, "a spread of methods"


def test_examples_of_a_model_that_is_missing_are_left_as_they_are(
    prompts: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = prompts.recording()
    monkeypatch.setenv("DECODESCOPE_REAL_MODEL", str(tmp_path / "none.gguf"))
    monkeypatch.setattr(made, "HERE", tmp_path)
    row = {"name": "letter-json", "run": "0" * 16, "title": "old", "about": "old.", "model": made.REAL_MODEL}
    (tmp_path / "index.json").write_text(json.dumps([row]))
    monkeypatch.setattr(sys, "argv", ["make.py", "letter-json"])
    made.main()
    said = capsys.readouterr().out
    assert "letter-json" in said and "none.gguf is missing" in said and "models get" in said
    (kept,) = json.loads((tmp_path / "index.json").read_text())
    assert kept["run"] == row["run"] and not list(tmp_path.glob("*.dstrace"))


def test_prompts_that_were_looked_for_are_measured_as_they_are(prompts: ModuleType) -> None:
    rows, names = prompts.kept(), prompts.SEARCHED
    asked = {(x.prompt, x.chat): x for x in prompts.pool()}
    assert {(x["prompt"], x["chat"]) for x in rows} == asked.keys(), (
        "run python benchmarks/examples.py --write"
    )
    due = [(x, name, asked[x["prompt"], x["chat"]]) for x in rows for name in names]
    old = [x["prompt"] for x, name, prompt in due if x[name]["settings"] != prompts.settings(name, prompt)]
    assert not old, (
        f"run python benchmarks/examples.py --write: {len(old)} were written by other weights or settings"
    )
    assert prompts.good(rows[0], names) and not prompts.good(rows[-1], names), (
        "there is one to take, and one to refuse"
    )
