"""What hangs on the weights of `lab`: every head and adapter that is shipped is made anew, by commands that exist."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

ASSETS = Path(__file__).resolve().parents[2] / "assets"
sys.path.append(str(ASSETS / "training"))

import follow  # noqa: E402


def test_every_shipped_head_and_adapter_of_the_models_that_follow_is_a_piece():
    folders = [ASSETS / "models" / model for model in ("lab", "lab-draft")]
    shipped = {file.parent.name for folder in folders for file in folder.glob("*/*/config.json")}
    assert shipped and shipped <= follow.PIECES.keys(), shipped - follow.PIECES.keys()


@pytest.mark.parametrize("name", follow.PIECES)
def test_a_command_is_a_script_and_words_that_it_takes(name):
    _, script, *words = follow.command(name, 1)
    text = (follow.ROOT / script).read_text()
    for word in words:
        assert not word.startswith("--") or f'"{word}"' in text, f"{script} takes no {word}"


def test_pieces_are_made_in_order_noted_and_not_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "DONE", tmp_path / "followed.json")
    ran, fails = [], ["hydra"]

    def ended(words: list[str], cwd: Path) -> CompletedProcess:
        ran.append(words[2])
        return CompletedProcess(words, int(words[2] in fails))

    monkeypatch.setattr(follow.subprocess, "run", ended)
    monkeypatch.setattr(follow, "command", lambda name, threads: ["python", "script", name])
    with pytest.raises(SystemExit, match="hydra was not made"):
        follow.make(["eagle", "hydra", "medusa"], "abc", 1)
    assert ran == ["eagle", "hydra"] and json.loads(follow.DONE.read_text()) == {"eagle": "abc"}
    fails.clear()
    follow.make(["hydra"], "abd", 1)
    assert follow.made() == {"eagle": "abc", "hydra": "abd"}


def test_what_is_no_piece_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["follow.py", "make", "owl"])
    with pytest.raises(SystemExit):
        follow.main()
    assert re.search("no piece 'owl': choose of lab-draft", capsys.readouterr().err)
