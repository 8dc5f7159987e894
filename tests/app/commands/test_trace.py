"""`trace find` and `trace fork` on a run of the shipped models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sizes import thinned

from decodescope.app.cli import main
from decodescope.app.runs.catalogue.examples import examples
from decodescope.engine.trace import check, open_trace

Said = Callable[..., tuple[int, str, str]]
NEW = 14


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sampled run with a draft model."""
    path = tmp_path_factory.mktemp("runs") / "run.dstrace"
    words = "run --model lab --draft lab-draft --drafter draft_model --sampler temperature --seed 7"
    words += " --set drafter.max_draft_tokens=3"
    assert (
        main(
            [
                *words.split(),
                "--max-new-tokens",
                str(NEW),
                "--prompt",
                "Once upon a time",
                "--trace",
                str(path),
            ]
        )
        == 0
    )
    return path


def test_find_prints_the_steps_and_their_numbers(recorded: Path, said: Said) -> None:
    steps = open_trace(recorded).steps
    due = [x.step for x in steps if x.accepted < 3]
    code, out, _ = said("trace", "find", str(recorded), "accepted < 3", "--json")
    found = json.loads(out)
    assert code == 0 and [x["step"] for x in found["steps"]] == due and found["searched"] == len(steps)
    code, out, _ = said("trace", "find", str(recorded), "first reject")
    assert out.splitlines()[-1].startswith("first reject: ") and (code == 0) == ("node" in out)
    assert said("trace", "find", str(recorded), "accepted > 99")[0] == 1
    code, out, err = said("trace", "find", str(recorded), "p < < 1")
    assert code == 2 and out == "" and "character 5" in err and err.count("\n") == 1


def test_a_token_that_is_white_space_keeps_its_line(said: Said) -> None:
    path = next(x.path for x in examples() if x.path.stem == "adaptive")
    code, out, _ = said("trace", "find", str(path), 'token == "\\n\\n"')
    lines = out.splitlines()
    assert code == 0 and len(lines) == 2 and "“⏎⏎”" in lines[0] and lines[1].endswith("1 of 12 steps")


def test_fork_repeats_the_run_and_goes_on_with_the_change(recorded: Path, said: Said, tmp_path: Path) -> None:
    run = open_trace(recorded)
    code, out, err = said(
        "trace", "fork", str(recorded), "--step", "2", "--trace", str(tmp_path / "same"), "--json"
    )
    assert code == 0, err
    assert json.loads(out)["tokens"] == run.end.tokens and json.loads(out)["exactness"] == "lossless"
    at = run.steps[2]
    words = [
        "--step",
        "2",
        "--trace",
        str(tmp_path / "forced"),
        "--force",
        "accept:2",
        "--name",
        "both",
        "--json",
    ]
    code, out, err = said("trace", "fork", str(recorded), *words)
    made = open_trace(tmp_path / "forced")
    assert (
        code == 0 and made.steps[2].emitted[:2] == at.draft.tokens[:2] and made.header.fork["name"] == "both"
    )
    assert (
        check(made).ok
        and json.loads(out)["exactness"] == "lossy"
        and made.header.fork["forced"] == [[1, True]]
    )
    words = [
        "--step",
        "1",
        "--trace",
        str(tmp_path / "hot"),
        "--set",
        "temperature.temperature=1.5",
        "--max-new-tokens",
        "20",
    ]
    assert said("trace", "fork", str(recorded), *words, "--json")[0] == 0
    hot = open_trace(tmp_path / "hot")
    assert len(hot.end.tokens) == 20 and hot.steps[0].emitted == run.steps[0].emitted
    assert hot.header.method["sampler"] == {"name": "temperature", "temperature": 1.5}


def test_a_fork_goes_on_with_another_draft_model(recorded: Path, said: Said, tmp_path: Path) -> None:
    words = ["--step", "2", "--then-draft", "lab-draft-plain", "--trace", str(tmp_path / "other"), "--json"]
    code, _, err = said("trace", "fork", str(recorded), *words)
    assert code == 0, err
    run, made = open_trace(recorded), open_trace(tmp_path / "other")
    assert run.header.lanes["draft"]["name"] == "lab-draft" and check(made).ok
    assert made.header.lanes["draft"]["name"] == "lab-draft-plain"
    assert made.header.fork["change"] == {"instead": {"draft": "lab-draft-plain"}}
    assert made.header.fork["base"]["models"]["draft"] == run.header.lanes["draft"]


FORKS = {
    "--step 900": "the run has",
    "--step 1 --force accept:99": "no drafted node 99",
    "--step 1 --force take:1": "accept:NODE",
    "--step 1 --force accept:1 --force reject:1": "settles node 1 twice",
    "--step 1 --set drafter.max_draft_tokns=2": "Did you mean 'max_draft_tokens'",
    "--step 1 --model lab-draft": "whose weights are others",
    "--step 1 --max-new-tokens 1": "allow more",
    "--step 1 --then-head eagle3=/nowhere": "give the folder of trained heads",
}


@pytest.mark.parametrize("words", thinned(2, FORKS))
def test_what_cannot_be_forked_is_one_sentence(
    recorded: Path, said: Said, tmp_path: Path, words: str
) -> None:
    code, out, err = said("trace", "fork", str(recorded), "--trace", str(tmp_path / "x"), *words.split())
    assert code == 2 and out == "" and FORKS[words] in err and err.strip().count("\n") == 0
    assert not (tmp_path / "x").exists()
