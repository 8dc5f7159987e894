"""The examples' texts: only the examples that show loops contain loops; a search for other prompts replaces such texts."""

from __future__ import annotations

from types import ModuleType

import pytest
from scripted import script

from decodescope.app.runs.catalogue.examples import examples
from decodescope.app.runs.preset_prompts import MOST
from decodescope.engine.session.load import SHIPPED, fingerprint


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
        name: x.get("model", "lab") for name, x in made.EXAMPLES.items() if "@" not in x.get("model", "lab")
    }
    names = {*targets.values(), *made.ROLES.values()}
    marks = {x: fingerprint(SHIPPED / x.partition("+")[0], x.partition("+")[2]) for x in names}
    old = [name for name in targets if not made.current(name, marks)]
    assert not old and len(targets) > 40, f"run python assets/traces/make.py --old: {old}"
    assert not made.current("eagle", marks | {"lab": "other"}), "other weights are told apart"


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
