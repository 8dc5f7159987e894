"""An adapted model works like any other model on the command line, on the page, in links and in repeated runs."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
import torch

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.cli import main
from decodescope.app.runs.recipe import from_json, recipe
from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.engine.model.checkpoint.adapter import write
from decodescope.engine.session.load import SHIPPED, fingerprint
from decodescope.engine.trace import check, open_trace

NAME = "model.layers.0.mlp.down_proj.weight"


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the shipped draft with an adapter, `more`, that changes its text."""
    folder = tmp_path_factory.mktemp("models") / "mine"
    shutil.copytree(SHIPPED / "lab-draft", folder)
    config = json.loads((folder / "config.json").read_text())
    rows, columns = config["hidden_size"], config["intermediate_size"]
    draw = torch.Generator().manual_seed(0)
    tensors = {
        f"{NAME}.A": torch.randn(4, columns, generator=draw),
        f"{NAME}.B": torch.randn(rows, 4, generator=draw),
    }
    write(folder / "adapters" / "more", tensors, rank=4, alpha=1.0, base=fingerprint(folder))
    return folder


def test_both_are_offered_and_loaded_as_two_models(mine: Path, tmp_path: Path) -> None:
    play = RunService("lab-draft", None, tmp_path, more=mine.parent)
    keys = {x.name: x.key for x in play.models.offers() if x.source == "folder"}
    assert keys == {"mine": str(mine.resolve()), "mine+more": f"{mine.resolve()}+more"}
    runs = [
        play.start(RunChoice("Once upon", max_new=8, models={"target": keys[x]}))
        for x in ("mine+more", "mine", "mine+more")
    ]
    for run in runs:
        assert play._jobs[run.run].wait(300) and run.status == "done", run.state()
    texts = [[token for step in run.steps(0, run.count) for token in step.emitted] for run in runs]
    assert texts[0] == texts[2] != texts[1]
    assert sorted(x.name for x in play.models.present.values()) == ["mine", "mine+more"], "each is read once"
    headers = [run.wire.header for run in runs if run.wire is not None]
    assert [x.model.get("adapter") for x in headers] == ["more", None, "more"]
    assert [play.find_recorded_models(x)["target"] for x in headers[:2]] == [keys["mine+more"], keys["mine"]]
    assert play.models.nearest_key("/elsewhere/mine+more") == keys["mine+more"], (
        "of a link from another machine"
    )
    with pytest.raises(RequestRefusal, match="not offered here"):
        play.start(RunChoice("Once", models={"target": keys["mine"] + "+other"}))
    play.close()


def test_a_command_and_a_link_name_the_adapter_and_the_command_s_run_is_forked(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    choice = RunChoice(
        "Once upon", {"drafter": "prompt_lookup"}, models={"target": f"{mine}+more"}, max_new=12
    )
    words, link = recipe(choice, {}, "command"), recipe(choice, {}, "link")
    assert from_json(link.removeprefix("#set=")).models == choice.models
    assert f"load('{mine}+more')" in recipe(choice, {}, "python")
    trace = tmp_path / "run.dstrace"
    assert main([*shlex.split(words)[1:], "--trace", str(trace)]) == 0
    made = open_trace(trace)
    assert made.header.model["name"] == "mine+more" and check(made).ok
    fork = ["trace", "fork", str(trace), "--step", "1", "--trace", str(tmp_path / "fork")]
    capsys.readouterr()
    assert main([*fork, "--model", f"{mine}+more", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == made.end.tokens
    assert main([*fork[:-1], str(tmp_path / "other"), "--model", str(mine)]) == 2
    assert "whose weights are others" in capsys.readouterr().err


def test_a_name_without_such_an_adapter_ends_in_a_sentence(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--model", f"{mine}+moer", "--prompt", "Once"]) == 2
    said = capsys.readouterr().err
    assert "no adapter 'moer' (it has more)" in said and said.count("\n") == 1
