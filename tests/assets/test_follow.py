"""What depends on the weights of `lab`: commands that exist rebuild each shipped head and adapter; a page lists the rest."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from decodescope.app.basis.parser import build_parser
from decodescope.training import rebuild

ASSETS = Path(__file__).resolve().parents[2] / "assets"

PAGE = ASSETS.parent / "training" / "FOLLOW.md"


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings."""
    return {
        re.sub(r"[^\w -]", "", x.lower()).replace(" ", "-")
        for x in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }


def test_every_shipped_head_and_adapter_of_the_models_that_follow_is_a_piece():
    folders = [ASSETS / "models" / model for model in ("lab", "lab-draft")]
    shipped = {file.parent.name for folder in folders for file in folder.glob("*/*/config.json")}
    assert shipped and shipped <= rebuild.PIECES.keys(), shipped - rebuild.PIECES.keys()


@pytest.mark.parametrize("name", rebuild.PIECES)
def test_a_command_is_a_script_and_words_that_it_takes(name):
    small = rebuild.PIECES[name].small.format(name=name).split()
    for (_, script, *words), more in zip(rebuild.commands(name, 1), [small, [], []], strict=False):
        if script == "-m" and words[0] == "decodescope":
            assert build_parser().parse_args([*words[1:], *more]).command == "bench"
            continue
        file = rebuild.ROOT / script
        if script == "-m":
            script, *words = words
            file = Path(importlib.import_module(script).__file__)
        text = file.read_text()
        for word in (*words, *more):
            assert not word.startswith("--") or f'"{word}"' in text, f"{script} takes no {word}"


@pytest.mark.parametrize("name", [x for x in rebuild.PIECES if "--from" in rebuild.PIECES[x].commands[0]])
def test_what_a_piece_begins_with_lies_there(name):
    words = rebuild.commands(name, 1)[0]
    source = rebuild.ROOT / words[words.index("--from") + 1]
    assert (source / "model.safetensors").exists() or (source / name / "model.safetensors").exists()


def test_all_but_what_measures_times_takes_at_most_four_hours():
    assert sum(x.minutes for x in rebuild.PIECES.values() if not x.alone) <= 240


def test_what_people_write_anew_names_every_section_of_the_benchmarks_and_links_that_lead_somewhere():
    links = re.findall(r"\]\((\S+?)#(\S+?)\)", PAGE.read_text(encoding="utf-8"))
    for file, anchor in links:
        assert anchor in anchors((PAGE.parent / file).resolve().read_text(encoding="utf-8")), (
            f"{file} has no {anchor}"
        )
    text = (ASSETS.parent / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    sections = anchors("\n".join(x for x in text.split("\n") if x.startswith("## ")))
    named = {anchor for file, anchor in links if file.endswith("benchmarks.md")}
    assert len(links) > 40 and sections == named, f"does its figure hang on the weights? {sections ^ named}"


def test_pieces_are_made_in_order_noted_and_not_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(rebuild, "DONE", tmp_path / "followed.json")
    monkeypatch.setattr(rebuild, "ROOT", tmp_path)
    monkeypatch.setattr(rebuild, "BUILD", tmp_path / "build")
    ran, fails = [], ["hydra"]

    def ended(words: list[str], cwd: Path) -> CompletedProcess:
        ran.append(words[2:])
        return CompletedProcess(words, int(words[2] in fails))

    def commands(name: str, threads: int, fresh: bool) -> list[list[str]]:
        return [["python", "script", name, *["--fresh"] * fresh]]

    monkeypatch.setattr(rebuild.subprocess, "run", ended)
    monkeypatch.setattr(rebuild, "commands", commands)
    monkeypatch.setattr(rebuild, "weights_mark", lambda name: "abc")
    with pytest.raises(SystemExit, match="hydra was not made"):
        rebuild.make(["eagle", "hydra", "medusa"], 1)
    assert ran == [["eagle", "--fresh"], ["hydra", "--fresh"]]
    assert json.loads(rebuild.DONE.read_text()) == {
        "begun": {"eagle": "abc", "hydra": "abc"},
        "made": {"eagle": "abc"},
    }
    fails.clear()
    rebuild.make(["eagle", "hydra"], 1)
    assert ran[2:] == [["hydra"]], "begun for these weights: it goes on from its checkpoint"
    monkeypatch.setattr(rebuild, "weights_mark", lambda name: "abd")
    rebuild.make(["hydra"], 1)
    assert ran[3:] == [["hydra", "--fresh"]], "a checkpoint that was begun for other weights is forgotten"
    assert rebuild.read_notes()["made"] == {"eagle": "abc", "hydra": "abd"}


def test_a_rehearsal_adds_its_words_and_puts_back_what_was_written(tmp_path, monkeypatch):
    monkeypatch.setattr(rebuild, "ROOT", tmp_path)
    monkeypatch.setattr(rebuild, "BUILD", tmp_path / "build")
    monkeypatch.setattr(rebuild, "changed_paths", lambda: ["a file"])
    with pytest.raises(SystemExit, match="commit it first"):
        rebuild.rehearse(["eagle"], 1)
    states, ran = iter([[], ["assets/models/lab/heads/eagle"]]), []

    def ended(words: list[str], **how: object) -> CompletedProcess:
        ran.append(words)
        return CompletedProcess(words, 0)

    monkeypatch.setattr(rebuild, "changed_paths", lambda: next(states))
    monkeypatch.setattr(rebuild.subprocess, "run", ended)
    rebuild.rehearse(["eagle"], 1)
    made, loaded, *back = ran
    assert made[-4:] == ["--tokens", "0.005", "--unseen", "8"] and "'lab'" in loaded[2]
    assert [x[:2] for x in back] == [["git", "checkout"], ["git", "clean"]]


def test_what_is_no_piece_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["follow.py", "make", "owl"])
    with pytest.raises(SystemExit):
        rebuild.main()
    assert re.search("no piece 'owl': choose of lab-draft", capsys.readouterr().err)
