"""The benchmark: both sides write the same, take turns, and the figures follow from the times."""

from __future__ import annotations

import json
from typing import Any

import pytest
from decodescope.app.bench import page
from decodescope.app.cli import main
from decodescope.engine import bench


def pretend(name: str, side: str, seconds: dict[str, list[float]]) -> bench.Contestant:
    """A contestant that has been timed."""
    made = bench.Contestant(name, side, {}, lambda prompt: bench.Written([1, 2]), seconds)
    made.written = {p: bench.Written([1, 2, 3, 4]) for p in seconds}
    return made


def test_a_ratio_is_of_medians_and_then_the_median_over_prompts() -> None:
    mine = {"a": [1.0, 9.0, 1.0], "b": [2.0, 2.0, 2.0], "c": [1.0, 1.0, 1.0]}
    theirs = {"a": [2.0, 2.0, 2.0], "b": [2.0, 2.0, 9.0], "c": [3.0, 3.0, 3.0]}
    names = ("autoregressive", "autoregressive, nothing recorded", "autoregressive, counts", "autoregressive, decisions")
    field = [pretend(name, "decodescope", mine) for name in names] + [pretend("generate", "transformers", theirs)]
    field[-2].seconds = {p: [x * 1.1 for x in times] for p, times in mine.items()}
    found = bench.compare(field)
    assert found["ratios"] == [{"name": "autoregressive against generate", "ratio": 2.0, "low": 1.0, "high": 3.0}]
    assert found["recording_percent"] == pytest.approx({"counts": 0.0, "decisions": 10.0})


def test_contestants_take_turns_in_an_order_that_turns() -> None:
    import torch

    calls: list[str] = []

    def called(name: str) -> bench.Contestant:
        def write(prompt: list[int]) -> bench.Written:
            calls.append(name)
            return bench.Written([0])

        return bench.Contestant(name, "decodescope", {}, write)

    bench.take_turns([called("A"), called("B"), called("C")], {"p": [1]}, 3, torch.device("cpu"), lambda text: None)
    assert "".join(calls) == "ABC" + "ABC" + "BCA" + "CAB"


def test_agreement_is_the_common_prefix() -> None:
    assert [bench.agreement([1, 2, 3], x) for x in ([1, 2, 3], [1, 5, 3], [], [1, 2])] == [3, 1, 0, 2]


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    """A short measurement of the shipped draft model, which is the smaller one."""
    return bench.decode("lab-draft", "lab-draft", new_tokens=12, repeats=1, threads=1, prompts={"code": "def add(a, b):\n"})


def test_both_sides_write_the_same_number_of_the_same_tokens(measured: dict[str, Any]) -> None:
    assert {x["side"] for x in measured["contestants"]} == {"decodescope", "transformers"}
    for one in measured["contestants"]:
        assert one["same_tokens"] == {"code": 12}, one["name"]
        assert len(one["seconds"]["code"]) == 1 and one["tokens_per_s"] > 0


def test_every_pair_is_compared(measured: dict[str, Any]) -> None:
    assert [x["name"] for x in measured["ratios"]] == [name for name, _, _ in bench.PAIRS]
    settings = {x["name"]: x["settings"] for x in measured["contestants"]}
    assert settings["assisted generation"] == bench.DRAFTING
    assert settings["assisted generation, equal length"]["num_assistant_tokens"] == bench.LENGTH
    assert settings["draft_model"]["drafter"]["length"] == bench.LENGTH
    assert settings["prompt lookup"] == {"prompt_lookup_num_tokens": bench.COPIED}


def test_our_defaults_of_assisted_generation_are_those_of_transformers() -> None:
    from transformers import GenerationConfig

    theirs = GenerationConfig()._get_default_generation_params()
    assert {name: theirs[name] for name in bench.DRAFTING} == bench.DRAFTING


def test_the_text_names_everyone_and_the_machine(measured: dict[str, Any]) -> None:
    text = page(measured)
    assert all(x["name"] in text for x in [*measured["contestants"], *measured["ratios"]])
    assert measured["machine"] in text and "1 threads" in text and "1 of 1" in text


def test_json_is_one_object(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def decode(*args: Any, **more: Any) -> dict[str, Any]:
        asked.update(more, models=args)
        return {"ratios": []}

    monkeypatch.setattr(bench, "decode", decode)
    assert main(["bench", "decode", "--json", "--threads", "2", "--level", "none", "--draft", "none"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ratios": []}
    assert asked["models"] == ("lab", None) and asked["threads"] == 2 and asked["level"] is None
