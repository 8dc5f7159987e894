"""What the files of two models say side by side, and pairs that differ in special tokens alone."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import toys

from decodescope.app.cli import main
from decodescope.engine import Method, MethodError, Session
from decodescope.engine.draft_doctor.pair_sheet import compare_pair, open_unloaded
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
from decodescope.engine.session.compatibility import vocabulary_remarks
from decodescope.engine.session.load import Model, load

DRAFTED = Method.from_names({"drafter": "draft_model"})


def tokenizer_with(folder: Path, old: str, new: str) -> Tokenizer:
    """The shipped tokenizer in which one token has another text, or changes places with another token."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(load("lab-draft").path / name, folder)
    table = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    for token in table["added_tokens"]:
        token["content"] = new if token["content"] == old else token["content"]
    words = table["model"]["vocab"]
    if new in words:
        words[old], words[new] = words[new], words[old]
    else:
        table["model"]["vocab"] = {new if x == old else x: i for x, i in words.items()}
    (folder / "tokenizer.json").write_text(json.dumps(table), encoding="utf-8")
    return Tokenizer.from_folder(folder)


@pytest.fixture(scope="module")
def renamed(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A draft model whose user mark has another name."""
    other = tokenizer_with(tmp_path_factory.mktemp("renamed"), "<|user|>", "<|person|>")
    return replace(load("lab-draft"), name="renamed", tokenizer=other)


def test_a_pair_of_one_family_has_no_difference_that_matters() -> None:
    sheet = compare_pair(open_unloaded("lab"), open_unloaded("lab-draft"))
    assert sheet.fits and not [x for x in sheet.rows if x.matters]
    row = next(x for x in sheet.rows if x.what == "layers, width")
    assert (row.target, row.draft) == ("8, 384", "2, 128")
    json.dumps(sheet.record())


def test_a_pair_that_differs_in_special_tokens_alone_is_used_with_a_remark(renamed: Model) -> None:
    target = load("lab-draft")
    sheet = compare_pair(target, renamed)
    assert sheet.fits
    assert "Only special tokens differ, 1 of them" in next(x for x in sheet.rows if x.what == "ids").matters
    (remark,) = vocabulary_remarks(DRAFTED, {"target": target, "draft": renamed})
    at = target.tokenizer.encode_marks("<|user|>")[0]  # type: ignore[union-attr] # it has one
    assert f"(ids {at})" in remark and "special tokens" in remark
    drafted = Session(target, DRAFTED, [20, 21, 22], models={"draft": renamed}, max_new_tokens=6)
    alone = Session(target, Method(), [20, 21, 22], max_new_tokens=6)
    session, alone = (toys.finish_session(x) for x in (drafted, alone))
    assert session.end.tokens == alone.end.tokens and sum(x.accepted for x in session.sink.steps) > 0


def test_a_pair_that_differs_in_a_word_is_refused(tmp_path: Path) -> None:
    target = load("lab-draft")
    other = replace(target, name="other", tokenizer=tokenizer_with(tmp_path, "\u0120was", "\u0120the"))
    sheet = compare_pair(target, other)
    assert not sheet.fits and "translates tokens" in next(x for x in sheet.rows if x.what == "ids").matters
    with pytest.raises(MethodError, match="their tokenizers differ at id"):
        Session(target, DRAFTED, [20, 21], models={"draft": other})


def test_the_command_prints_the_sheet(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "pair", "--model", "lab", "--draft", "lab-draft"]) == 0
    out = capsys.readouterr().out
    assert "rotary positions" in out and out.rstrip().endswith("The pair can be used.")
    assert main(["doctor", "pair", "--model", "lab", "--draft", "lab-digits", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["fits"] is False
