"""Progress of what takes longer than a second: only on standard error, only if somebody watches, and never earlier."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable

import pytest
import toys

from decodescope.engine.core import progress as core
from decodescope.engine.core.progress import SETTING, Progress
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.session.load import load
from decodescope.engine.session.method import Method
from decodescope.engine.session.replay.exact_distribution import exact_distribution, sample_texts
from decodescope.engine.session.run import run
from decodescope.engine.timing import measure

SAMPLED = Method.from_names({"sampler": ["top_k", "temperature"]}, {"top_k": {"k": 2}})


def decode() -> None:
    model, draft = toys.pair()
    run(model, toys.method(drafter="draft_model"), toys.PROMPT, draft=draft, max_new_tokens=12)


WORK: dict[str, tuple[Callable[[], object], str]] = {
    "run": (
        decode,
        r"reading the prompt: .*reading the prompt \(draft\): .*decoding: .*\d+/12 \[\d\d:\d\d<.* tokens/s\]",
    ),
    "load": (lambda: load("lab-draft"), r"loading lab-draft: .*\d/\d+ \[\d\d:\d\d<.* layers/s\]"),
    "law": (
        lambda: exact_distribution(toys.target(), SAMPLED, toys.PROMPT, 3),
        r"every outcome of chance: 100%",
    ),
    "sample": (
        lambda: sample_texts(toys.target(), SAMPLED, toys.PROMPT, 3, 5),
        r"sampling: .*5/5 \[.* runs/s\]",
    ),
}


@pytest.mark.parametrize(("work", "says"), WORK.values(), ids=WORK)
def test_long_work_says_its_phase_how_far_it_is_and_for_how_long(
    work: Callable[[], object], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "SILENT_S", 0.0)
    monkeypatch.setattr("decodescope.engine.decoding.bases.lane.CHUNK", 2)
    work()
    assert capsys.readouterr() == ("", ""), "standard error is no terminal here"
    monkeypatch.setenv(SETTING, "1")
    monkeypatch.setenv("TQDM_MININTERVAL", "0")
    work()
    out, err = capsys.readouterr()
    assert out == "" and re.search(says, err.replace("\r", " "), re.DOTALL), err


def test_measuring_the_machine_says_which_figure_it_measures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "SILENT_S", 0.0)
    monkeypatch.setattr(measure, "_times", lambda call, *how: [1.0])  # the timings do not matter here
    monkeypatch.setenv(SETTING, "1")
    monkeypatch.setenv("TQDM_MININTERVAL", "0")
    measure.measure("float32")
    out, err = capsys.readouterr()
    says = (
        r"bandwidth of memory: .*1/4 .*bandwidth of the cache: .*2/4 .*price of a launch: .*3/4 \[\d\d:\d\d<"
    )
    assert out == "" and re.search(says, err.replace("\r", " "), re.DOTALL), err


def test_work_of_less_than_a_second_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SETTING, "1")
    with Progress("counting", 4, "things") as short:
        short.add()
    assert capsys.readouterr() == ("", "")
    with Progress("counting", 4, "things") as long:
        long._began -= 65
        long.add()
        _, err = capsys.readouterr()
    assert re.search(r"counting: +25%\|.*\| 1(\.0)?/4 \[01:05<", err), err
    monkeypatch.setenv(SETTING, "0")
    with Progress("counting") as silent:
        silent._began -= 65
        silent.add()
    assert "counting" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong", [{"max_new_tokens": "5"}, {"seed": -1}, {"level": "all"}, {"method": {"drafter": "nothing"}}]
)
def test_what_cannot_be_is_refused_before_a_model_is_loaded(
    wrong: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[object] = []
    # the package's attribute of this name is the function, not the module
    home = importlib.import_module("decodescope.engine.session.run")
    monkeypatch.setattr(home, "ensure_loaded", lambda *given: loads.append(given))
    with pytest.raises(Refusal):
        run("lab", **{"text_or_ids": "hello", **wrong})
    assert not loads
