"""The result of a slow transform is kept, used at the next load, and computed again if its file was changed."""

from __future__ import annotations

import json
from pathlib import Path

import platformdirs
import pytest
import torch
import toys

from decodescope.engine.core.note import Finding
from decodescope.engine.decoding.bases.weights import parse_transform_list
from decodescope.engine.decoding.values import transform_result
from decodescope.engine.decoding.values.transform_result import TransformCache
from decodescope.engine.model.layers.gates import Gates
from decodescope.engine.model.layers.matrix import unpack
from decodescope.engine.session.load import Model, load

CUT = "head_sensitivity cut_share=0.25 calibration_tokens=512"
FINDINGS = {
    "score": Finding("grid", "Score", over="head", values=[[0.5] * toys.SPEC.n_heads] * toys.SPEC.n_layers)
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(platformdirs, "user_data_dir", lambda *_, **__: str(tmp_path))
    return tmp_path / "ended"


def made(weights: str, dtype: str = "float32") -> Model:
    return load("lab-draft", dtype, "cpu", weights=weights)


def test_the_next_load_takes_it_and_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = made(CUT)
    (path,) = folder.iterdir()
    assert not first.reports[0].kept and not first.remarks and path.stat().st_size < 8192
    assert made("int8+codes").remarks == [] and len([*folder.iterdir()]) == 1, "what is quick is not kept"
    other = type(parse_transform_list(CUT)[0])
    with monkeypatch.context() as patched:
        patched.setattr(other, "gates", lambda *_: pytest.fail("it looked anew"))
        again = made(CUT)
    assert again.reports[0].kept and again.reports[0].findings == first.reports[0].findings
    assert again.remarks == [
        f"head_sensitivity calibration_tokens=512 was not done again: an earlier load left what it ended with in {path}."
    ]
    assert again.spec == first.spec and again.fingerprint == first.fingerprint
    for a, b in zip(first.decoder.layers, again.decoder.layers, strict=True):
        assert torch.equal(unpack(a.qkv), unpack(b.qkv)) and torch.equal(unpack(a.out), unpack(b.out))


def test_another_model_text_or_knob_is_another_file(folder: Path) -> None:
    others = (
        (CUT, "float32"),
        (CUT.replace("0.25", "0.5"), "float32"),
        (CUT, "bfloat16"),
        (f"cut_layers skip=f1+{CUT}", "float32"),
    )
    for weights, dtype in others:
        assert not made(weights, dtype).reports[-1].kept
    assert len([*folder.iterdir()]) == 4


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"ended": 1}', "bit", "place", "name", "finding"])
def test_a_damaged_file_is_a_sentence_and_done_anew(tmp_path: Path, damage: str) -> None:
    shelf = TransformCache(tmp_path, "a")
    head = torch.ones(toys.SPEC.n_layers, toys.SPEC.n_heads)
    head[1, 0] = 0
    shelf.put("x", Gates(head=head), FINDINGS)
    whole = json.loads(shelf.path.read_text())
    if damage == "bit":
        whole["closed"]["head"][0][1] = 1
        damage = json.dumps(whole)
    elif damage in ("place", "name", "finding"):
        plain = {x: whole[x] for x in ("words", "closed", "findings")}
        if damage == "finding":
            plain["findings"]["score"]["values"] = [[1]]
        else:
            plain["closed"] = {"head": [[0, 99]]} if damage == "place" else {"all": []}
        damage = json.dumps({"ended": 1, **plain, "sha256": transform_result._checksum(plain)})
    assert (
        TransformCache(tmp_path, "a").get("x", toys.SPEC) is not None
        and TransformCache(tmp_path, "b").get("x", toys.SPEC) is None
    )
    shelf.path.write_text(damage)
    later = TransformCache(tmp_path, "a")
    assert later.get("x", toys.SPEC) is None and not later.taken
    assert (
        len(later.remarks) == 1
        and "is damaged (" in later.remarks[0]
        and later.remarks[0].endswith("so x was done again.")
    )
    later.put("x", Gates(head=head), FINDINGS)
    kept = TransformCache(tmp_path, "a").get("x", toys.SPEC)
    assert (
        kept is not None
        and kept[0].head is not None
        and torch.equal(kept[0].head, head)
        and kept[1] == FINDINGS
    )
    assert [x.name for x in tmp_path.iterdir()] == [shelf.path.name], "no part is left"


def test_where_nothing_can_be_written_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    shelf = TransformCache(tmp_path / "file", "a")
    shelf.put("x", Gates(), {})
    assert len(shelf.remarks) == 1 and shelf.remarks[0].startswith(f"x is not kept in {tmp_path / 'file'}")


def test_the_oldest_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transform_result, "FILES", 2)
    for key in "abc":
        TransformCache(tmp_path, key).put("x", Gates(), {})
    assert {x.name for x in tmp_path.iterdir()} == {TransformCache(tmp_path, key).path.name for key in "bc"}
