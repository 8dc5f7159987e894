"""Runs on GGUF files: from the page and from the command line, forked, repeated and copied."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import toys
from gguf import GGMLQuantizationType as Kind
from gguf_files import write_decoder

from decodescope.app.runs.forks import fork
from decodescope.app.runs.recipe import recipe
from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.engine.model.checkpoint.tokenizer import _byte_letters
from decodescope.engine.trace import check, open_trace

CHOICE = RunChoice("some text", {"drafter": "draft_model"}, max_new=8)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A target and a draft model in a folder, and a data folder of the test's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    toy = toys.decoder(toys.toy_spec(vocab=258, heads=()), toys.LIVELY)
    words = {
        "tokenizer__ggml__model": "gpt2",
        "tokenizer__ggml__pre": "gpt-2",
        "tokenizer__ggml__tokens": [*_byte_letters(), "ab", "<end>"],
        "tokenizer__ggml__token_type": [1] * 257 + [3],
        "tokenizer__ggml__merges": ["a b"],
    }
    folder = tmp_path / "models"
    folder.mkdir()
    kinds = {"target": Kind.Q8_0, "draft": Kind.Q4_0}
    return {
        role: str(write_decoder(folder / f"toy.{kind.name}.gguf", toy, kind, **words))
        for role, kind in kinds.items()
    }


def test_the_page_runs_and_forks_a_file_of_its_folder(files: dict[str, str], tmp_path: Path) -> None:
    play = RunService("lab-draft", None, tmp_path / "traces", tmp_path / "models")
    channel = play.start(RunChoice(CHOICE.prompt, CHOICE.names, max_new=8, models=files))
    assert play._jobs[channel.run].wait(300) and channel.status == "done"
    header: Any = channel.wire.header
    assert header.model["name"] == "toy.Q8_0" and header.model["stored_as"] == "Q8_0"
    assert header.lanes["draft"]["name"] == "toy.Q4_0"
    branch = fork(play, channel, {"step": 1, "change": {"seed": 4}})
    assert play._jobs[branch.run].wait(300) and branch.status == "done"
    play.close()


def test_the_command_line_drafts_forks_and_copies_with_files(
    files: dict[str, str], said: Any, tmp_path: Path
) -> None:
    words = shlex.split(recipe(CHOICE, files, "command"))
    assert words[words.index("--model") + 1] == files["target"] and files["draft"] in words
    first, again = tmp_path / "a.dstrace", tmp_path / "b.dstrace"
    code, out, error = said(*words[1:], "--json", "--trace", str(first))
    assert code == 0 and "toy.Q8_0" in error
    trace = open_trace(first)
    report = check(trace)
    assert report.ok, str(report)
    assert trace.header.model["stored_as"] == "Q8_0" and trace.header.lanes["draft"]["stored_as"] == "Q4_0"
    models = ["--model", files["target"], "--draft", files["draft"]]
    code, forked, error = said(
        "trace", "fork", str(first), "--step", "1", *models, "--json", "--trace", str(again)
    )
    assert code == 0, error
    assert json.loads(forked)["tokens"] == json.loads(out)["tokens"]
